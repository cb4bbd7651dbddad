"""poly_com: both types of composition, with any function."""

import keras
import numpy as np
import pytest
from reference_values import as_float64, assert_close, check_derivatives

from keras_polycom import ops

X = np.array([[-2.0, -0.5, 0.0, 0.7, 1.5]])
A = np.array([0.6, -0.3, 0.1])


@pytest.mark.parametrize("function", [keras.ops.sin, ops.gelu], ids=["sin", "gelu"])
def test_type_one(function):
    f = as_float64(function(keras.ops.convert_to_tensor(X)))
    expected = 0.2 + 0.6 * f - 0.3 * f**2 + 0.1 * f**3
    assert_close(ops.poly_com(X, function, A, 0.2), expected, 1e-12)


@pytest.mark.parametrize("function", [keras.ops.sin, ops.gelu], ids=["sin", "gelu"])
def test_type_two(function):
    powers = [as_float64(function(keras.ops.convert_to_tensor(X**i))) for i in (1, 2, 3)]
    expected = 0.2 + 0.6 * powers[0] - 0.3 * powers[1] + 0.1 * powers[2]
    assert_close(ops.poly_com(X, function, A, 0.2, power_first=True), expected, 1e-12)


@pytest.mark.parametrize("power_first", [False, True], ids=["type_1", "type_2"])
def test_rectifier_gives_poly_relu_and_its_type_two(power_first):
    positive = np.maximum(X, 0)
    expected = 0.6 * positive - 0.3 * (X**2 if power_first else positive**2) + 0.1 * positive**3
    assert_close(ops.poly_com(X, keras.ops.relu, A, power_first=power_first), expected, 1e-12)


@pytest.mark.parametrize("power_first", [False, True], ids=["type_1", "type_2"])
def test_derivatives(power_first):
    def function(x, a, b):
        return ops.poly_com(x, ops.ACTIVATION_FUNCTIONS["tanh"], a, b, power_first=power_first)

    check_derivatives(function, {"x": X, "a": A, "b": np.array([0.2])})


@pytest.mark.parametrize("power_first", [False, True], ids=["type_1", "type_2"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_float_dtype_is_kept(dtype, power_first):
    y = ops.poly_com(keras.ops.ones((2, 3), dtype), keras.ops.tanh, [0.5, 0.5], power_first=power_first)
    assert keras.backend.standardize_dtype(y.dtype) == dtype


@pytest.mark.parametrize("power_first", [False, True], ids=["type_1", "type_2"])
def test_unknown_dimensions(power_first):
    y = ops.poly_com(keras.KerasTensor((None, 3)), keras.ops.tanh, keras.ops.array([0.5, 0.5]), None, power_first)
    assert tuple(y.shape) == (None, 3)


def test_what_is_not_a_function_is_refused():
    with pytest.raises(TypeError, match="`function` must be callable.*'tanh'"):
        ops.poly_com(X, "tanh", A)
