"""GroupedPolyNorm: one set of coefficients per expert."""

import functools

import keras
import numpy as np
import pytest
from harness import call, check_compiled_training, check_layer, compiled_call, weight_gradients
from reference_values import (
    EAGER_AND_COMPILED,
    TOLERANCE,
    as_float64,
    assert_close,
    load,
    value_and_gradients,
)

from keras_polycom import GroupedPolyNorm, PolyNorm, ops

STABILISED = {"coefficient_transform": "sigmoid", "bias_limit": 0.5, "output_scale": 0.5}
EVERY_ARGUMENT = {
    "num_groups": 3,
    "order": 2,
    "axis": 2,
    "epsilon": 1e-3,
    "coefficients_initializer": [0.5, 0.3],
    "coefficients_regularizer": "l2",
    "coefficients_constraint": keras.constraints.MaxNorm(3.0),
    "bias_initializer": keras.initializers.Constant(0.1),
    "bias_regularizer": "l1",
    "bias_constraint": "non_neg",
    **STABILISED,
}


@pytest.mark.parametrize(
    ("make", "index"),
    [
        (functools.partial(GroupedPolyNorm, 3), np.array([[0, 2, 1], [1, 1, 0]], "int32")),
        (functools.partial(GroupedPolyNorm, 2), np.array([1, 0], "int64")),
        (functools.partial(GroupedPolyNorm, **EVERY_ARGUMENT), np.array([[0, 2, 1], [1, 1, 0]], "int32")),
    ],
    ids=["per_token", "per_buffer", "every_argument"],
)
def test_layer(make, index, rng):
    check_layer(make, rng.standard_normal((2, 3, 5)).astype("float32"), index, dynamic_shape=(3, 5))


def test_single_group_without_index(rng):
    x = rng.standard_normal((2, 3, 5)).astype("float32")
    check_layer(functools.partial(GroupedPolyNorm, 1), x)
    expected = GroupedPolyNorm(1)(x, np.zeros((2, 3), "int32"))
    assert_close(GroupedPolyNorm(1)(x), expected, 1e-6)
    assert_close(GroupedPolyNorm(1)(x), PolyNorm()(x), 1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_motif_reference(dtype):
    case = load("grouped_poly_norm_motif")
    layer = GroupedPolyNorm(5, epsilon=case["meta"]["epsilon"], **STABILISED, dtype=dtype)
    layer.set_weights([case["in_w"], case["in_b"]])
    index = np.array(case["meta"]["expert_index"])
    assert_close(call(layer, [case["in_x"].astype(dtype), index]), case["out"], TOLERANCE[dtype])


@pytest.mark.parametrize("shape", [(4, 6), (2, 3, 6)], ids=str)
def test_index_shapes(shape, rng):
    layer = GroupedPolyNorm(3)
    layer.set_weights([rng.uniform(0.2, 0.9, (3, 3)), rng.standard_normal(3)])
    x = rng.standard_normal(shape).astype("float32")
    for axes in range(1, len(shape)):
        index = rng.integers(0, 3, shape[:axes])
        y = layer(x, index)
        spread = np.broadcast_to(index.reshape(index.shape + (1,) * (len(shape) - 1 - axes)), shape[:-1])
        assert_close(y, layer(x, np.ascontiguousarray(spread)), 1e-6)


@pytest.mark.parametrize("wrong", [3, -1], ids=["num_groups", "minus_one"])
def test_out_of_range_is_an_error_where_it_can_be_seen(wrong):
    """CASES 022."""
    x = np.ones((2, 4), "float32")
    with pytest.raises(ValueError, match=rf"`group_index` must lie in \[0, 3\). Received: {wrong} among 2 values"):
        GroupedPolyNorm(3)(x, keras.ops.array([0, wrong]))


def test_out_of_range_is_clipped_in_compiled_functions(rng):
    """CASES 022: never a wrapped negative index."""
    layer = GroupedPolyNorm(3)
    layer.set_weights([rng.uniform(0.2, 0.9, (3, 3)), np.array([0.1, 0.2, 0.3])])
    x = rng.standard_normal((4, 5)).astype("float32")
    wrong, nearest = np.array([-1, 3, 99, -50], "int32"), np.array([0, 2, 2, 0], "int32")
    assert_close(compiled_call(layer, [x, wrong]), call(layer, [x, nearest]), 1e-6)


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        (None, ValueError, r"With num_groups=3, `group_index` must say .*inputs of shape \(4, 5\)"),
        (np.zeros(4, "float32"), TypeError, "`group_index` must be of an integer dtype. Received: dtype=float32"),
        (np.zeros(3, "int32"), ValueError, r"group_index of shape \(3,\), x of shape \(4, 5\)"),
        (np.zeros(5, "int32"), ValueError, r"group_index of shape \(5,\), x of shape \(4, 5\)"),
        (np.zeros((4, 5), "int32"), ValueError, "in front of `axis`"),
    ],
    ids=["missing", "float", "too_few", "too_many", "too_deep"],
)
def test_bad_index(index, error, message):
    """CASES 022."""
    with pytest.raises(error, match=message):
        GroupedPolyNorm(3)(np.ones((4, 5), "float32"), index)


@pytest.mark.parametrize("num_groups", [0, -2, 2.5, True, None])
def test_bad_num_groups(num_groups):
    """CASES 064."""
    with pytest.raises(ValueError, match="`num_groups` must be an integer of at least 1. Received: num_groups="):
        GroupedPolyNorm(num_groups)


def test_dict_inputs_train(rng):
    """CASES 094: extra call arguments break compiled training, or give other values there."""
    data = {
        "x": rng.standard_normal((7, 4, 6)).astype("float32"),
        "ids": rng.integers(0, 3, (7, 4)).astype("int32"),
    }
    targets = rng.standard_normal((7, 4, 2))

    def make():
        x, ids = keras.Input((4, 6), name="x"), keras.Input((4,), dtype="int32", name="ids")
        return keras.Model({"x": x, "ids": ids}, keras.layers.Dense(2)(GroupedPolyNorm(3)(x, ids)))

    # inductor wants a C++ compiler and most of a minute; the trace itself is tested by the harness
    jit_compile = "auto" if keras.backend.backend() == "torch" else True
    trained = check_compiled_training(make, data, targets, batch_size=4, loss="mse", jit_compile=jit_compile)
    grouped, untrained = (
        next(layer for layer in model.layers if isinstance(layer, GroupedPolyNorm)) for model in (trained, make())
    )
    assert (as_float64(grouped.coefficients) != as_float64(untrained.coefficients)).all()


def test_padding_rows_of_expert_buffers(rng):
    """CASES 090: 3 of 8 rows are real, the padding holds 1e30."""
    layer = GroupedPolyNorm(2)
    layer.set_weights([rng.uniform(0.2, 0.9, (2, 3)), np.array([0.1, -0.2])])
    real = rng.standard_normal((2, 3, 6)).astype("float32")
    buffers = np.full((2, 8, 6), 1e30, "float32")
    buffers[:, :3] = real
    index = np.array([0, 1])
    y = as_float64(layer(buffers, index))
    assert_close(y[:, :3], layer(real, index), 1e-6)
    assert np.isfinite(y).all()
    buffers[:, 3:] = 0.0
    assert_close(
        as_float64(layer(buffers, index))[:, 3:], np.array([0.1, -0.2])[:, None, None] * np.ones((2, 5, 6)), 1e-7
    )
    assert all(np.isfinite(g).all() for g in weight_gradients(layer, [buffers, index]).values())


@pytest.mark.parametrize("compiled", EAGER_AND_COMPILED)
def test_gradients_at_rows_of_zeros_and_next_to_huge_padding(compiled, rng):
    """CASES 009 and 090: at zero only the linear term pulls, by a_1 / sqrt(epsilon); padding of 1e30 has no say."""
    x = rng.standard_normal((2, 4, 6)).astype("float32")
    x[0, 1] = x[1] = 0.0
    coefficients = np.array([[0.3, 0.5, 0.2], [0.7, 0.1, 0.4]], "float32")
    upstream = rng.standard_normal(x.shape).astype("float32")

    def gradient(x, upstream):
        inputs = {"x": x, "a": coefficients, "b": np.zeros(2, "float32"), "index": np.array([0, 1])}
        function = lambda x, a, b, index: ops.grouped_poly_norm(x, a, b, index)  # noqa: E731
        return value_and_gradients(function, inputs, upstream, compiled=compiled)[1]

    alone = gradient(x, upstream)
    for group, rows in ((0, [1]), (1, [0, 1, 2, 3])):
        expected = upstream[group, rows] * coefficients[group, 0] / 1e-3
        np.testing.assert_allclose(alone["x"][group, rows], expected, rtol=1e-5)
    assert all(np.isfinite(g).all() for g in alone.values())
    padded = np.concatenate([x, np.full((2, 2, 6), 1e30, "float32")], axis=1)
    beside = gradient(padded, np.pad(upstream, ((0, 0), (0, 2), (0, 0))))
    np.testing.assert_allclose(beside["x"][:, :4], alone["x"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(beside["a"], alone["a"], rtol=1e-5, atol=1e-6)
    assert np.all(beside["x"][:, 4:] == 0)


def test_groups_without_rows_get_zero_gradients():
    gradients = weight_gradients(
        GroupedPolyNorm(3, name="g"), [np.array([[1.0, 2, -1]] * 2, "float32"), np.array([1, 1])]
    )
    for path, gradient in gradients.items():
        assert np.all(gradient[[0, 2]] == 0), path
        assert np.any(gradient[1] != 0), path
