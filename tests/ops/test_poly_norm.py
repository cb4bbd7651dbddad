"""poly_norm, poly_relu_norm and grouped_poly_norm: values, gradients and the edges of the number range."""

import functools

import keras
import ml_dtypes
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

COEFFICIENTS = [0.6, 0.3, 0.1]


def bind(function, **settings):
    """The op with arguments named as in the reference files: x, a (coefficients), b (bias)."""
    return lambda x, a, b: function(x, a, b, **settings)


REFERENCE = {
    **dict.fromkeys(cases("poly_norm_r"), ops.poly_norm),
    "poly_norm_channels_first": ops.poly_norm,
    "poly_relu_norm_r3": ops.poly_relu_norm,
}


@pytest.mark.parametrize("compiled", EAGER_AND_COMPILED)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", REFERENCE)
def test_reference(name, dtype, compiled):
    case = load(name)
    function = bind(REFERENCE[name], axis=case["meta"].get("axis", -1), epsilon=case["meta"]["epsilon"])
    out, gradients = value_and_gradients(function, inputs_of(case), case["upstream"], dtype, compiled)
    assert_close(out, case["out"], TOLERANCE[dtype], "out")
    for key, expected in gradients_of(case).items():
        assert_close(gradients[key], expected, TOLERANCE[dtype], f"gradient of {key}")


@pytest.mark.parametrize("compiled", EAGER_AND_COMPILED)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_magnitudes(dtype, compiled):
    """Rows from 0 to 1e30: float32 powers would overflow at 1e12 and vanish at 1e-30."""
    case = load("poly_norm_magnitudes")
    out, gradients = value_and_gradients(bind(ops.poly_norm), inputs_of(case), case["upstream"], dtype, compiled)
    for row in range(len(case["out"])):
        assert_close(out[row], case["out"][row], TOLERANCE[dtype], f"out, row {row}")
        assert_close(gradients["x"][row], case["grad_x"][row], TOLERANCE[dtype], f"gradient of x, row {row}")
    assert np.isfinite(gradients["x"]).all()
    assert_close(gradients["a"], case["grad_a"], TOLERANCE[dtype], "gradient of the coefficients")
    assert_close(gradients["b"], case["grad_b"], TOLERANCE[dtype], "gradient of the bias")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradient_of_huge_rows_is_relatively_exact(dtype):
    """At 1e30 the gradient is of order 1e-30: it is compared with itself, where an absolute bound would see nothing."""
    case = load("poly_norm_magnitudes")
    _, gradients = value_and_gradients(bind(ops.poly_norm), inputs_of(case), case["upstream"], dtype)
    for row in (6, 7, 8, 9):
        size = np.abs(case["grad_x"][row]).max()
        assert_close(gradients["x"][row] / size, case["grad_x"][row] / size, 10 * TOLERANCE[dtype], f"row {row}")


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_float32_rows_of_any_size_equal_float64(order, rng):
    sizes = np.array([[1e-30], [1e-9], [1.0], [300.0], [1e9], [3e38]])
    x = (sizes * rng.uniform(-1, 1, (6, 9))).astype("float32")
    coefficients = np.linspace(0.3, 0.9, order)
    exact = numpy_poly_norm(x.astype("float64"), coefficients)
    assert_close(ops.poly_norm(x, coefficients.astype("float32")), exact, 1e-5)


def numpy_poly_norm(x, coefficients, bias=0.0, epsilon=1e-6):
    """The formula as it stands, in extended precision, whose range holds what these tests feed it."""
    x = np.asarray(x, "longdouble")
    total = np.full(x.shape, bias, "longdouble")
    for i, coefficient in enumerate(coefficients, start=1):
        total += coefficient * x**i / np.sqrt(np.mean(x ** (2 * i), axis=-1, keepdims=True) + epsilon)
    return total.astype("float64")


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_known_values(dtype):
    """CASES 060 (which lists the cubic coefficient first): a general power gives NaN at negative numbers."""
    y = ops.poly_norm(keras.ops.array([[-2.0, -1, 0, 1, 2]], dtype=dtype), keras.ops.array([0.1, 0.3, 0.6]), bias=0.0)
    expected = [[-0.6226, -0.0733, 0, 0.3034, 1.5430]]
    assert_close(y, expected, {"float32": 1e-4, "float16": 1e-3, "bfloat16": 8e-3}[dtype])


def test_half_precision_does_not_overflow_inside():
    """CASES 002: 50^2 * 50^2 leaves float16, and a NaN or a row of zeros came out."""
    x = 50 * np.ones((2, 8), "float16")
    out, gradients = value_and_gradients(
        bind(ops.poly_norm), {"x": x, "a": np.full(3, 1 / 3), "b": np.zeros(1)}, np.ones((2, 8), "float16")
    )
    np.testing.assert_array_equal(out, 1.0)
    assert all(np.isfinite(gradient).all() for gradient in gradients.values())


@pytest.mark.parametrize("size", [0.1, 1.0, 100.0, 6e4], ids=str)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_within_two_units_in_the_last_place(dtype, size, rng):
    x = (size * rng.uniform(-1, 1, (4, 33))).astype(getattr(ml_dtypes, dtype, None) or dtype)
    exact = numpy_poly_norm(x.astype("float64"), COEFFICIENTS, 0.05)
    y = ops.poly_norm(keras.ops.cast(x.astype("float32"), dtype), keras.ops.array(COEFFICIENTS), keras.ops.array(0.05))
    assert keras.backend.standardize_dtype(y.dtype) == dtype
    rounded = exact.astype(x.dtype).astype("float64")
    unit = np.abs(np.nextafter(exact.astype(x.dtype), np.asarray(np.inf, x.dtype)).astype("float64") - rounded)
    assert (np.abs(as_float64(y) - rounded) <= 2 * unit).all()


@pytest.mark.parametrize("compiled", EAGER_AND_COMPILED)
def test_zero_rows(compiled):
    """CASES 009: rsqrt, sqrt and where have infinite derivatives at zero."""
    x = np.array([[0.0] * 4, [1.0, -2.0, 0.0, 0.5], [0.0] * 4], "float32")
    upstream = np.array([[1.0, 2, -3, 4]] * 3, "float32")
    weights = {"a": np.full(3, 1 / 3, "float32"), "b": np.array([0.25], "float32")}
    out, gradients = value_and_gradients(bind(ops.poly_norm), {"x": x, **weights}, upstream, compiled=compiled)
    np.testing.assert_array_equal(out[[0, 2]], 0.25)
    assert_close(gradients["x"][0], upstream[0] / (3 * np.sqrt(1e-6)), 1e-6)
    alone, gradients_alone = value_and_gradients(bind(ops.poly_norm), {"x": x[1:2], **weights}, upstream[1:2])
    assert_close(out[1:2], alone, 1e-6)
    assert_close(gradients["x"][1:2], gradients_alone["x"], 1e-6)


@pytest.mark.parametrize("compiled", EAGER_AND_COMPILED)
def test_epsilon_zero(compiled):
    """A zero row gives exactly the bias and zero gradients; a tiny one is normalized like any other."""
    base = np.array([1.0, -2.0, 0.0, 0.5])
    x = np.stack([0 * base, 1e-30 * base, base, 1e30 * base]).astype("float32")
    inputs = {"x": x, "a": np.array(COEFFICIENTS, "float32"), "b": np.array([0.5], "float32")}
    upstream = np.array([[1.0, 2, -3, 4]] * 4, "float32")
    out, gradients = value_and_gradients(bind(ops.poly_norm, epsilon=0), inputs, upstream, compiled=compiled)
    np.testing.assert_array_equal(out[0], 0.5)
    np.testing.assert_array_equal(gradients["x"][0], 0.0)
    expected = numpy_poly_norm(base[None], COEFFICIENTS, 0.5, epsilon=0)[0]
    for row in (1, 2, 3):
        assert_close(out[row], expected, 1e-6, f"row {row}")
    assert all(np.isfinite(gradient).all() for gradient in gradients.values())
    assert_close(gradients["x"][3] * 1e30, gradients["x"][2], 1e-5)


@pytest.mark.parametrize("shape", [(0, 16), (3, 0), (2, 0, 5)], ids=str)
@pytest.mark.parametrize("function", [ops.poly_norm, ops.poly_relu_norm])
def test_empty(function, shape):
    inputs = {"x": np.zeros(shape, "float32"), "a": np.array(COEFFICIENTS, "float32"), "b": np.ones(1, "float32")}
    out, gradients = value_and_gradients(bind(function), inputs, np.zeros(shape, "float32"))
    assert out.shape == shape
    assert gradients["x"].shape == shape
    np.testing.assert_array_equal(gradients["a"], 0.0)


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("function", [ops.poly_norm, ops.poly_relu_norm])
def test_unknown_dimensions(function, axis):
    x = keras.KerasTensor((None, None, 6))
    y = function(x, keras.ops.array(COEFFICIENTS), axis=axis)
    assert tuple(y.shape) == (None, None, 6)
    assert y.dtype == "float32"


@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool"])
def test_integers_become_float32(dtype):
    x = np.array([[0, 1, 2, 3]]).astype(dtype)
    y = ops.poly_norm(keras.ops.convert_to_tensor(x), COEFFICIENTS)
    assert keras.backend.standardize_dtype(y.dtype) == "float32"
    assert_close(y, numpy_poly_norm(x.astype("float64"), COEFFICIENTS), 1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_float_dtype_is_kept(dtype):
    y = ops.poly_norm(keras.ops.ones((2, 4), dtype), keras.ops.array(COEFFICIENTS, dtype="float32"))
    assert keras.backend.standardize_dtype(y.dtype) == dtype


def test_complex_is_refused():
    with pytest.raises(TypeError, match="real tensor.*complex64"):
        ops.poly_norm(keras.ops.convert_to_tensor(np.ones((2, 3), "complex64")), COEFFICIENTS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"axis": 2}, r"`axis` must lie in \[-2, 2\).*axis=2"),
        ({"axis": 1.0}, "`axis` must be an integer"),
        ({"epsilon": -1.0}, "`epsilon` must be a finite number of at least 0.*-1.0"),
        ({"coefficients": [[1.0]]}, r"`coefficients` must be a vector \(order,\).*\(1, 1\)"),
        ({"coefficients": []}, "`coefficients` must be a vector"),
        ({"bias": [1.0, 2.0]}, r"`bias` must be a scalar or have shape \(1,\).*\(2,\)"),
    ],
    ids=["axis_range", "axis_type", "epsilon", "matrix", "empty", "bias"],
)
def test_bad_arguments(settings, message):
    with pytest.raises(ValueError, match=message):
        ops.poly_norm(np.ones((2, 3), "float32"), **{"coefficients": COEFFICIENTS, **settings})


@pytest.mark.parametrize("bias", [None, 0.5, np.array(0.5, "float32"), np.array([0.5], "float32")])
def test_bias_forms(bias):
    """CASES 046: ports store a scalar or a vector of one."""
    x = np.array([[1.0, -2.0, 3.0]], "float32")
    expected = as_float64(ops.poly_norm(x, COEFFICIENTS)) + (0.0 if bias is None else 0.5)
    assert_close(ops.poly_norm(x, COEFFICIENTS, bias), expected, 1e-6)


@pytest.mark.parametrize("axis", [0, -3, 2, 1, -1], ids=str)
@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 4, 5, 6)], ids=["rank_3", "rank_5"])
def test_axis_equals_transposition(shape, axis, rng):
    """CASES 011: a positive axis, or channels first, is normalized over the right dimension."""
    x = rng.standard_normal(shape).astype("float32")
    expected = numpy_poly_norm(np.moveaxis(x.astype("float64"), axis, -1), COEFFICIENTS)
    assert_close(ops.poly_norm(x, COEFFICIENTS, axis=axis), np.moveaxis(expected, -1, axis), 1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_very_wide_rows(dtype, rng):
    """CASES 083: sums of 131072 squares overflow float16 and lose digits in float32."""
    tolerance = {"float32": 1e-5, "float16": 1e-3}[dtype]
    ones = ops.poly_norm(keras.ops.ones((2, 131072), dtype), np.full(3, 1 / 3, "float32"))
    assert_close(ones, np.ones((2, 131072)), tolerance)
    x = rng.standard_normal((2, 131072)).astype(dtype)
    exact = numpy_poly_norm(x.astype("float64"), COEFFICIENTS)
    assert_close(ops.poly_norm(keras.ops.convert_to_tensor(x), COEFFICIENTS), exact, 1e-3)


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="only torch tensors have strides")
@pytest.mark.parametrize("layout", ["transposed", "strided", "expanded", "channels_last"])
def test_strides(layout, rng):
    """CASES 079: views crash a kernel or give it wrong rows."""
    import torch

    base = torch.tensor(rng.standard_normal((2, 4, 6, 8)))
    x = {
        "transposed": base.transpose(1, 3),
        "strided": base[..., ::2],
        "expanded": base[:, :1].expand(2, 5, 6, 8),
        "channels_last": base.contiguous(memory_format=torch.channels_last),
    }[layout]
    a, x = torch.tensor(COEFFICIENTS, dtype=torch.float64), x.detach().requires_grad_()
    copy = x.detach().clone(memory_format=torch.contiguous_format).requires_grad_()
    upstream = torch.tensor(rng.standard_normal(tuple(x.shape)))
    y, y_copy = ops.poly_norm(x, a), ops.poly_norm(copy, a)
    assert_close(y, y_copy, 1e-12)
    assert_close(torch.autograd.grad(y, x, upstream)[0], torch.autograd.grad(y_copy, copy, upstream)[0], 1e-12)


def rows(rng, *shape):
    """Both signs, an exact zero and no two equal."""
    x = rng.standard_normal(shape)
    x.reshape(-1)[1] = 0.0
    return x


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 0], ids=str)
@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
def test_derivatives_of_poly_norm(order, epsilon, rng):
    inputs = {"x": rows(rng, 2, 5), "a": np.linspace(0.2, 0.9, order), "b": np.array([0.1])}
    check_derivatives(bind(ops.poly_norm, epsilon=epsilon), inputs)


@pytest.mark.parametrize("size", [1e-3, 10.0, 1e4], ids=str)
def test_derivatives_where_rows_are_rescaled(size, rng):
    """The scale that keeps powers in range is a constant of the derivative, of every order."""
    inputs = {"x": rows(rng, 2, 5), "a": np.array(COEFFICIENTS), "b": np.array([0.1])}
    check_derivatives(lambda x, a, b: ops.poly_norm(size * x, a, b, epsilon=size**2 * 1e-2), inputs)


def test_derivatives_of_poly_relu_norm(rng):
    inputs = {"x": rng.standard_normal((2, 6)), "a": np.array(COEFFICIENTS), "b": np.array([0.1])}
    check_derivatives(bind(ops.poly_relu_norm), inputs)


def test_derivatives_along_a_middle_axis(rng):
    inputs = {"x": rows(rng, 2, 4, 3), "a": np.array(COEFFICIENTS), "b": np.array([0.1])}
    check_derivatives(bind(ops.poly_norm, axis=1), inputs)


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="the function transformations of JAX")
def test_jax_transformations(rng):
    """vmap, the Hessian and forward over reverse equal loops and central differences."""
    import jax

    a, x, v = np.array(COEFFICIENTS), rows(rng, 3, 5), rng.standard_normal((3, 5))
    function = functools.partial(ops.poly_norm, coefficients=a, bias=np.array([0.1]))
    assert_close(jax.vmap(function)(x), function(x), 1e-12)

    def loss(row):
        return jax.numpy.sum(function(row) ** 2)

    step = 1e-5
    hessian, gradient = jax.jit(jax.hessian(loss))(x[0]), jax.jit(jax.grad(loss))
    columns = [(gradient(x[0] + step * e) - gradient(x[0] - step * e)) / (2 * step) for e in np.eye(5)]
    assert_close(hessian, np.stack(columns), 1e-6)
    forward_over_reverse = jax.jit(lambda x, v: jax.jvp(jax.grad(loss), (x,), (v,))[1])
    assert_close(forward_over_reverse(x[0], v[0]), hessian @ v[0], 1e-9)
    per_row = jax.jit(jax.vmap(jax.grad(loss)))(x)
    assert_close(per_row, np.stack([gradient(row) for row in x]), 1e-12)
    with config.fast_roads_scope("off"):
        forward = jax.jit(lambda x, v: jax.jvp(function, (x,), (v,))[1])(x, v)
    assert_close(forward, (as_float64(function(x + step * v)) - function(x - step * v)) / (2 * step), 1e-6)


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="the function transformations of torch")
def test_torch_transformations(rng):
    import torch

    x, v = torch.tensor(rows(rng, 3, 5)), torch.tensor(rng.standard_normal((3, 5)))
    a = torch.tensor(COEFFICIENTS, dtype=torch.float64)
    assert_close(torch.func.vmap(lambda row: ops.poly_norm(row, a))(x), ops.poly_norm(x, a), 1e-12)
    with config.fast_roads_scope("off"):
        forward = torch.func.jvp(lambda x: ops.poly_norm(x, a), (x,), (v,))[1]
    expected = (ops.poly_norm(x + 1e-5 * v, a) - ops.poly_norm(x - 1e-5 * v, a)) / 2e-5
    assert_close(forward, expected, 1e-6)


ROW = st.lists(st.floats(-3, 3, width=32).filter(lambda v: v == 0 or abs(v) > 1e-3), min_size=5, max_size=5)


@settings(max_examples=20, deadline=None)
@given(row=ROW, exponent=st.integers(0, 25))
def test_large_rows_do_not_depend_on_their_scale(row, exponent):
    x = 1e3 * np.array([row], "float32")
    y = as_float64(ops.poly_norm(x, COEFFICIENTS, epsilon=0))
    assert_close(ops.poly_norm(np.float32(2.0**exponent) * x, COEFFICIENTS, epsilon=0), y, 1e-5)


@settings(max_examples=20, deadline=None)
@given(row=ROW, seed=st.integers(0, 100))
def test_permuting_a_row_permutes_the_result(row, seed):
    order = np.random.default_rng(seed).permutation(len(row))
    x = np.array([row])
    assert_close(ops.poly_norm(x[:, order], COEFFICIENTS), as_float64(ops.poly_norm(x, COEFFICIENTS))[:, order], 1e-6)


# One set of coefficients per group.


def motif(x, w, b, index, epsilon):
    limited = keras.ops.clip(b, -0.5, 0.5)
    return 0.5 * ops.grouped_poly_norm(x, keras.ops.sigmoid(w), limited, index, epsilon=epsilon)


@pytest.mark.parametrize("compiled", EAGER_AND_COMPILED)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_grouped_reference(dtype, compiled):
    case = load("grouped_poly_norm_motif")
    function = functools.partial(motif, epsilon=case["meta"]["epsilon"])
    inputs = {**inputs_of(case), "index": np.array(case["meta"]["expert_index"], "int32")}
    out, gradients = value_and_gradients(function, inputs, case["upstream"], dtype, compiled)
    assert_close(out, case["out"], TOLERANCE[dtype], "out")
    for key, expected in gradients_of(case).items():
        assert_close(gradients[key], expected, TOLERANCE[dtype], f"gradient of {key}")


def test_grouped_derivatives(rng):
    index = np.array([2, 0, 2])
    inputs = {"x": rows(rng, 3, 5), "a": rng.uniform(0.2, 0.9, (3, 3)), "b": rng.standard_normal(3)}
    check_derivatives(lambda x, a, b: ops.grouped_poly_norm(x, a, b, keras.ops.array(index)), inputs)


GROUPS = {"a": np.array([[1.0, 0.5], [0.2, 0.3], [-0.4, 0.7]]), "b": np.array([0.1, 0.2, -0.3])}


@pytest.mark.parametrize(
    ("shape", "index_shape", "axis"),
    [((6, 4), (6,), -1), ((2, 3, 4), (2, 3), -1), ((3, 5, 4), (3,), -1), ((3, 5, 4), (3,), 1), ((2, 3, 4, 5), (2,), 2)],
    ids=["tokens", "batch_tokens", "expert_buffer", "middle_axis", "rank_4"],
)
def test_grouped_equals_one_group_at_a_time(shape, index_shape, axis, rng):
    x, index = rng.standard_normal(shape), rng.integers(0, 3, index_shape)
    y = as_float64(ops.grouped_poly_norm(x, GROUPS["a"], GROUPS["b"], index, axis=axis))
    inner_axis = axis % len(shape) - len(index_shape)
    for position in np.ndindex(index_shape):
        group = index[position]
        row = np.moveaxis(x[position], inner_axis, -1)
        alone = numpy_poly_norm(row, GROUPS["a"][group], GROUPS["b"][group])
        assert_close(y[position], np.moveaxis(alone, -1, inner_axis), 1e-12)


def test_grouped_clips_and_never_wraps(rng):
    """CASES 022: index -1 took the coefficients of the last expert."""
    x = rng.standard_normal((4, 5))
    y = ops.grouped_poly_norm(x, GROUPS["a"], GROUPS["b"], np.array([-1, -7, 3, 99]))
    assert_close(y, ops.grouped_poly_norm(x, GROUPS["a"], GROUPS["b"], np.array([0, 0, 2, 2])), 1e-12)


def test_grouped_without_bias(rng):
    x, index = rng.standard_normal((3, 5)), np.array([1, 0, 2])
    expected = ops.grouped_poly_norm(x, GROUPS["a"], np.zeros(3), index)
    assert_close(ops.grouped_poly_norm(x, GROUPS["a"], None, index), expected, 1e-12)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64"])
def test_grouped_index_dtypes(dtype, rng):
    x = rng.standard_normal((3, 5))
    expected = ops.grouped_poly_norm(x, GROUPS["a"], GROUPS["b"], np.array([2, 0, 1]))
    assert_close(ops.grouped_poly_norm(x, GROUPS["a"], GROUPS["b"], np.array([2, 0, 1], dtype)), expected, 1e-12)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"group_index": np.zeros(3)}, TypeError, "`group_index` must be of an integer dtype.*float64"),
        ({"group_index": np.zeros(4, int)}, ValueError, r"leading axes of `x`.*\(4,\).*\(3, 5\)"),
        ({"group_index": np.zeros((3, 5), int)}, ValueError, "in front of `axis`"),
        ({"group_index": np.zeros(3, int), "axis": 0}, ValueError, "in front of `axis`"),
        ({"group_index": np.zeros(3, int), "coefficients": [1.0]}, ValueError, r"\(num_groups, order\)"),
        ({"group_index": np.zeros(3, int), "bias": [1.0]}, ValueError, r"\(num_groups,\) = \(3,\).*\(1,\)"),
    ],
    ids=["float_index", "wrong_length", "too_many_axes", "axis_in_front", "coefficients", "bias"],
)
def test_grouped_bad_arguments(settings, error, message):
    arguments = {"coefficients": GROUPS["a"], "bias": GROUPS["b"], **settings}
    with pytest.raises(error, match=message):
        ops.grouped_poly_norm(np.ones((3, 5)), **arguments)
