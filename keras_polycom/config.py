"""The one switch: whether ops may use their backend's faster version.

The formulas in `keras_polycom.ops` are the specification. Some of them also have a faster version per backend with a
hand-written derivative; both give the same numbers. Turn the faster versions off to use forward-mode differentiation
first (`jax.jvp`, `torch.func.jvp`), to export to a format that cannot carry them, or to rule them out while debugging.
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
