"""Progress on a terminal; one line per epoch where the output is a file or a pipe."""

import contextlib
import sys

from support.errors import require

UNSHOWN = {"epoch", "iteration", "learning_rate", "ms_per_step", "seconds"}


class Progress:
    """Shows how training goes. `interactive` is whether there is a terminal to draw on; `None` finds out."""

    def __init__(self, interactive=None):
        self.interactive = sys.stdout.isatty() if interactive is None else interactive

    @contextlib.contextmanager
    def epoch(self, label, epoch, epochs, steps):
        """A `with` block for one epoch, that is given an object with `step(step, loss)` and `finish(row)`."""
        head = f"{label:<14} epoch {epoch:>{len(str(epochs))}}/{epochs}"
        if not self.interactive:
            yield _Line(head)
            return
        rich = require("rich.progress", "The progress bar")
        columns = (
            "[progress.description]{task.description}",
            rich.BarColumn(),
            rich.MofNCompleteColumn(),
            "{task.fields[loss]}",
        )
        with rich.Progress(*columns, rich.TimeRemainingColumn(), transient=True) as bar:
            yield _Bar(head, bar, bar.add_task(head, total=steps, loss=""))


class _Line:
    def __init__(self, head):
        self.head = head

    def step(self, step, loss):
        """Nothing: a file gets one line per epoch."""

    def finish(self, row):
        names = sorted(row.keys() - UNSHOWN, key=lambda name: (name != "loss", list(row).index(name)))
        parts = [f"{name} {short(row[name])}" for name in names]
        print(f"{self.head}  {'  '.join(parts)}  {row['ms_per_step']:.1f} ms/step  {row['seconds']:.1f} s", flush=True)


class _Bar(_Line):
    def __init__(self, head, bar, task):
        super().__init__(head)
        self.bar = bar
        self.task = task

    def step(self, step, loss):
        self.bar.update(self.task, completed=step, loss=f"loss {short(loss)}")

    def finish(self, row):
        self.bar.stop()
        super().finish(row)


def short(number):
    """Four decimals, or for small numbers two behind the first digit that is not 0."""
    return f"{number:.4f}" if abs(number) >= 0.01 or number == 0 else f"{number:.2e}"
