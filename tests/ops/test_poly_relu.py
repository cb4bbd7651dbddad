"""poly_relu and poly_prelu: values, gradients, dtypes and errors."""

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_values import (
    EAGER_AND_COMPILED,
    TOLERANCE,
    as_float64,
    assert_close,
    cases,
    check_derivatives,
    gradients_of,
    inputs_of,
    load,
    value_and_gradients,
)

from keras_polycom import config, ops


def poly_relu(x, a, b):
    return ops.poly_relu(x, a, b)


def poly_prelu(x, a, b, alpha):
    return ops.poly_prelu(x, a, alpha, b)


REFERENCE = {**dict.fromkeys(cases("poly_relu_r"), poly_relu), "poly_prelu_r3": poly_prelu}


@pytest.mark.parametrize("compiled", EAGER_AND_COMPILED)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", REFERENCE)
def test_reference(name, dtype, compiled):
    case = load(name)
    out, gradients = value_and_gradients(REFERENCE[name], inputs_of(case), case["upstream"], dtype, compiled)
    assert_close(out, case["out"], TOLERANCE[dtype], "out")
    for key, expected in gradients_of(case).items():
        assert_close(gradients[key], expected, TOLERANCE[dtype], f"gradient of {key}")


def test_unselected_powers_do_not_overflow_in_float16():
    """CASES 002: 50^3 is beyond float16, the result 42517 is not; at 100 the result is, and inf is honest."""
    weights = {"a": np.full(3, 1 / 3, "float32"), "b": np.zeros(1, "float32")}
    x = np.array([[50.0, -50.0, 0.0]], "float16")
    out, gradients = value_and_gradients(poly_relu, {"x": x, **weights}, np.ones((1, 3), "float16"))
    assert_close(out, [[42517, 0, 0]], 1e-3)
    assert_close(gradients["x"], [[(1 + 2 * 50 + 3 * 2500) / 3, 0, 0]], 1e-3)
    beyond = ops.poly_relu(keras.ops.full((1, 2), 100.0, dtype="float16"), weights["a"])
    assert np.isposinf(as_float64(beyond)).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_float_dtype_is_kept(dtype):
    y = ops.poly_relu(keras.ops.ones((2, 4), dtype), np.array([1 / 3, 1 / 3], "float32"))
    assert keras.backend.standardize_dtype(y.dtype) == dtype


@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool"])
def test_integers_become_float32(dtype):
    y = ops.poly_relu(keras.ops.convert_to_tensor(np.array([0, 1, 2]).astype(dtype)), [0.5, 0.25])
    assert keras.backend.standardize_dtype(y.dtype) == "float32"
    assert_close(y, [0.0, 0.75, 0.75 if dtype == "bool" else 2.0], 1e-6)


def test_complex_is_refused():
    with pytest.raises(TypeError, match="real tensor.*complex64"):
        ops.poly_relu(keras.ops.convert_to_tensor(np.ones((2, 3), "complex64")), [1.0])


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)], ids=str)
def test_empty(shape):
    assert tuple(ops.poly_relu(np.zeros(shape, "float32"), [0.5, 0.25]).shape) == shape


def test_unknown_dimensions():
    y = ops.poly_relu(keras.KerasTensor((None, None, 3)), keras.ops.array([0.5, 0.25]))
    assert tuple(y.shape) == (None, None, 3)


@pytest.mark.parametrize("coefficients", [[[1.0]], [], 1.0], ids=["matrix", "empty", "scalar"])
def test_bad_coefficients(coefficients):
    with pytest.raises(ValueError, match=r"`coefficients` must be a vector \(order,\)"):
        ops.poly_relu([1.0], coefficients)


def test_bad_bias():
    with pytest.raises(ValueError, match=r"`bias` must be a scalar or have shape \(1,\).*\(3,\)"):
        ops.poly_relu([1.0], [1.0], bias=[1.0, 2.0, 3.0])


def away_from_the_kink(rng, *shape):
    x = rng.standard_normal(shape)
    return x + 0.1 * np.sign(x)


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
def test_derivatives_of_poly_relu(order, rng):
    inputs = {"x": away_from_the_kink(rng, 2, 5), "a": np.linspace(0.2, 0.9, order), "b": np.array([0.1])}
    check_derivatives(poly_relu, inputs)


def test_derivatives_of_poly_prelu(rng):
    inputs = {
        "x": away_from_the_kink(rng, 2, 5),
        "a": np.array([0.6, 0.3, 0.1]),
        "b": np.array([0.1]),
        "alpha": np.array([0.25]),
    }
    check_derivatives(poly_prelu, inputs)


def test_gradient_of_large_values_in_float16():
    """CASES 002: the square of 100 fits into float16, its cube does not, nor does the derivative of the cube's sum."""
    inputs = {"x": np.array([[100.0, -100.0, 1.0]]), "a": np.full(3, 1 / 3), "b": np.zeros(1)}
    function = lambda x, a, b: poly_relu(x, keras.ops.cast(a, "float32"), keras.ops.cast(b, "float32"))  # noqa: E731
    _, gradients = value_and_gradients(function, inputs, np.ones((1, 3)), "float16")
    assert_close(gradients["x"], [[(1 + 200 + 30000) / 3, 0, 2]], 1e-3)


def test_gradient_at_zero_is_zero():
    """The rectifier's convention of Keras, and never NaN."""
    inputs = {"x": np.zeros((1, 3), "float32"), "a": np.array([0.6, 0.3], "float32"), "b": np.zeros(1, "float32")}
    _, gradients = value_and_gradients(poly_relu, inputs, np.ones((1, 3), "float32"))
    np.testing.assert_array_equal(gradients["x"], 0.0)


@settings(max_examples=25, deadline=None)
@given(
    coefficients=st.lists(st.floats(-2, 2), min_size=4, max_size=4),
    row=st.lists(st.floats(-3, 3), min_size=4, max_size=4),
)
def test_equals_polyval_of_the_rectified(coefficients, row):
    expected = np.polyval([*coefficients[::-1], 0.5], np.maximum(row, 0))
    y = ops.poly_relu(np.array(row), np.array(coefficients), 0.5)
    assert_close(y, expected, 1e-12)


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="the function transformations of JAX")
def test_jax_transformations(rng):
    import jax

    a, x, v = np.array([0.6, 0.3, 0.1]), away_from_the_kink(rng, 3, 5), rng.standard_normal((3, 5))
    assert_close(jax.vmap(lambda row: ops.poly_relu(row, a))(x), ops.poly_relu(x, a), 1e-12)
    hessian = jax.hessian(lambda row: jax.numpy.sum(ops.poly_relu(row, a)))(x[0])
    expected = np.diag(np.where(x[0] > 0, 2 * 0.3 + 6 * 0.1 * x[0], 0))
    assert_close(hessian, expected, 1e-12)
    with config.fast_roads_scope("off"):
        forward = jax.jvp(lambda x: ops.poly_relu(x, a), (x,), (v,))[1]
    slope = np.where(x > 0, 0.6 + 2 * 0.3 * x + 3 * 0.1 * x**2, 0)
    assert_close(forward, slope * v, 1e-12)
