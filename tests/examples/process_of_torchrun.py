"""What the tests have torchrun start: train_classifier.py, watched.

    torchrun ... process_of_torchrun.py FOLDER OPTION ...

Every process leaves its weights in FOLDER, as LABEL-PROCESS.npz. The first one copies the experiment's folder to
FOLDER/stopped when the last run has its first checkpoint: the state that is found after kill -9.
"""

import os
import pathlib
import shutil
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "examples"))

import train_classifier
from support import checkpoint, training

FOLDER, ARGUMENTS = pathlib.Path(sys.argv[1]), sys.argv[2:]
save, train = checkpoint.save, training.Run.train


def save_and_copy(path, model, record):
    save(path, model, record)
    if len(record["history"]) == 1 and not (FOLDER / "stopped").exists() and path.stem == os.environ["LAST_RUN"]:
        shutil.copytree(path.parents[1], FOLDER / "stopped")


def train_and_keep(self, *args):
    train(self, *args)
    np.savez(FOLDER / f"{self.label}-{os.environ['RANK']}.npz", *self.model.get_weights())


checkpoint.save = save_and_copy
training.Run.train = train_and_keep
sys.exit(train_classifier.main(ARGUMENTS))
