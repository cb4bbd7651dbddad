"""The experiment as the processes see it that do not lead: they write nothing, and are told what was read."""

import pathlib

from support.experiment import Experiment


class Follower:
    """Stands in for `experiment.Experiment`; see there."""

    def __init__(self, folder, settings, facts):
        self.folder = pathlib.Path(folder)
        self.settings = settings
        self.facts = facts
        self.runs = {}

    def identity(self):
        """Nothing: only the leading process compares checkpoints."""
        return {}

    def checkpoint_path(self, label):
        """None: only the leading process has checkpoints."""

    def is_finished(self, label):
        """Not that a follower knows: it is asked of the leading process."""
        raise NotImplementedError

    def write(self):
        """Nothing."""

    def remove_checkpoint(self, label):
        """Nothing."""


def experiment(devices, *args):
    """Returns `experiment.Experiment(*args)` in the process that leads, a `Follower` in the others."""
    return Experiment(*args) if devices.leads else Follower(*args[:3])
