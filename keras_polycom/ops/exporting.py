"""Whether a model is being written to a format of plain operations, which knows no hand-written derivatives."""

import contextlib
import inspect
import sys

import keras

_KERAS_EXPORT = inspect.unwrap(keras.Model.export).__code__

_in_scope = False


@contextlib.contextmanager
def exporting_scope():
    """A `with` block inside which the ops are traced as plain operations."""
    global _in_scope
    former, _in_scope = _in_scope, True
    try:
        yield
    finally:
        _in_scope = former


def is_exporting():
    """Whether the call comes out of `exporting_scope`, or of `model.export` to any format but a SavedModel.

    Keras says nowhere that it exports: its method is looked for among the callers.
    """
    if _in_scope or keras.backend.backend() == "torch":  # which cannot compile the search
        return _in_scope
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _KERAS_EXPORT:
            return frame.f_locals.get("format") != "tf_saved_model"  # which keeps compiled halves as they are
        frame = frame.f_back
    return False
