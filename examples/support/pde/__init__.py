"""Second derivatives of a network by its input, by the means of the backend in use: one file each, one function."""

import importlib

import keras

from keras_polycom import config

_backend = importlib.import_module(f"{__name__}.{keras.backend.backend()}")

JIT_COMPILE = _backend.JIT_COMPILE  # the argument of keras.Model.compile with which training steps are quickest


def value_and_second_derivative(function, x):
    """The values of a function of one number and its exact second derivative.

    Both can be differentiated by the weights, and compiled. What is differentiated are the formulas of the ops, not
    their faster versions, which are made for a single derivative in reverse mode.

    Args:
        function: from (points, 1) to (points, 1). Rows must not see each other.
        x: tensor (points, 1).

    Returns:
        Two tensors (points, 1).
    """
    with config.fast_roads_scope("off"):
        return _backend.value_and_second_derivative(function, x)
