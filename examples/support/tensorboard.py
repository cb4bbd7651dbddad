"""Event files for TensorBoard, written without TensorFlow."""

import time

from support.errors import require
from support.files import clear_partial, whole_file, writing

UNSHOWN = ("epoch",)
PATTERN = "events.out.tfevents.*"


def check_installed():
    """Raises a `UserError` where the package is missing."""
    _modules()


def _modules():
    purpose = "--tensorboard"
    return (
        require("tensorboard.compat.proto.event_pb2", purpose),
        require("tensorboard.summary.writer.record_writer", purpose),
    )


class Board:
    """The event file of one run: a scalar for each number of an epoch, at the step that is the epoch's number.

    The file is made anew from the history whenever a process begins, and takes the place of the one before: a run has
    one file and each step once, however often it was stopped. To a TensorBoard that watches meanwhile, the new file
    says that it begins again. Epochs are dated as if the run had not been stopped.

    Args:
        folder: path, for this run alone.
        history: list of dicts, name -> number, with `epoch` and `seconds`: the epochs so far.
    """

    def __init__(self, folder, history):
        self.event_module, self.record_module = _modules()
        clear_partial(folder)
        former = sorted(folder.glob(PATTERN))
        now = time.time()
        self.path = folder / PATTERN.replace("*", f"{time.time_ns()}.keras_polycom")
        self.time = now - sum(row["seconds"] for row in history)
        with whole_file(self.path) as temporary, open(temporary, "wb") as file:
            self._write(file, file_version="brain.Event:2")
            self._write(file, step=0, session_log={"status": "START"})
            for row in history:
                self._write_row(file, row)
        for path in former:
            with writing(path):
                path.unlink()

    def add(self, row):
        """Appends an epoch."""
        with writing(self.path), open(self.path, "ab") as file:
            self._write_row(file, row)

    def _write_row(self, file, row):
        self.time += row["seconds"]
        values = [{"tag": name, "simple_value": value} for name, value in row.items() if name not in UNSHOWN]
        self._write(file, step=row["epoch"], summary={"value": values})

    def _write(self, file, **fields):
        event = self.event_module.Event(wall_time=self.time, **fields)
        self.record_module.RecordWriter(file).write(event.SerializeToString())
