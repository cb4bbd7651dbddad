"""The folder of an experiment: its settings, the results so far, and what may go on from them."""

import contextlib
import pathlib
import shutil

from support.errors import UserError
from support.files import read_json, write_json

RESULTS = "results.json"
CHECKPOINTS = "checkpoints"
PRODUCTS = ("history.csv", "curves.png", "activations.png", "reconstructions.png")


class Experiment:
    """Results of runs with the same settings, kept in one folder.

    Args:
        folder: path.
        settings: dict of JSON values. A folder with results of other settings is refused.
        facts: dict of JSON values, written beside the settings: versions, device, data.
        overwrite: bool. Whether to delete what is in the folder from before.

    Raises:
        UserError: the folder cannot be written, or holds results of other settings.
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
            self._check_same(former.get("settings", {}))
            self.runs = former.get("runs", {})
        self.write()

    def write(self):
        write_json(self.folder / RESULTS, {"settings": self.settings, **self.facts, "runs": self.runs})

    def checkpoint_path(self, label):
        return self.folder / CHECKPOINTS / f"{file_name(label)}.npz"

    def model_path(self, label):
        return self.folder / f"{file_name(label)}.keras"

    def is_finished(self, label):
        return self.runs.get(label, {}).get("status") == "finished" and self.model_path(label).exists()

    def remove_checkpoint(self, label):
        """Removes the checkpoint of a finished run, and the folder with the last one."""
        path = self.checkpoint_path(label)
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # other checkpoints are in it
            path.parent.rmdir()

    def histories(self):
        return {label: run["history"] for label, run in self.runs.items()}

    def _check_same(self, former):
        names = sorted({*former, *self.settings})
        differing = [name for name in names if former.get(name) != self.settings.get(name)]
        if differing:
            values = ", ".join(
                f"{name} was {former.get(name)!r} and is {self.settings.get(name)!r}" for name in differing
            )
            raise UserError(
                f"{self.folder} holds results of other settings ({values}): choose another --output, or --overwrite."
            )

    def _clear(self):
        former = {}
        with contextlib.suppress(UserError):  # a damaged file is no obstacle here
            former = (read_json(self.folder / RESULTS) or {}).get("runs", {})
        try:
            for name in (RESULTS, *PRODUCTS, *(f"{file_name(label)}.keras" for label in former)):
                (self.folder / name).unlink(missing_ok=True)
            if (self.folder / CHECKPOINTS).exists():
                shutil.rmtree(self.folder / CHECKPOINTS)
        except OSError as error:
            raise UserError(f"{self.folder} cannot be cleared ({error.strerror}): choose another --output.") from error


def short_name(dataset):
    """What a data set is called in titles and folder names: the last part of a path."""
    return pathlib.PurePath(dataset).name


def file_name(label):
    return "".join(c if c.isalnum() or c in "_-." else "-" for c in label).rstrip("-")
