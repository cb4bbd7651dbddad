"""The one switch: whether ops may use their backend's faster version; and one about how, on PyTorch.

The formulas in `keras_polycom.ops` are the specification. Some of them also have a faster version per backend with a
hand-written derivative; both give the same numbers. Turn the faster versions off to use forward-mode differentiation
first (`jax.jvp`, `torch.func.jvp`), or to rule them out while debugging. Exports to ONNX take the formulas anyway.
"""

import contextlib
import os

MODES = ("auto", "off", "on")
ENVIRONMENT_VARIABLE = "KERAS_POLYCOM_FAST_ROADS"


def _checked(mode: str, source: str) -> str:
    if mode not in MODES:
        raise ValueError(f"{source} must be one of {', '.join(MODES)}. Received: {mode!r}")
    return mode


_mode = _checked(os.environ.get(ENVIRONMENT_VARIABLE, "auto"), ENVIRONMENT_VARIABLE)


COMPILE_ENVIRONMENT_VARIABLE = "KERAS_POLYCOM_COMPILE"


def _checked_flag(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError(f"{COMPILE_ENVIRONMENT_VARIABLE} must be 0 or 1. Received: {text!r}")
    return text == "1"


_compile_halves = _checked_flag(os.environ.get(COMPILE_ENVIRONMENT_VARIABLE, "1"))


def fast_roads() -> str:
    """Returns the mode in force: `"auto"`, `"off"` or `"on"`."""
    return _mode


def set_fast_roads(mode: str) -> None:
    """Chooses between the formulas and their faster versions, for the whole process.

    Functions that are already compiled keep the version they were compiled with.

    Args:
        mode: string. `"auto"` uses the faster version of an op where the backend has one that can take the inputs;
            `"off"` always uses the formula; `"on"` raises a `ValueError` that gives the reason where there is no
            faster version. Defaults to `"auto"`, or to the environment variable `KERAS_POLYCOM_FAST_ROADS`.

    Example:

    >>> import keras_polycom
    >>> keras_polycom.config.set_fast_roads("off")
    >>> keras_polycom.config.fast_roads()
    'off'
    >>> keras_polycom.config.set_fast_roads("auto")
    """
    global _mode
    _mode = _checked(mode, "`mode`")


@contextlib.contextmanager
def fast_roads_scope(mode: str):
    """A `with` block inside which `mode` is in force; the former mode returns at its end."""
    former = _mode
    set_fast_roads(mode)
    try:
        yield
    finally:
        set_fast_roads(former)


def compile_halves() -> bool:
    """Returns whether eager PyTorch may compile the faster versions of ops: see `set_compile_halves`."""
    return _compile_halves


def set_compile_halves(allowed: bool) -> None:
    """Allows or forbids that the faster version of an op is compiled on first use. PyTorch only, eager mode on a CPU.

    Where a C++ compiler is found, an op that meets a big input (of a million numbers or more) has its forward and
    backward computation compiled by `torch.compile`, once for all sizes: seconds of waiting, then about half the time
    per call. Without it, and where no compiler is found, rows are worked on a few at a time, operation by operation.

    Args:
        allowed: bool. Defaults to `True`, or to what the environment variable `KERAS_POLYCOM_COMPILE`, 0 or 1, says.

    Raises:
        ValueError: `allowed` is not a bool.

    Example:

    >>> import keras_polycom
    >>> keras_polycom.config.set_compile_halves(False)
    >>> keras_polycom.config.compile_halves()
    False
    >>> keras_polycom.config.set_compile_halves(True)
    """
    global _compile_halves
    if not isinstance(allowed, bool):
        raise ValueError(f"`allowed` must be a bool. Received: {allowed!r}")
    _compile_halves = allowed
