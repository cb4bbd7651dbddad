"""Chooses the backend before Keras is imported: importing this module first is all a script has to do."""

import importlib.util
import os
import sys

BACKENDS = ("jax", "tensorflow", "torch")


def choose_backend():
    """Keeps KERAS_BACKEND if it is set, else sets it to the first backend that is installed.

    Exits with status 2 and one sentence if the one named, or all of them, are missing.
    """
    installed = [name for name in BACKENDS if importlib.util.find_spec(name)]
    backend = os.environ.get("KERAS_BACKEND") or next(iter(installed), None)
    if backend is None:
        _leave(f"no Keras backend is installed: install one of {', '.join(BACKENDS)}.")
    if backend not in BACKENDS:
        _leave(
            f"KERAS_BACKEND={backend} is not a backend this package runs on: set it to one of {', '.join(BACKENDS)}."
        )
    if backend not in installed:
        _leave(
            f"KERAS_BACKEND={backend} is not installed: install {backend}, or choose another of {', '.join(installed)}."
        )
    os.environ["KERAS_BACKEND"] = backend


def _leave(sentence):
    print(f"error: {sentence}", file=sys.stderr)
    sys.exit(2)


def _show(kind, error, traceback):
    """One sentence for a Ctrl-C while modules are imported, which takes seconds; all else as ever."""
    if issubclass(kind, KeyboardInterrupt):
        print("error: interrupted before anything began.", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, traceback)


sys.excepthook = _show
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow's start-up notices, which drown the script's own lines
choose_backend()
