"""Times that can be compared: everything in one process, in turns, each to its very end."""

import contextlib
import dataclasses
import random
import time
from collections.abc import Callable

import numpy as np

WARM_UP = 2  # calls before anything counts; the first one compiles


@dataclasses.dataclass(frozen=True)
class Measurement:
    """What is timed: `run(setup())`, without `setup`."""

    run: Callable
    setup: Callable = lambda: None


@dataclasses.dataclass(frozen=True)
class Subject:
    """Something with one or several measurements.

    Args:
        label: string.
        measurements: dict, name -> `Measurement`.
        context: function that returns the context manager to call them in.
    """

    label: str
    measurements: dict
    context: Callable = contextlib.nullcontext


@dataclasses.dataclass
class Times:
    """Seconds of one measurement: the first call's, and all that count."""

    first: float
    all: list = dataclasses.field(default_factory=list)

    def summary(self):
        """Median and quartiles in milliseconds."""
        lower, median, upper = 1e3 * np.percentile(self.all, [25, 50, 75])
        return {"median_ms": float(median), "quartiles_ms": [float(lower), float(upper)]}


def interleaved(subjects, repeats, synchronise, on_warm=lambda label, seconds: None):
    """Times every measurement of every subject once per round, in `repeats` rounds.

    Each round has an order of its own, always the same for the same subjects, since what ran before decides what is in
    the caches.

    Args:
        subjects: list of `Subject`.
        repeats: integer.
        synchronise: function that waits until its argument is computed, and returns it.
        on_warm: function that is called with label and seconds when a subject has been warmed up.

    Returns:
        One dict per subject, name of the measurement -> `Times`.
    """
    times = []
    for subject in subjects:
        start = time.perf_counter()
        times.append({name: _warm(subject, name, synchronise) for name in subject.measurements})
        on_warm(subject.label, time.perf_counter() - start)
    turns = [(subject, name, own[name]) for subject, own in zip(subjects, times, strict=True) for name in own]
    order = random.Random(0)
    for _ in range(repeats):
        order.shuffle(turns)
        for subject, name, own in turns:
            own.all.append(_seconds(subject.measurements[name], subject.context, synchronise))
    return times


def _warm(subject, name, synchronise):
    calls = [_seconds(subject.measurements[name], subject.context, synchronise) for _ in range(WARM_UP)]
    return Times(first=calls[0])


def _seconds(measurement, context, synchronise):
    with context():
        state = synchronise(measurement.setup())
        start = time.perf_counter()
        outputs = synchronise(measurement.run(state))
        seconds = time.perf_counter() - start
        del outputs  # freed here, not inside of the next measurement
        return seconds
