"""block_normalization and the ops made of it: values, gradients, partitions and the edges of the number range."""

import keras
import ml_dtypes
import numpy as np
import pytest
from reference_values import (
    TOLERANCE,
    as_float64,
    assert_close,
    cases,
    check_derivatives,
    gradients_of,
    gradients_of_gradients,
    inputs_of,
    load,
    value_and_gradients,
)
from tracing import traced

from keras_polycom import config, ops


@pytest.mark.parametrize("op", [ops.parallel_layer_norm, ops.parallel_layer_scaling], ids=["pln", "pls"])
def test_gradients_in_float16_on_values_up_to_4500(op):
    """CASES 002: squares of 4500 leave the range of float16."""
    inputs, upstream = {"x": 300.0 * np.arange(16)[None]}, 1000 * np.linspace(-1, 1, 16)[None] ** 3
    half, full = (value_and_gradients(lambda x: op(x, 8), inputs, upstream, dtype) for dtype in ("float16", "float32"))
    for a, b in ((half[0], full[0]), (half[1]["x"], full[1]["x"])):
        np.testing.assert_allclose(a, b, atol=2e-3 * np.abs(b).max())


def of_reference(name):
    """The op of a reference file, with arguments named as there."""
    meta = load(name)["meta"]
    if name.startswith("mix_norm"):
        groups = meta["token_groups"], meta["channel_groups"]
        return lambda x, gamma, beta: ops.mix_norm(x, *groups, gamma, beta, epsilon=meta["epsilon"])
    if name.startswith("patch_group_norm"):
        groups = meta["channel_groups"], meta["patches"]
        return lambda x: ops.patch_group_norm(x, *groups, epsilon=meta["epsilon"])
    op = ops.parallel_layer_scaling if name.startswith("pls") else ops.parallel_layer_norm
    arguments = {"norm_size": meta["norm_size"], "axis": meta["axis"], "epsilon": meta["epsilon"]}
    return lambda x, gamma, beta: op(x, gamma=gamma, beta=beta, **arguments)


REFERENCES = [n for prefix in ("pln_", "pls_", "cpln_", "mix_norm_", "patch_group_norm_") for n in cases(prefix)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", REFERENCES)
def test_reference(name, dtype):
    case = load(name)
    out, gradients = value_and_gradients(traced(of_reference(name)), inputs_of(case), case["upstream"], dtype)
    assert_close(out, case["out"], TOLERANCE[dtype], "out")
    for key, expected in gradients_of(case).items():
        assert_close(gradients[key], expected, TOLERANCE[dtype], f"gradient of {key}")


@pytest.mark.parametrize("name", ["cpln_4_channels_first", "mix_norm_t2_c4", "patch_group_norm_c4_k2"])
def test_reference_compiled(name):
    case = load(name)
    out, gradients = value_and_gradients(of_reference(name), inputs_of(case), case["upstream"], "float32", True)
    assert_close(out, case["out"], 1e-5, "out")
    assert_close(gradients["x"], case["grad_x"], 1e-5, "gradient of x")


def plain_numpy(x, norm_size, epsilon=1e-5, center=True):
    """The textbook formula in float64."""
    x = np.asarray(x, "float64")
    runs = x.reshape(*x.shape[:-1], -1, norm_size)
    runs = runs - runs.mean(-1, keepdims=True) if center else runs
    return (runs / np.sqrt((runs**2).mean(-1, keepdims=True) + epsilon)).reshape(x.shape)


DERIVATIVES = {
    "pln": lambda x, gamma, beta: ops.parallel_layer_norm(x, 3, gamma, beta),
    "pls": lambda x, gamma, beta: ops.parallel_layer_scaling(x, 3, gamma, beta, epsilon=0.3),
    "pln_epsilon_0": lambda x, gamma, beta: ops.parallel_layer_norm(x, 3, gamma, beta, epsilon=0.0),
    "pln_axis_1": lambda x, gamma, beta: ops.parallel_layer_norm(
        keras.ops.transpose(x, (0, 2, 1)), 3, gamma, beta, axis=1
    ),
    "mix_norm": lambda x, gamma, beta: ops.mix_norm(x, 2, 3, gamma, beta),
    "patch_group_norm": lambda x, gamma, beta: ops.patch_group_norm(x, 2, 2, gamma, beta),
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_first_and_second_derivatives(name, rng):
    inputs = {"x": rng.standard_normal((2, 4, 9)), "gamma": rng.standard_normal(9), "beta": rng.standard_normal(9)}
    check_derivatives(traced(DERIVATIVES[name]), inputs)


class TestPartition:
    """Parts whose sizes differ by at most one, the larger ones first."""

    @pytest.mark.parametrize(
        ("size", "groups", "sizes"),
        [
            (13, 5, [3, 3, 3, 2, 2]),
            (12, 5, [3, 3, 2, 2, 2]),
            (197, 4, [50, 49, 49, 49]),
            (6, 3, [2, 2, 2]),
            (3, 3, [1] * 3),
        ],
        ids=str,
    )
    def test_sizes(self, size, groups, sizes, rng):
        x = rng.standard_normal((2, size))
        expected = [plain_numpy(part, part.shape[-1]) for part in np.split(x, np.cumsum(sizes)[:-1], axis=-1)]
        function = traced(lambda x: ops.block_normalization(x, axes=[1], groups=[groups]))
        out = function(keras.ops.convert_to_tensor(x))
        assert_close(out, np.concatenate(expected, axis=-1), 1e-10)

    def test_three_uneven_axes(self, rng):
        x = rng.standard_normal((2, 5, 7, 5))
        function = traced(lambda x: ops.patch_group_norm(x, channel_groups=2, patches=3))
        out = as_float64(function(keras.ops.convert_to_tensor(x)))
        for rows in (slice(0, 2), slice(2, 4), slice(4, 5)):
            for columns in (slice(0, 3), slice(3, 5), slice(5, 7)):
                for channels in (slice(0, 3), slice(3, 5)):
                    block = x[:, rows, columns, channels].reshape(2, -1)
                    expected = plain_numpy(block, block.shape[-1])
                    assert_close(out[:, rows, columns, channels].reshape(2, -1), expected, 1e-10)

    def test_order_of_axes_does_not_matter(self, rng):
        x = keras.ops.convert_to_tensor(rng.standard_normal((5, 7, 4)))
        one = traced(lambda x: ops.block_normalization(x, axes=[0, 2], groups=[2, 3]))(x)
        other = traced(lambda x: ops.block_normalization(x, axes=[-1, -3], groups=[3, 2]))(x)
        assert_close(one, as_float64(other), 1e-12)

    def test_as_many_token_groups_as_tokens_is_parallel_layer_norm(self, rng):
        x = keras.ops.convert_to_tensor(rng.standard_normal((2, 5, 12)))
        mixed = traced(lambda x: ops.mix_norm(x, 5, 3))(x)
        assert_close(mixed, as_float64(traced(lambda x: ops.parallel_layer_norm(x, 4))(x)), 1e-10)


class TestNumberRange:
    """Block after block comes into range by a shift and a scale before its variance is taken."""

    def test_mean_4e6_spread_1000(self):
        """CASES 056: mean of squares minus square of mean gives +-1.4648 here."""
        x = np.array([[4096, 4097, 4098, 4099]], "float32") * 1000
        out = ops.parallel_layer_norm(keras.ops.convert_to_tensor(x), 4)
        assert_close(out, [[-1.3416, -0.4472, 0.4472, 1.3416]], 1e-4)

    @pytest.mark.parametrize("mean", [1e4, -1e4, 1e7])
    def test_large_mean_spread_1(self, mean, rng):
        x = (mean + rng.standard_normal((4, 24))).astype("float32")
        upstream = rng.standard_normal((4, 24))
        function = traced(lambda x: ops.parallel_layer_norm(x, 8))
        out, gradients = value_and_gradients(function, {"x": x}, upstream, "float32")
        exact, exact_gradients = value_and_gradients(function, {"x": x}, upstream, "float64")
        assert_close(exact, plain_numpy(x, 8), 1e-7)
        assert_close(out, exact, 1e-5)
        assert_close(gradients["x"], exact_gradients["x"], 1e-5)

    @pytest.mark.parametrize("center", [True, False], ids=["pln", "pls"])
    @pytest.mark.parametrize("size", [1e-30, 1e-3, 300.0, 1e30, 3e38])
    def test_rows_of_any_size(self, size, center, rng):
        x = (size * rng.uniform(-1, 1, (3, 12))).astype("float32")
        x[0, :4] = 0
        upstream = rng.standard_normal(x.shape)

        function = traced(lambda x: ops.parallel_layer_norm(x, 4, center=center))
        out, gradients = value_and_gradients(function, {"x": x}, upstream, "float32")
        exact, exact_gradients = value_and_gradients(function, {"x": x}, upstream, "float64")
        assert_close(exact, plain_numpy(x, 4, center=center), 1e-10)
        scale = min(1.0, size)
        assert_close(out / scale, exact / scale, 1e-5)
        largest = np.abs(exact_gradients["x"][1:]).max()
        assert np.isfinite(gradients["x"]).all()
        if largest > 1e-37:  # smaller ones are denormal numbers, which some backends flush to zero
            assert_close(gradients["x"][1:] / largest, exact_gradients["x"][1:] / largest, 2e-5)

    @pytest.mark.parametrize("dtype", ["float32", "float16"])
    def test_very_wide_rows(self, dtype, rng):
        """CASES 083: ones give 0 with centring, 1 without; random rows are right."""
        ones = keras.ops.ones((2, 131072), dtype=dtype)
        assert_close(ops.parallel_layer_norm(ones, 131072), np.zeros((2, 131072)), 0)
        assert_close(
            ops.parallel_layer_scaling(ones, 131072), np.ones((2, 131072)), 1e-3 if dtype == "float16" else 1e-5
        )
        x = rng.standard_normal((2, 131072)).astype(dtype)
        out = ops.parallel_layer_norm(keras.ops.convert_to_tensor(x), 131072)
        assert_close(out, plain_numpy(x, 131072), 1e-3)

    @pytest.mark.parametrize("op", [ops.parallel_layer_norm, ops.parallel_layer_scaling], ids=["pln", "pls"])
    def test_float16_squares_would_overflow(self, op):
        """CASES 002: 300 squared is more than float16 holds."""
        x = 300 * np.arange(16, dtype="float32")[None]
        half = op(keras.ops.convert_to_tensor(x.astype("float16")), 8)
        assert keras.backend.standardize_dtype(half.dtype) == "float16"
        assert_close(half, as_float64(op(keras.ops.convert_to_tensor(x), 8)), 2e-3)

    def test_bfloat16_is_the_correctly_rounded_result(self, rng):
        x = (100 + rng.standard_normal((50, 16))).astype(ml_dtypes.bfloat16)
        out = ops.parallel_layer_norm(keras.ops.cast(x.astype("float32"), "bfloat16"), 8)
        expected = plain_numpy(x.astype("float64"), 8)
        unit = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(expected), 1e-3))) - 7)
        assert (np.abs(as_float64(out) - expected) <= 0.51 * unit).all()

    def test_integers_become_float32(self):
        out = ops.parallel_layer_norm(keras.ops.convert_to_tensor([[1, 3, 5]], dtype="int32"), 3, epsilon=0.0)
        assert keras.backend.standardize_dtype(out.dtype) == "float32"
        assert_close(out, [[-np.sqrt(1.5), 0, np.sqrt(1.5)]], 1e-6)

    def test_complex_is_refused(self):
        with pytest.raises(TypeError, match="real tensor"):
            ops.parallel_layer_norm(keras.ops.convert_to_tensor(np.ones((2, 4), "complex64")), 2)


AT_EPSILON = {
    "pln": lambda x, beta, e: ops.parallel_layer_norm(x, 4, beta=beta, epsilon=e),
    "pls": lambda x, beta, e: ops.parallel_layer_scaling(x, 4, beta=beta, epsilon=e),
    "mix_norm": lambda x, beta, e: ops.mix_norm(x, 3, 2, beta=beta, epsilon=e),
    "patch_group_norm": lambda x, beta, e: ops.patch_group_norm(x, 2, 3, beta=beta, epsilon=e),
}


class TestZeroConvention:
    """A block without variance gives beta and zero gradients at epsilon 0 (CASES 009)."""

    @pytest.mark.parametrize(
        ("name", "compiled"),
        [(name, False) for name in AT_EPSILON] + [("pln", True), ("mix_norm", True)],
        ids=lambda value: {True: "compiled", False: "eager"}.get(value, value),
    )
    def test_epsilon_0(self, name, compiled, rng):
        x = rng.standard_normal((2, 3, 8))
        x[0, 1] = 0.0
        beta = rng.standard_normal(8)
        out, gradients = value_and_gradients(
            traced(lambda x, beta: AT_EPSILON[name](x, beta, 0.0)),
            {"x": x, "beta": beta},
            rng.standard_normal(x.shape),
            "float32",
            compiled,
        )
        np.testing.assert_array_equal(out[0, 1], beta.astype("float32"))
        np.testing.assert_array_equal(gradients["x"][0, 1], 0.0)
        assert np.isfinite(gradients["x"]).all()
        assert np.all(gradients["x"][1] != 0)

    @pytest.mark.parametrize("name", AT_EPSILON)
    def test_second_derivatives_stay_finite(self, name, rng):
        x = rng.standard_normal((2, 3, 8))
        x[0, 1] = 0.0
        function = traced(lambda x: AT_EPSILON[name](x, None, 0.0))
        upstream, direction = rng.standard_normal((2, *x.shape))
        second = gradients_of_gradients(function, {"x": x}, upstream, {"x": direction})["x"]
        assert np.isfinite(second).all()
        np.testing.assert_array_equal(second[0, 1], 0.0)

    @pytest.mark.parametrize("epsilon", [0.0, 1e-5])
    def test_equal_values_give_exactly_beta(self, epsilon):
        """The mean of three times 0.1 is not 0.1 in floating point, and epsilon 0 blows the deviation up to order 1."""
        x = np.repeat(np.array([[0.1], [1 / 3], [-7e8], [1e-12]], "float32"), 9, axis=1)
        beta = np.arange(9.0)
        out = traced(lambda x: ops.parallel_layer_norm(x, 3, beta=beta, epsilon=epsilon))(x)
        np.testing.assert_array_equal(as_float64(out), np.tile(beta, (4, 1)))

    def test_zero_rows_with_epsilon(self, rng):
        upstream = rng.standard_normal((2, 16))
        out, gradients = value_and_gradients(
            traced(lambda x: ops.parallel_layer_scaling(x, 8)), {"x": np.zeros((2, 16))}, upstream, "float32"
        )
        np.testing.assert_array_equal(out, 0.0)
        assert_close(gradients["x"], upstream / np.sqrt(1e-5), 1e-5)


class TestMask:
    """Masked elements enter no mean and come out as beta."""

    def test_equals_the_unmasked_tokens_alone(self, rng):
        x = rng.standard_normal((2, 6, 8)).astype("float32")
        mask = np.array([[True] * 6, [True, False, True, False, False, True]])
        beta = rng.standard_normal(8)
        masked = traced(lambda x: ops.mix_norm(x, 2, 2, beta=beta, mask=mask))
        plain = traced(lambda x: ops.mix_norm(x, 1, 2, beta=beta))
        out = as_float64(masked(x))
        for sample, tokens in ((0, [0, 1, 2]), (0, [3, 4, 5]), (1, [0, 2]), (1, [5])):
            assert_close(out[sample, tokens], as_float64(plain(x[sample : sample + 1, tokens]))[0], 1e-6)
        assert_close(out[1, [1, 3, 4]], np.tile(beta, (3, 1)), 1e-6)

    @pytest.mark.parametrize("epsilon", [0.0, 1e-5])
    @pytest.mark.parametrize("filling", [1e30, np.inf, np.nan])
    def test_padding_never_matters(self, filling, epsilon, rng):
        x = rng.standard_normal((2, 6, 8))
        mask = np.array([[True] * 4 + [False] * 2, [False] * 6])
        filled = np.where(mask[..., None], x, filling)
        upstream = rng.standard_normal(x.shape)

        function = traced(lambda x: ops.mix_norm(x, 3, 2, epsilon=epsilon, mask=mask))
        expected, expected_gradients = value_and_gradients(function, {"x": x}, upstream, "float32")
        out, gradients = value_and_gradients(function, {"x": filled}, upstream, "float32")
        np.testing.assert_array_equal(out, expected)
        np.testing.assert_array_equal(gradients["x"], expected_gradients["x"])
        np.testing.assert_array_equal(gradients["x"][~mask], 0.0)


class TestSymbolic:
    """On a KerasTensor the op is one node, whatever sizes are unknown, and the model can be saved."""

    def test_unknown_sizes(self, tmp_path, rng):
        inputs = keras.Input((None, None, 12))
        outputs = ops.parallel_layer_norm(inputs, 4)
        outputs = ops.patch_group_norm(outputs, channel_groups=2, patches=3)
        model = keras.Model(inputs, outputs)
        assert tuple(model.output.shape) == (None, None, None, 12)
        model.save(tmp_path / "model.keras")
        loaded = keras.saving.load_model(tmp_path / "model.keras")
        direct = traced(lambda x: ops.patch_group_norm(ops.parallel_layer_norm(x, 4), channel_groups=2, patches=3))
        for size, tried in (((5, 7), model), ((3, 4), loaded)):
            x = rng.standard_normal((2, *size, 12)).astype("float32")
            assert_close(tried.predict(x, verbose=0), as_float64(direct(x)), 1e-5)

    def test_unknown_number_of_tokens(self, rng):
        inputs = keras.Input((None, 6))
        model = keras.Model(inputs, ops.mix_norm(inputs, token_groups=4, channel_groups=2))
        for tokens in (4, 9):  # an even and an uneven cut
            x = rng.standard_normal((2, tokens, 6)).astype("float32")
            expected = traced(lambda x: ops.mix_norm(x, 4, 2))(x)
            assert_close(model.predict(x, verbose=0), as_float64(expected), 1e-5)

    def test_half_precision_stays(self):
        symbol = keras.KerasTensor((None, 8), dtype="float16")
        assert ops.parallel_layer_norm(symbol, 4).dtype == "float16"


class TestErrors:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"norm_size": 8}, "`norm_size` must divide the number of channels. Received: norm_size=8, channels=12"),
            ({"norm_size": 24}, "norm_size=24, channels=12"),
            ({"norm_size": 0}, "`norm_size` must be an integer of at least 1. Received: norm_size=0"),
            ({"norm_size": -1}, "norm_size=-1"),
            ({"norm_size": 2.5}, r"norm_size=2\.5"),
            ({"norm_size": True}, "norm_size=True"),
            ({"norm_size": 1}, "`norm_size` must be at least 2"),
            ({"norm_size": 4, "axis": 2}, r"`axis` must lie in \[-2, 2\)"),
            ({"norm_size": 4, "axis": 1.0}, "`axis` must be an integer"),
            ({"norm_size": 4, "epsilon": -1e-5}, "`epsilon` must be a finite number of at least 0"),
            ({"norm_size": 4, "gamma": np.ones(4)}, r"`gamma` must have shape \(channels,\) = \(12,\)"),
            ({"norm_size": 4, "beta": np.ones((1, 12))}, r"`beta` must have shape .* shape=\(1, 12\)"),
        ],
        ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
    )
    def test_parallel_layer_norm(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            ops.parallel_layer_norm(keras.ops.ones((2, 12)), **arguments)

    def test_unknown_number_of_channels(self):
        with pytest.raises(ValueError, match=r"number of channels must be known.*norm_size=4"):
            ops.parallel_layer_norm(keras.KerasTensor((None, None)), 4)

    def test_more_groups_than_elements(self):
        with pytest.raises(ValueError, match=r"more groups than it has elements. Received: groups=6, .*\(2, 5, 8\)"):
            ops.mix_norm(keras.ops.ones((2, 5, 8)), token_groups=6, channel_groups=2)

    def test_axis_named_twice(self):
        with pytest.raises(ValueError, match="name an axis once"):
            ops.block_normalization(keras.ops.ones((2, 5, 8)), axes=[2, -1], groups=[2, 2])

    def test_mask_of_another_shape(self):
        with pytest.raises(ValueError, match=r"mask of shape \(2, 4\), x of shape \(2, 5, 8\)"):
            ops.mix_norm(keras.ops.ones((2, 5, 8)), 1, 1, mask=np.ones((2, 4), bool))

    @pytest.mark.parametrize("shape", [(2, 8), (2, 3, 4, 8)])
    def test_mix_norm_needs_rank_3(self, shape):
        with pytest.raises(ValueError, match=r"\(batch, tokens, channels\)"):
            ops.mix_norm(keras.ops.ones(shape), 1, 1)

    @pytest.mark.parametrize(("shape", "axis"), [((2, 8), -1), ((2, 4, 4, 8), 2), ((2, 4, 4, 8), 0)], ids=str)
    def test_patch_group_norm_needs_spatial_axes(self, shape, axis):
        with pytest.raises(ValueError, match="channels at axis 1 or last"):
            ops.patch_group_norm(keras.ops.ones(shape), 1, 1, axis=axis)


def test_empty_batch():
    out = ops.parallel_layer_norm(keras.ops.zeros((0, 8)), 4, beta=np.ones(8))
    assert tuple(out.shape) == (0, 8)


def test_one_shared_formula_answers_when_fast_versions_are_off(rng):
    x = rng.standard_normal((3, 24)).astype("float32")
    with config.fast_roads_scope("off"):
        assert_close(ops.parallel_layer_norm(x, 8), plain_numpy(x, 8), 1e-5)
