"""The faster versions give the formulas' numbers: values, first and second derivatives, at every magnitude."""

import keras
import numpy as np
import pytest
from reference_values import as_float64, assert_close, gradients_of_gradients, value_and_gradients

from keras_polycom import config, ops
from keras_polycom.ops import fused

ACTIVATIONS = ("gelu", "silu", "relu2", "leaky_relu")


def _normal(*shape, seed=0):
    return np.asarray(np.random.default_rng([seed, *shape]).standard_normal(shape))


def _polynomial(order=3):
    return {"coefficients": np.linspace(0.7, -0.4, order), "bias": np.array([0.1])}


def _poly_norm_along(axis):
    return lambda x, coefficients, bias: ops.poly_norm(x, coefficients, bias, axis=axis)


def _grouped(x, coefficients, bias, group_index):
    return ops.grouped_poly_norm(x, coefficients, bias, group_index)


def _runs(size, **options):
    return lambda x, gamma=None, beta=None: ops.parallel_layer_norm(x, size, gamma, beta, **options)


def _mixture(op):
    return lambda **inputs: op(**inputs, activations=ACTIVATIONS)


def _branches(*shape, **weights):
    y, z = _normal(*shape), _normal(*shape, seed=1)
    return {"y": y, "z": z, **{name: _normal(*shape[:-1], n, seed=2) for name, n in weights.items()}}


AFFINE = {"gamma": _normal(24), "beta": _normal(24, seed=1)}
GROUPS = {"coefficients": _normal(3, 2), "bias": _normal(3), "group_index": np.array([2, 0, 1, 1, 2], "int32")}
CASES = {
    "poly_relu": (ops.poly_relu, {"x": _normal(5, 24), **_polynomial()}),
    "poly_relu_order_1": (ops.poly_relu, {"x": _normal(5, 24), **_polynomial(1)}),
    "poly_relu_scalar": (ops.poly_relu, {"x": _normal(), **_polynomial()}),
    "poly_norm": (ops.poly_norm, {"x": _normal(5, 24), **_polynomial()}),
    "poly_norm_order_1": (ops.poly_norm, {"x": _normal(5, 23), **_polynomial(1)}),
    "poly_norm_order_4": (ops.poly_norm, {"x": _normal(2, 3, 7), **_polynomial(4)}),
    "poly_norm_vector": (ops.poly_norm, {"x": _normal(11), **_polynomial()}),
    "poly_norm_channels_first": (_poly_norm_along(1), {"x": _normal(2, 6, 4, 3), **_polynomial()}),
    "poly_norm_first_axis": (_poly_norm_along(0), {"x": _normal(6, 4), **_polynomial()}),
    "poly_norm_no_bias": (ops.poly_norm, {"x": _normal(5, 24), "coefficients": np.array([0.5, 0.2])}),
    "grouped_poly_norm": (_grouped, {"x": _normal(5, 3, 8), **GROUPS}),
    "pln_8": (_runs(8), {"x": _normal(2, 3, 24), **AFFINE}),
    "pln_2": (_runs(2), {"x": _normal(5, 24), **AFFINE}),
    "pln_many_rows": (_runs(2), {"x": _normal(19, 6), "gamma": _normal(6), "beta": _normal(6)}),
    "pln_3_no_affine": (_runs(3), {"x": _normal(5, 24)}),
    "pln_whole_row": (_runs(40), {"x": _normal(3, 80)}),
    "pls_4": (_runs(4, center=False), {"x": _normal(5, 24), **AFFINE}),
    "mix_activations": (_mixture(ops.mix_activations), {"h": _normal(5, 24), "weights": _normal(5, 4)}),
    "mix_activations_shared_weights": (_mixture(ops.mix_activations), {"h": _normal(2, 3, 8), "weights": _normal(4)}),
    "mix_one_sided": (_mixture(ops.mix_one_sided), _branches(2, 3, 8, weights=4)),
    "mix_bi_sided": (_mixture(ops.mix_bi_sided), _branches(5, 8, gate_weights=4, up_weights=4)),
    "mix_quadratic": (_mixture(ops.mix_quadratic), _branches(5, 8, weights=10)),
}
# The mixtures have a faster version on some backends only.
CASES = {
    name: case
    for name, case in CASES.items()
    if not name.startswith("mix") or hasattr(fused._backend_module, name.removesuffix("_shared_weights"))
}
MAGNITUDES = {"tiny": 1e-30, "small": 1e-3, "large": 1e7, "huge": 1e30, "largest": 8e37}


def _upstream(function, inputs):
    first = inputs["x"] if "x" in inputs else inputs.get("h", inputs.get("y"))
    return _normal(*first.shape, seed=9)


def _on_both_roads(compute):
    with config.fast_roads_scope("on"):
        fast = compute()
    with config.fast_roads_scope("off"):
        return fast, compute()


needs_a_fast_road = pytest.mark.skipif(fused._backend_module is None, reason="the backend has no faster versions")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
@needs_a_fast_road
def test_values_and_gradients_are_the_formulas(name, dtype):
    function, inputs = CASES[name]
    (fast, fast_gradients), (plain, plain_gradients) = _on_both_roads(
        lambda: value_and_gradients(function, inputs, _upstream(function, inputs), dtype)
    )
    tolerance = {"float32": 1e-5, "float64": 1e-11}[dtype]
    assert_close(fast, plain, tolerance, "value")
    for key in plain_gradients:
        assert_close(fast_gradients[key], plain_gradients[key], tolerance, f"gradient of {key}")


@pytest.mark.parametrize("name", CASES)
@needs_a_fast_road
def test_second_derivatives_are_the_formulas(name):
    function, inputs = CASES[name]
    floating = {key: value for key, value in inputs.items() if value.dtype == "float64"}
    directions = {key: _normal(*value.shape, seed=7) for key, value in floating.items()}
    fast, plain = _on_both_roads(
        lambda: gradients_of_gradients(function, inputs, _upstream(function, inputs), directions)
    )
    for key in plain:
        assert_close(fast[key], plain[key], 1e-9, f"second derivative with respect to {key}")


def _slope(function, direction):
    """The gradient of sum(direction * function(x)), as a function of x that can be differentiated again."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return jax.grad(lambda x: (direction * function(x)).sum())
    if backend == "tensorflow":
        import tensorflow as tf

        def slope(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                total = tf.reduce_sum(direction * function(x))
            return tape.gradient(total, x)

        return slope
    import torch

    def slope(x):
        x = x if x.requires_grad else x.detach().requires_grad_()
        return torch.autograd.grad((direction * function(x)).sum(), x, create_graph=True)[0]

    return slope


@pytest.mark.parametrize(
    "name", [n for n in ("poly_relu", "poly_norm", "grouped_poly_norm", "pln_8", "mix_activations") if n in CASES]
)
@needs_a_fast_road
def test_third_derivatives_are_the_formulas(name):
    """A gradient step on a second derivative, as physics-informed networks take it, once ended TensorFlow's process."""
    function, inputs = CASES[name]
    key = "h" if "h" in inputs else "x"
    others = {k: keras.ops.convert_to_tensor(v, dtype=str(v.dtype)) for k, v in inputs.items() if k != key}
    x = keras.ops.convert_to_tensor(inputs[key], dtype="float64")

    def third_derivative():
        nested = lambda x: function(**{key: x}, **others)  # noqa: E731
        for seed in range(3):
            nested = _slope(nested, keras.ops.convert_to_tensor(_normal(*x.shape, seed=seed), dtype="float64"))
        if keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            nested = tf.function(nested, autograph=False)
        return as_float64(nested(x))

    fast, plain = _on_both_roads(third_derivative)
    assert_close(fast, plain, 1e-9, "third derivative")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", [n for n in ("poly_relu", "poly_norm", "pln_8", "mix_quadratic") if n in CASES])
@needs_a_fast_road
def test_half_precision_is_as_near_to_the_truth_as_the_formula(name, dtype):
    function, inputs = CASES[name]
    rounded = {key: as_float64(keras.ops.cast(value, dtype)) for key, value in inputs.items()}
    upstream = as_float64(keras.ops.cast(_upstream(function, inputs), dtype))
    (fast, fast_gradients), (plain, plain_gradients) = _on_both_roads(
        lambda: value_and_gradients(function, rounded, upstream, dtype)
    )
    with config.fast_roads_scope("off"):
        truth, true_gradients = value_and_gradients(function, rounded, upstream, "float64")

    def compare(fast, plain, truth, what):
        error = np.abs(plain - truth).max()
        resolution = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype] * np.abs(truth).max()
        assert np.abs(fast - truth).max() <= 2 * max(error, resolution), what

    compare(fast, plain, truth, "value")
    for key in true_gradients:
        compare(fast_gradients[key], plain_gradients[key], true_gradients[key], f"gradient of {key}")


@pytest.mark.parametrize("scale", MAGNITUDES.values(), ids=MAGNITUDES.keys())
@pytest.mark.parametrize("name", ["poly_norm", "poly_norm_order_4", "grouped_poly_norm", "pln_8", "pls_4"])
@needs_a_fast_road
def test_one_row_of_any_magnitude_among_others(name, scale):
    function, inputs = CASES[name]
    x = np.array(inputs["x"])
    x[1] = np.clip(x[1], -3, 3) * scale
    inputs = {**inputs, "x": x}
    (fast, fast_gradients), (plain, plain_gradients) = _on_both_roads(
        lambda: value_and_gradients(function, inputs, _upstream(function, inputs), "float32")
    )
    assert_close(fast, plain, 1e-5, "value")
    for key in plain_gradients:
        assert np.isfinite(fast_gradients[key]).all()
        if key != "x":
            assert_close(fast_gradients[key], plain_gradients[key], 1e-5, f"gradient of {key}")
            continue
        for fast_row, plain_row in zip(fast_gradients[key], plain_gradients[key], strict=True):
            bound = 1e-4 * max(np.abs(plain_row).max(), 2.0**-126 / 1e-4)
            assert np.abs(fast_row - plain_row).max() <= bound


@pytest.mark.parametrize("mean", [1e4, -1e30])
@needs_a_fast_road
def test_spread_beside_a_large_mean_and_runs_of_equal_values(mean):
    x = np.float32(mean) + (_normal(4, 24).astype("float32") if mean == 1e4 else np.zeros((4, 24), "float32"))
    (fast, fast_gradients), (plain, plain_gradients) = _on_both_roads(
        lambda: value_and_gradients(_runs(8), {"x": x}, _normal(4, 24), "float32")
    )
    assert_close(fast, plain, 1e-5, "value")
    assert_close(fast_gradients["x"], plain_gradients["x"], 1e-5, "gradient")


@pytest.mark.parametrize("x", [np.zeros((3, 8)), np.zeros((0, 8))], ids=["zeros", "empty"])
@pytest.mark.parametrize("name", ["poly_relu", "poly_norm", "pln_8"])
def test_zeros_and_empty_batches(name, x):
    function = {"pln_8": _runs(8)}.get(name, CASES[name][0])
    inputs = {"x": x, **({} if name == "pln_8" else _polynomial())}
    with config.fast_roads_scope("auto"):
        value, gradients = value_and_gradients(function, inputs, np.ones_like(x), "float32")
    assert value.shape == x.shape
    assert all(np.isfinite(gradient).all() for gradient in gradients.values())
    assert_close(value, np.full(x.shape, 0.0 if name == "pln_8" else 0.1), 1e-6)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("poly_norm", lambda x: ops.poly_norm(x, [1.0], epsilon=0.0)),
        ("poly_norm", lambda x: ops.poly_norm(keras.ops.cast(x, "int32"), [1.0])),
        ("block_normalization", lambda x: ops.block_normalization(x, axes=[-1], groups=[5])),
        ("block_normalization", lambda x: ops.block_normalization(x, axes=[0, 1], groups=[1, 4])),
        ("mix_activations", lambda x: ops.mix_activations(x, [1.0], [lambda x: x + 1])),
    ],
    ids=["epsilon_0", "integers", "unequal_runs", "two_axes", "a_function_of_the_user"],
)
@needs_a_fast_road
def test_what_the_fast_roads_leave_to_the_formula(name, call):
    x = keras.ops.convert_to_tensor(_normal(3, 8).astype("float32"))
    fast, plain = None, None
    with config.fast_roads_scope("on"), pytest.raises(ValueError, match=f"`{name}` was required"):
        call(x)
    with config.fast_roads_scope("auto"):
        fast = call(x)
    with config.fast_roads_scope("off"):
        plain = call(x)
    np.testing.assert_array_equal(as_float64(fast), as_float64(plain))


@pytest.mark.parametrize("name", ["poly_norm", "pln_8"])
@needs_a_fast_road
def test_the_incoming_gradient_and_the_input_are_not_written_to(name):
    function, inputs = CASES[name]
    upstream = _upstream(function, inputs)
    kept = {key: np.array(value) for key, value in {**inputs, "upstream": upstream}.items()}
    with config.fast_roads_scope("on"):
        value_and_gradients(function, inputs, upstream, "float64")
    for key, value in {**inputs, "upstream": upstream}.items():
        np.testing.assert_array_equal(value, kept[key])
