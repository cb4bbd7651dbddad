"""PolyNorm, its stabilised form, and PolyReLUNorm."""

import functools

import keras
import numpy as np
import pytest
from harness import call, check_layer, weight_gradients
from reference_values import TOLERANCE, as_float64, assert_close, load, value_and_gradients

from keras_polycom import PolyNorm, PolyReLUNorm, ops

STABILISED = {"coefficient_transform": "sigmoid", "bias_limit": 0.5, "output_scale": 0.5}
EVERY_ARGUMENT = {
    "order": 2,
    "axis": 1,
    "epsilon": 1e-3,
    "coefficients_initializer": [0.5, 0.3],
    "coefficients_regularizer": keras.regularizers.L2(1e-3),
    "coefficients_constraint": keras.constraints.MaxNorm(3.0),
    "bias_initializer": keras.initializers.Constant(0.1),
    "bias_regularizer": "l1",
    "bias_constraint": "non_neg",
    **STABILISED,
}
LAYERS = {
    "poly_norm": PolyNorm,
    "poly_norm_order_1": functools.partial(PolyNorm, order=1),
    "poly_norm_order_5": functools.partial(PolyNorm, order=5),
    "poly_norm_stabilised": functools.partial(PolyNorm, **STABILISED),
    "poly_norm_every_argument": functools.partial(PolyNorm, **EVERY_ARGUMENT),
    "poly_relu_norm": PolyReLUNorm,
    "poly_relu_norm_every_argument": functools.partial(PolyReLUNorm, **EVERY_ARGUMENT),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name, rng):
    compiled = name in ("poly_norm", "poly_relu_norm_every_argument")  # compiling takes longest
    check_layer(LAYERS[name], rng.standard_normal((2, 3, 5)).astype("float32"), compiled=compiled)


def test_fresh_values():
    """CASES 046: coefficients 1/3, bias 0; both are arguments."""
    layer = PolyNorm()
    assert_close(layer.coefficients, np.full(3, 1 / 3), 1e-7)
    assert_close(layer.bias, [0.0], 0)
    y = layer(keras.ops.array([[-2.0, -1, 0, 1, 2]]))
    assert_close(y, [[-0.4831, -0.1732, 0, 0.4289, 1.5057]], 1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["poly_norm_r3", "poly_norm_channels_first", "poly_relu_norm_r3"])
def test_reference(name, dtype):
    case = load(name)
    layer_class = PolyReLUNorm if "relu" in name else PolyNorm
    layer = layer_class(axis=case["meta"].get("axis", -1), epsilon=case["meta"]["epsilon"], dtype=dtype)
    layer.set_weights([case["in_a"], case["in_b"]])
    assert_close(call(layer, [case["in_x"].astype(dtype)]), case["out"], TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_stabilised_form_equals_motif(dtype):
    """Each expert of the grouped reference alone; two biases of it are beyond the limit, and get no gradient."""
    case = load("grouped_poly_norm_motif")
    experts = np.array(case["meta"]["expert_index"])
    for expert in np.unique(experts):
        layer = PolyNorm(epsilon=case["meta"]["epsilon"], **STABILISED, dtype=dtype)
        layer.set_weights([case["in_w"][expert], case["in_b"][expert : expert + 1]])
        rows = experts == expert
        x, upstream = case["in_x"][rows], case["upstream"][rows]
        out, gradients = value_and_gradients(lambda x, layer=layer: layer(x), {"x": x}, upstream, dtype)
        assert_close(out, case["out"][rows], TOLERANCE[dtype], f"out of expert {expert}")
        assert_close(gradients["x"], case["grad_x"][rows], TOLERANCE[dtype], f"gradient of expert {expert}")


@pytest.mark.parametrize("order", [2, 3, 4])
def test_stabilised_form_starts_at_one_over_order(order):
    layer = PolyNorm(order=order, **STABILISED)
    assert_close(layer.effective_coefficients, np.full(order, 1 / order), 1e-6)
    x = np.array([[1.0, -2.0, 3.0]], "float32")
    assert_close(layer(x), 0.5 * as_float64(PolyNorm(order=order)(x)), 1e-6)


@pytest.mark.parametrize(("bias", "expected"), [(0.3, 0.3), (0.9, 0.5), (-7.0, -0.5)])
def test_bias_limit(bias, expected):
    layer = PolyNorm(bias_limit=0.5, bias_initializer=keras.initializers.Constant(bias))
    assert_close(layer(np.zeros((1, 4), "float32")), np.full((1, 4), expected), 1e-7)
    assert_close(layer.bias, [bias], 1e-7)


@pytest.mark.parametrize("policy", ["mixed_float16", "float16"])
def test_half_precision_values(policy):
    """CASES 002."""
    layer = PolyNorm(dtype=policy)
    np.testing.assert_array_equal(as_float64(layer(np.full((2, 8), 50.0, "float16"))), 1.0)
    gradients = weight_gradients(layer, [np.full((2, 8), 50.0, "float16")])
    assert all(np.isfinite(gradient).all() for gradient in gradients.values())


def test_zero_rows_have_finite_gradients_everywhere():
    """CASES 009."""
    x = np.zeros((2, 16), "float32")
    out, gradients = value_and_gradients(PolyNorm(), {"inputs": x}, np.full((2, 16), 2.0, "float32"))
    np.testing.assert_array_equal(out, 0.0)
    assert_close(gradients["inputs"], np.full((2, 16), 2 * 333.333), 1e-4)
    assert all(np.isfinite(gradient).all() for gradient in weight_gradients(PolyNorm(), [x]).values())


@pytest.mark.parametrize("layer_class", [PolyNorm, PolyReLUNorm])
def test_rank_one_and_two(layer_class):
    """CASES 086."""
    x = np.array([1.0, -2.0, 3.0], "float32")
    assert_close(layer_class()(x), as_float64(layer_class()(x[None]))[0], 1e-6)


def test_time_distributed_equals_direct_application(rng):
    """CASES 086."""
    x = rng.standard_normal((2, 3, 4)).astype("float32")
    assert_close(keras.layers.TimeDistributed(PolyNorm())(x), PolyNorm()(x), 1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epsilon": -1}, "`epsilon` must be a finite number of at least 0. Received: epsilon=-1"),
        ({"epsilon": float("nan")}, "`epsilon` must be a finite"),
        ({"axis": "channels"}, "`axis` must be an integer. Received: axis='channels'"),
        ({"axis": [1, 2]}, "`axis` must be an integer"),
        (
            {"coefficient_transform": "softmax"},
            "`coefficient_transform` must be None or 'sigmoid'. Received: 'softmax'",
        ),
        ({"bias_limit": -0.5}, "`bias_limit` must be None or at least 0. Received: -0.5"),
        ({"order": 1, "coefficient_transform": "sigmoid"}, "no sigmoid reaches.*`coefficients_initializer`"),
        ({"order": 0, "coefficient_transform": "sigmoid"}, "`order` must be an integer of at least 1"),
    ],
    ids=lambda value: None if isinstance(value, str) else "-".join(map(str, value)),
)
@pytest.mark.parametrize("layer_class", [PolyNorm, PolyReLUNorm])
def test_bad_arguments(layer_class, settings, message):
    """CASES 064."""
    with pytest.raises(ValueError, match=message):
        layer_class(**settings)


def test_axis_the_input_does_not_have():
    with pytest.raises(ValueError, match=r"`axis` must lie in \[-2, 2\) for an input of rank 2. Received: axis=3"):
        PolyNorm(axis=3)(np.ones((2, 4), "float32"))
    with pytest.raises(ValueError, match="`axis` must lie in"):
        PolyNorm(axis=3).build((2, 4))
    with pytest.raises(ValueError, match="`axis` must lie in"):
        PolyNorm(axis=3)(keras.KerasTensor((2, 4)))


@pytest.mark.parametrize("bias", [np.float32(0.2), np.array([0.2], "float32")], ids=["scalar", "vector"])
def test_both_bias_shapes_load(bias):
    """CASES 046."""
    layer = PolyNorm()
    layer.bias.assign(np.reshape(bias, (1,)))
    expected = ops.poly_norm(np.ones((1, 3), "float32"), layer.coefficients, bias)
    assert_close(layer(np.ones((1, 3), "float32")), expected, 1e-7)
