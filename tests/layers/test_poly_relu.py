"""PolyReLU and PolyPReLU."""

import functools

import keras
import numpy as np
import pytest
from harness import call, check_layer
from reference_values import as_float64, assert_close, load

import keras_polycom
from keras_polycom import PolyPReLU, PolyReLU

WEIGHT_ARGUMENTS = {
    "coefficients_initializer": [0.5, 0.3],
    "coefficients_regularizer": keras.regularizers.L2(1e-3),
    "coefficients_constraint": keras.constraints.MaxNorm(3.0),
    "bias_initializer": keras.initializers.Constant(0.1),
    "bias_regularizer": "l1",
    "bias_constraint": "non_neg",
}
ALPHA_ARGUMENTS = {"alpha_initializer": "ones", "alpha_regularizer": "l2", "alpha_constraint": "non_neg"}
LAYERS = {
    "poly_relu": PolyReLU,
    "poly_relu_order_1": functools.partial(PolyReLU, order=1),
    "poly_relu_every_argument": functools.partial(PolyReLU, order=2, **WEIGHT_ARGUMENTS),
    "poly_prelu": PolyPReLU,
    "poly_prelu_every_argument": functools.partial(PolyPReLU, order=2, **WEIGHT_ARGUMENTS, **ALPHA_ARGUMENTS),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name, rng):
    compiled = name in ("poly_relu", "poly_prelu_every_argument")  # compiling takes longest
    check_layer(LAYERS[name], rng.standard_normal((2, 3, 5)).astype("float32"), compiled=compiled)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["poly_relu_r3", "poly_prelu_r3"])
def test_reference(name, dtype):
    case = load(name)
    layer = {"poly_relu_r3": PolyReLU, "poly_prelu_r3": PolyPReLU}[name](dtype=dtype)
    layer.set_weights([case[f"in_{key}"] for key in ("a", "b", "alpha") if f"in_{key}" in case])
    y = call(layer, [case["in_x"].astype(dtype)])
    assert keras.backend.standardize_dtype(y.dtype) == dtype
    assert_close(y, case["out"], 1e-5 if dtype == "float32" else 1e-10)


def test_fresh_weights():
    """CASES 046: ports start at other values."""
    layer = PolyPReLU()
    assert_close(layer.coefficients, np.full(3, 1 / 3), 1e-7)
    assert_close(layer.bias, [0.0], 0)
    assert_close(layer.alpha, [0.25], 0)
    y = PolyReLU()(keras.ops.array([-2.0, -1, 0, 1, 2]))
    assert_close(y, [0, 0, 0, 1, 14 / 3], 1e-6)


def test_values_given_as_initializer_ascend():
    layer = PolyReLU(order=3, coefficients_initializer=[0.1, 0.2, 0.3])
    assert_close(layer.coefficients, [0.1, 0.2, 0.3], 1e-7)
    assert_close(layer(keras.ops.array([2.0])), [0.1 * 2 + 0.2 * 4 + 0.3 * 8], 1e-6)


def test_mixed_float16_uses_uncast_coefficients():
    """CASES 002 and 019: 1/3 in float16 is off by 1e-4, and 50^3 overflows it."""
    layer = PolyReLU(dtype="mixed_float16")
    assert_close(layer.coefficients, np.full(3, 1 / 3), 1e-6)
    y = layer(np.array([[50.0, 100.0, -3.0]], "float16"))
    assert keras.backend.standardize_dtype(y.dtype) == "float16"
    assert_close(y[0, 0], 42517, 1e-3)
    assert np.isposinf(as_float64(y)[0, 1])
    assert as_float64(y)[0, 2] == 0


def test_layer_policy_wins_over_the_global_one(global_policy):
    """CASES 019."""
    global_policy("mixed_bfloat16")
    assert PolyReLU().compute_dtype == "bfloat16"
    own = PolyReLU(dtype="float32")
    assert own.get_config()["dtype"]["config"]["name"] == "float32"
    assert keras.backend.standardize_dtype(own(keras.ops.ones((1, 2))).dtype) == "float32"


@pytest.mark.parametrize("layer_class", [PolyReLU, PolyPReLU, keras_polycom.PolyNorm, keras_polycom.PolyReLUNorm])
@pytest.mark.parametrize("order", [0, -1, 2.5, True, "3"])
def test_bad_order(layer_class, order):
    """CASES 064."""
    with pytest.raises(ValueError, match="`order` must be an integer of at least 1. Received: order="):
        layer_class(order=order)


@pytest.mark.parametrize("values", [[1.0], [1.0, 2.0, 3.0, 4.0], [1.0, 2.0, float("nan")]], ids=["few", "many", "nan"])
def test_bad_initial_values(values):
    """CASES 064."""
    with pytest.raises(ValueError, match=r"`coefficients_initializer` .* must hold finite numbers of the shape \(3,\)"):
        PolyReLU(order=3, coefficients_initializer=values)


def test_rank_one_and_scalars():
    """CASES 086."""
    assert_close(PolyReLU(order=1)(keras.ops.array([-1.0, 2.0])), [0, 2], 1e-6)
    assert tuple(PolyReLU()(keras.ops.array(2.0)).shape) == ()


def test_regularizers_and_constraints_act():
    layer = PolyReLU(order=2, coefficients_initializer=[-0.5, 2.0], coefficients_regularizer="l1")
    layer(keras.ops.ones((1, 2)))
    assert_close(sum(layer.losses), 0.01 * 2.5, 1e-6)
    limited = PolyReLU(order=2, coefficients_constraint="non_neg")
    assert limited.coefficients.constraint is not None
