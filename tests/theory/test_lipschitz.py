"""Theorem 4.2: N = floor(L / (2 error)) + 1 groups meet an L-Lipschitz function within the error, everywhere."""

import math

import keras
import numpy as np
import pytest
from reference_values import as_float64
from tracing import traced

from keras_polycom import theory

FUNCTIONS = {
    "line": (lambda x: 3 * x - 1, 3.0),
    "cosine": (lambda x: np.cos(math.pi * (4 * x - 2)), 4 * math.pi),
    "zigzag": (lambda x: np.abs(((5 * x) % 1) - 0.5), 5.0),
    "root": (lambda x: np.sqrt(x + 0.01), 5.0),
    "constant": (lambda x: 0 * x + 2.5, 0.0),
}


def largest_error(model, function, groups, dtype):
    """On a fine grid that holds the steps, their neighbours in floating point, and the ends of the interval."""
    steps = (np.arange(groups + 1) / groups).astype(dtype)
    near = [np.nextafter(steps, dtype(2)), np.nextafter(steps, dtype(-1))]
    grid = np.clip(np.concatenate([np.linspace(0, 1, 2001), steps, *near]), 0, 1).astype(dtype)[:, None]
    out = as_float64(traced(model)(keras.ops.convert_to_tensor(grid)))
    return np.abs(out - function(grid.astype("float64"))).max()


@pytest.mark.parametrize(
    ("name", "error", "norm_size"),
    [(name, error, 2) for name in FUNCTIONS for error in (0.5, 0.03)] + [("zigzag", 0.1, 3), ("zigzag", 0.1, 8)],
)
def test_bound(name, error, norm_size):
    function, lipschitz = FUNCTIONS[name]
    model = theory.lipschitz_network(function, lipschitz, error, norm_size=norm_size, dtype="float64")
    groups = math.floor(lipschitz / (2 * error)) + 1
    assert model.layers[0].units == groups * norm_size
    assert model.layers[1].norm_size == norm_size
    assert largest_error(model, function, groups, np.float64) < error


@pytest.mark.parametrize("name", ["line", "cosine"])
def test_bound_in_float32(name):
    function, lipschitz = FUNCTIONS[name]
    model = theory.lipschitz_network(function, lipschitz, error=0.05, dtype="float32")
    assert largest_error(model, function, model.layers[0].units // 2, np.float32) < 0.05


def test_the_bound_is_nearly_met():
    """A line of slope L is off by L / (2N): the number of groups is not larger than it must be."""
    model = theory.lipschitz_network(lambda x: 3 * x, 3.0, error=0.1, dtype="float64")
    groups = model.layers[0].units // 2
    assert groups == 16
    assert largest_error(model, lambda x: 3 * x, groups, np.float64) == pytest.approx(3 / 32, rel=1e-6)


@pytest.mark.parametrize("error", [0.05, 0.15, 0.3])
def test_number_of_groups_where_the_division_rounds(error):
    """0.3 / (2 * 0.05) is 2.9999999999999996 in floating point, and 3 groups would leave an error of 0.05."""
    model = theory.lipschitz_network(lambda x: 0.3 * x, 0.3, error=error, dtype="float64")
    assert 0.3 / (model.layers[0].units // 2 * 2) < error


@pytest.mark.parametrize("arguments", [(-1.0, 0.1), (1.0, 0.0), (math.inf, 0.1), (1.0, math.nan)], ids=str)
def test_arguments_out_of_range(arguments):
    with pytest.raises(ValueError, match="`lipschitz` must be a finite number of at least 0 and `error` one above 0"):
        theory.lipschitz_network(math.sin, *arguments)
