"""The folder of an experiment: its settings, the results so far, and what may go on from them."""

import contextlib
import pathlib
import shutil

from support import checkpoint
from support.errors import UserError
from support.files import clear_partial, read_json, write_json
from support.settings import refuse_others

RESULTS = "results.json"
CHECKPOINTS = "checkpoints"
BOARDS = "tensorboard"
PRODUCTS = ("history.csv", "curves.png", "activations.png", "reconstructions.png")


class Experiment:
    """Results of runs with the same settings, kept in one folder.

    Args:
        folder: path.
        settings: dict of JSON values. A folder with results of other settings is refused.
        facts: dict of JSON values, written beside the settings: versions, device, data. A folder with results of other
            data of the same name is refused too.
        overwrite: bool. Whether to delete what is in the folder from before.

    Raises:
        UserError: the folder cannot be written, holds results of other settings, or its results cannot be read.
    """

    def __init__(self, folder, settings, facts, overwrite=False):
        self.folder = pathlib.Path(folder)
        self.settings = settings
        self.facts = facts
        self.runs = {}
        if overwrite:
            self._clear()
        former = read_json(self.folder / RESULTS)
        if former is not None:
            refuse_others(str(self.folder), _identity(former.get("settings", {}), former), self.identity())
            self.runs = former.get("runs", {})
        for part in (self.folder, self.folder / CHECKPOINTS):
            clear_partial(part)
        self.write()

    def identity(self):
        """What must be the same for a run to go on: the settings, and what is known of the data."""
        return _identity(self.settings, self.facts)

    def write(self):
        write_json(self.folder / RESULTS, {"settings": self.settings, **self.facts, "runs": self.runs})

    def checkpoint_path(self, label):
        return self.folder / CHECKPOINTS / f"{file_name(label)}.npz"

    def board_folder(self, label):
        return self.folder / BOARDS / file_name(label)

    def model_path(self, label):
        return self.folder / f"{file_name(label)}.keras"

    def is_finished(self, label):
        return self.runs.get(label, {}).get("status") == "finished" and self.model_path(label).exists()

    def remove_checkpoint(self, label):
        """Removes the checkpoints of a finished run, and the folder with the last ones."""
        path = self.checkpoint_path(label)
        checkpoint.remove(path)
        with contextlib.suppress(OSError):  # other checkpoints are in it
            path.parent.rmdir()

    def histories(self):
        return {label: run["history"] for label, run in self.runs.items()}

    def _clear(self):
        former = {}
        with contextlib.suppress(UserError):  # a damaged file is no obstacle here
            former = (read_json(self.folder / RESULTS) or {}).get("runs", {})
        try:
            for name in (RESULTS, *PRODUCTS, *(f"{file_name(label)}.keras" for label in former)):
                (self.folder / name).unlink(missing_ok=True)
            for name in (CHECKPOINTS, BOARDS):
                if (self.folder / name).exists():
                    shutil.rmtree(self.folder / name)
        except OSError as error:
            raise UserError(f"{self.folder} cannot be cleared ({error.strerror}): choose another --output.") from error


def _identity(settings, facts):
    return {**settings, **{name: _rounded(value) for name, value in facts.get("data", {}).items()}}


def _rounded(value):
    """Means and deviations of pixels as far as they are the same on every machine."""
    if isinstance(value, list):
        return [_rounded(part) for part in value]
    return round(value, 3) if isinstance(value, float) else value


def short_name(dataset):
    """What a data set is called in titles and folder names: the last part of a path."""
    return pathlib.PurePath(dataset).name


def file_name(label):
    return "".join(c if c.isalnum() or c in "_-." else "-" for c in label).rstrip("-")
