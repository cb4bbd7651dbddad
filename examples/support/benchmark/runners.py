"""The part of a benchmark that depends on the backend.

A runner, made with a mode from `modes`, has

    synchronise(outputs)        waits until they are computed, and returns them
    trace(case)                 calls the case's function, as abstractly as the mode allows
    measurements(case, dy)      dict of `stopwatch.Measurement`: "both" (forward and all gradients), "forward" (alone,
                                and nothing is kept for gradients), "backward" (alone)
    saved_bytes(case, dy)       what the forward pass keeps for the backward pass, each tensor once, the inputs among
                                them; `None` where it cannot be read
    saved_remark                what to know about that number, or `None`
"""

import importlib

import keras


def load(mode):
    return importlib.import_module(f"support.benchmark.{keras.backend.backend()}_runner").Runner(mode)
