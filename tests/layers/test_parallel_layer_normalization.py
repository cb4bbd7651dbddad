"""The layers of the parallel-layer-normalization family."""

import functools
import json

import keras
import numpy as np
import pytest
from harness import check_config, check_layer, weight_gradients
from reference_values import as_float64, assert_close
from tracing import traced

import keras_polycom
from keras_polycom import activations, normalizations, ops

LAYERS = {
    "pln": (functools.partial(keras_polycom.ParallelLayerNormalization, 3), (2, 5, 12)),
    "pls": (functools.partial(keras_polycom.ParallelLayerScaling, 4), (2, 5, 12)),
    "cpln": (functools.partial(keras_polycom.ConvParallelLayerNormalization, 4, "channels_last"), (2, 3, 4, 8)),
    "mix_norm": (functools.partial(keras_polycom.MixNormalization, 2, 3), (2, 5, 8)),
    "patch_group_norm": (
        functools.partial(keras_polycom.PatchGroupNormalization, 3, 2, "channels_last"),
        (2, 3, 5, 8),
    ),
}


def run(layer, x):
    """The layer, built if need be, on one array."""
    if not layer.built:
        layer.build(x.shape)
    return traced(layer)(keras.ops.convert_to_tensor(x))


@pytest.mark.parametrize("name", LAYERS)
def test_harness(name, rng):
    make, shape = LAYERS[name]
    check_layer(make, rng.standard_normal(shape).astype("float32"))


CHANGED = {
    "epsilon": 0.5,
    "beta_initializer": keras.initializers.RandomNormal(seed=1),
    "gamma_initializer": keras.initializers.RandomNormal(seed=2),
    "beta_regularizer": keras.regularizers.L2(0.3),
    "gamma_regularizer": keras.regularizers.L1(0.2),
    "beta_constraint": keras.constraints.NonNeg(),
    "gamma_constraint": keras.constraints.UnitNorm(),
}


@pytest.mark.parametrize("name", LAYERS)
def test_config_with_every_argument_changed(name, rng):
    """CASES 031: initializer, regularizer and constraint objects included."""
    make, shape = LAYERS[name]
    make = functools.partial(make, **CHANGED)
    check_config(make, rng.standard_normal(shape).astype("float32"))
    layer = make()
    layer.build(shape)
    assert len(layer.losses) == 2
    default = json.dumps(LAYERS[name][0]().get_config(), sort_keys=True)
    for argument in CHANGED:
        assert json.dumps(layer.get_config()[argument]) not in default


@pytest.mark.parametrize("name", LAYERS)
def test_center_drops_beta_and_scale_drops_gamma(name, rng):
    make, shape = LAYERS[name]
    x = rng.standard_normal(shape).astype("float32")
    with_both, with_none = make(), make(center=False, scale=False)
    assert_close(run(with_none, x), as_float64(run(with_both, x)), 1e-6)
    assert with_none.weights == []
    assert [w.name for w in with_both.weights] == ["gamma", "beta"]
    only_gamma = make(center=False)
    only_gamma.build(shape)
    assert [tuple(w.shape) for w in only_gamma.weights] == [shape[-1:]]


def test_aliases():
    assert keras_polycom.PLN is keras_polycom.ParallelLayerNormalization
    assert keras_polycom.PLS is keras_polycom.ParallelLayerScaling
    assert keras_polycom.CPLN is keras_polycom.ConvParallelLayerNormalization


class TestEqualsKeras:
    """At the ends of their range these layers are layers of Keras."""

    def affine(self, layer, rng):
        for weight in layer.weights:
            weight.assign(rng.standard_normal(tuple(weight.shape)))
        return [as_float64(weight) for weight in layer.weights]

    @pytest.mark.parametrize("shape", [(3, 16), (2, 5, 16)], ids=str)
    def test_one_run_is_layer_normalization(self, shape, rng):
        x = rng.standard_normal(shape).astype("float32")
        ours = keras_polycom.ParallelLayerNormalization(16, epsilon=1e-3)
        theirs = keras.layers.LayerNormalization(epsilon=1e-3)
        ours.build(x.shape), theirs.build(x.shape)
        theirs.set_weights(self.affine(ours, rng))
        assert_close(run(ours, x), as_float64(run(theirs, x)), 1e-5)

    def test_one_token_group_and_one_channel_group_is_layer_normalization_of_samples(self, rng):
        x = rng.standard_normal((2, 5, 8)).astype("float32")
        ours = keras_polycom.MixNormalization(1, 1)
        theirs = keras.layers.LayerNormalization(axis=(1, 2), epsilon=1e-5, center=False, scale=False)
        assert_close(run(ours, x), as_float64(run(theirs, x)), 1e-5)

    def test_one_run_without_centring_is_rms_normalization(self, rng):
        x = rng.standard_normal((2, 5, 16)).astype("float32")
        ours, theirs = keras_polycom.ParallelLayerScaling(16), keras.layers.RMSNormalization(epsilon=1e-5)
        assert_close(run(ours, x), as_float64(run(theirs, x)), 1e-5)

    @pytest.mark.parametrize(
        ("groups", "data_format"), [(1, "channels_last"), (4, "channels_last"), (4, "channels_first")]
    )
    def test_one_patch_is_group_normalization(self, groups, data_format, rng):
        x = rng.standard_normal((2, 5, 7, 16)).astype("float32")
        x = x if data_format == "channels_last" else np.moveaxis(x, -1, 1).copy()
        axis = -1 if data_format == "channels_last" else 1
        ours = keras_polycom.PatchGroupNormalization(groups, patches=1, data_format=data_format)
        theirs = keras.layers.GroupNormalization(groups, axis=axis, epsilon=1e-5)
        ours.build(x.shape), theirs.build(x.shape)
        theirs.set_weights(self.affine(ours, rng))
        assert_close(run(ours, x), as_float64(run(theirs, x)), 1e-5)

    def test_as_many_patches_as_pixels_is_parallel_layer_normalization(self, rng):
        x = rng.standard_normal((2, 4, 4, 12)).astype("float32")
        patches = keras_polycom.PatchGroupNormalization(3, patches=4, data_format="channels_last")
        runs = keras_polycom.ParallelLayerNormalization(4)
        assert_close(run(patches, x), as_float64(run(runs, x)), 1e-6)


@pytest.mark.parametrize(
    ("kind", "rank"), [(keras_polycom.PLN, rank) for rank in (2, 3, 4, 5)] + [(keras_polycom.PLS, 4)]
)
def test_any_axis_of_any_rank(kind, rank, rng):
    """CASES 011: -1, the same axis counted from the front, and axis 1 of the transposed input agree."""
    x = rng.standard_normal((*(2, 3, 4, 5)[: rank - 1], 12)).astype("float32")
    gamma, beta = rng.standard_normal((2, 12))
    outputs = []
    for axis, inputs in ((-1, x), (rank - 1, x), (1, np.moveaxis(x, -1, 1).copy())):
        layer = kind(4, axis=axis)
        layer.build(inputs.shape)
        layer.set_weights([gamma, beta])
        assert layer.gamma.shape == (12,)
        output = as_float64(run(layer, inputs))
        outputs.append(output if inputs is x else np.moveaxis(output, 1, -1))
    for output in outputs[1:]:
        assert_close(output, outputs[0], 1e-6)


def test_convolutional_layer_follows_the_data_format(rng):
    x = rng.standard_normal((2, 3, 4, 8)).astype("float32")
    last = as_float64(run(keras_polycom.CPLN(4, data_format="channels_last"), x))
    first = as_float64(run(keras_polycom.CPLN(4, data_format="channels_first"), np.moveaxis(x, -1, 1).copy()))
    assert_close(np.moveaxis(first, 1, -1), last, 1e-6)
    assert_close(last, as_float64(ops.parallel_layer_norm(x, 4)), 1e-6)
    assert keras_polycom.CPLN().data_format == keras.config.image_data_format()


def test_unknown_spatial_sizes(rng):
    """CASES 028: one model takes images of any size; tokens of an image are its pixels in row-major order."""
    inputs = keras.Input((None, None, 16))
    x = keras_polycom.PLN(8)(inputs)
    x = keras_polycom.PolyNorm()(x)
    x = keras_polycom.MixNormalization(4, 2)(x)
    assert tuple(x.shape) == (None, None, None, 16)
    model = keras.Model(inputs, keras.layers.GlobalAveragePooling2D(data_format="channels_last")(x))
    for size in ((4, 6), (7, 3)):
        image = rng.standard_normal((1, *size, 16)).astype("float32")
        expected = ops.poly_norm(ops.parallel_layer_norm(image, 8), [1 / 3] * 3)
        expected = ops.mix_norm(keras.ops.reshape(expected, (1, size[0] * size[1], 16)), 4, 2)
        assert_close(model.predict(image, verbose=0), as_float64(expected).mean(axis=1), 1e-5)


def test_unknown_number_of_tokens(rng):
    inputs = keras.Input((None, 16))
    model = keras.Model(inputs, keras_polycom.MixNormalization(4, 2)(keras_polycom.PLN(8)(inputs)))
    expected = traced(lambda x: ops.mix_norm(ops.parallel_layer_norm(x, 8), 4, 2))
    for tokens in (4, 7):
        x = rng.standard_normal((2, tokens, 16)).astype("float32")
        assert_close(model.predict(x, verbose=0), as_float64(expected(x)), 1e-5)


class TestMask:
    def test_mask_arrives_and_padding_does_not_matter(self):
        """CASES 054: what the padded steps hold reaches nothing behind."""
        seen = []

        class Probe(keras.layers.Layer):
            supports_masking = True

            def call(self, inputs, mask=None):
                seen.append(mask)
                return inputs

        def pooled(padding):
            keras.utils.set_random_seed(3)
            embedding = keras.layers.Embedding(5, 8, mask_zero=True)
            ids = keras.ops.convert_to_tensor(np.array([[1, 2, 3, 0, 0], [4, 3, 2, 1, 1]]))
            x = embedding(ids)
            table = as_float64(embedding.embeddings)
            table[0] = padding
            embedding.embeddings.assign(table)
            x = embedding(ids)
            for layer in (keras_polycom.PLN(4), keras_polycom.PLS(4), keras_polycom.MixNormalization(2, 2), Probe()):
                x = layer(x)
            return as_float64(keras.layers.GlobalAveragePooling1D()(x))

        np.testing.assert_array_equal(pooled(0.5), pooled(-70.0))
        np.testing.assert_array_equal(as_float64(seen[0]), [[1, 1, 1, 0, 0], [1] * 5])

    def test_masked_tokens_of_an_image(self, rng):
        x = rng.standard_normal((2, 2, 3, 4)).astype("float32")
        mask = rng.uniform(size=(2, 2, 3)) < 0.6
        out = keras_polycom.MixNormalization(3, 2)(
            keras.ops.convert_to_tensor(x), mask=keras.ops.convert_to_tensor(mask)
        )
        expected = ops.mix_norm(x.reshape(2, 6, 4), 3, 2, mask=mask.reshape(2, 6))
        assert_close(out, as_float64(expected).reshape(x.shape), 1e-6)


@pytest.mark.parametrize("name", LAYERS)
def test_zero_rows_keep_gradients_finite(name):
    """CASES 009."""
    make, shape = LAYERS[name]
    layer = make(epsilon=0.0, beta_initializer=keras.initializers.RandomNormal(seed=1))
    x = np.zeros(shape, "float32")
    expected = np.broadcast_to(as_float64(run(layer, x))[:1], shape)
    assert_close(expected, np.broadcast_to(as_float64(layer.beta), shape), 0)
    assert all(np.isfinite(g).all() for g in weight_gradients(layer, [x]).values())


@pytest.mark.parametrize("kind", [keras_polycom.PLN, keras_polycom.PLS], ids=["pln", "pls"])
def test_mixed_float16_on_values_up_to_4500(kind):
    """CASES 002 and 019: float32 weights enter uncast, the squares do not overflow."""
    x = 300 * np.arange(16, dtype="float32")[None]
    half, full = kind(8, dtype="mixed_float16"), kind(8, dtype="float32")
    out = run(half, x.astype("float16"))
    assert keras.backend.standardize_dtype(out.dtype) == "float16"
    assert half.gamma.dtype == "float32"
    half.gamma.assign(np.full(16, 1 / 3))
    full.build(x.shape)
    full.gamma.assign(np.full(16, 1 / 3))
    assert_close(run(half, x.astype("float16")), as_float64(run(full, x)), 2e-3)


def test_time_distributed(rng):
    """CASES 086."""
    x = rng.standard_normal((2, 3, 4)).astype("float32")
    direct = as_float64(run(keras_polycom.PLN(2), x))
    layer = keras.layers.TimeDistributed(keras_polycom.PLN(2))
    assert_close(layer(keras.ops.convert_to_tensor(x)), direct, 1e-6)


def test_rank_1(rng):
    """CASES 086: an unbatched vector is as good as a batch of one."""
    x = rng.standard_normal(8).astype("float32")
    assert_close(run(keras_polycom.PLN(4), x), as_float64(run(keras_polycom.PLN(4), x[None]))[0], 1e-6)


def test_frozen_layer_does_not_move(rng):
    """CASES 027."""
    x = rng.standard_normal((8, 6)).astype("float32")
    norm = keras_polycom.PLN(3)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(6), norm, keras.layers.Dense(1)])
    norm.trainable = False
    model.compile("sgd", "mse")
    before = [as_float64(weight) for weight in model.weights]
    model.fit(x, x[:, :1], epochs=2, verbose=0)
    moved = [
        not np.array_equal(as_float64(weight), former) for weight, former in zip(model.weights, before, strict=True)
    ]
    assert moved == [True, True, False, False, True, True]


class TestErrors:
    @pytest.mark.parametrize(
        ("norm_size", "message"),
        [
            (0, "`norm_size` must be an integer of at least 1. Received: norm_size=0"),
            (-1, "norm_size=-1"),
            (2.5, r"norm_size=2\.5"),
            ("8", "norm_size='8'"),
            (1, "`norm_size` must be at least 2: a single channel minus its own mean is always 0"),
        ],
        ids=repr,
    )
    @pytest.mark.parametrize("kind", [keras_polycom.PLN, keras_polycom.CPLN], ids=["pln", "cpln"])
    def test_norm_size_at_construction(self, kind, norm_size, message):
        """CASES 062."""
        with pytest.raises(ValueError, match=message):
            kind(norm_size)

    @pytest.mark.parametrize("channels", [12, 4])
    def test_norm_size_at_build(self, channels):
        with pytest.raises(ValueError, match=f"must divide the number of channels.*norm_size=8, channels={channels}"):
            keras_polycom.PLN(8)(keras.ops.ones((2, channels)))

    def test_unknown_number_of_channels(self):
        with pytest.raises(ValueError, match=r"number of channels must be known.*channels=None, norm_size=8"):
            keras_polycom.PLN(8).build((None, None))
        with pytest.raises(ValueError, match=r"channel axis -1 of the input .* must have a known size"):
            keras_polycom.MixNormalization(2, 2).build((None, 5, None))

    def test_size_1_is_legal_without_centring(self):
        x = np.array([[-3.0, 0.0, 0.5]], "float32")
        assert_close(run(keras_polycom.PLS(1, epsilon=0.0), x), [[-1, 0, 1]], 0)

    def test_size_2_gives_signs_only(self, rng):
        x = rng.standard_normal((5, 8)).astype("float32")
        out = as_float64(run(keras_polycom.PLN(2, epsilon=0.0), x))
        np.testing.assert_allclose(out[:, ::2], np.sign(x[:, ::2] - x[:, 1::2]), rtol=1e-6)

    def test_other_number_of_channels_later(self):
        layer = keras_polycom.PLN(4)
        layer(keras.ops.ones((2, 8)))
        with pytest.raises(ValueError, match="expected axis -1 of input shape to have value 8"):
            layer(keras.ops.ones((2, 12)))

    def test_axis_that_is_not_there(self):
        with pytest.raises(ValueError, match=r"`axis` must lie in \[-2, 2\)"):
            keras_polycom.PLN(4, axis=2).build((None, 8))

    @pytest.mark.parametrize("epsilon", [-1, float("nan"), "small"])
    def test_epsilon(self, epsilon):
        with pytest.raises(ValueError, match="`epsilon` must be a finite number of at least 0"):
            keras_polycom.PLN(epsilon=epsilon)

    def test_data_format(self):
        with pytest.raises(ValueError, match="`data_format` must be 'channels_last', 'channels_first' or None"):
            keras_polycom.CPLN(data_format="NHWC")

    @pytest.mark.parametrize(
        ("make", "shape", "message"),
        [
            (lambda: keras_polycom.MixNormalization(6, 2), (None, 5, 8), "token_groups=6, tokens=5"),
            (lambda: keras_polycom.MixNormalization(2, 9), (None, None, 8), "channel_groups=9, channels=8"),
            (lambda: keras_polycom.MixNormalization(2, 2), (None, 8), r"\(batch, tokens, channels\)"),
            (lambda: keras_polycom.PatchGroupNormalization(9, 1), (None, 4, 4, 8), "channel_groups=9, channels=8"),
            (lambda: keras_polycom.PatchGroupNormalization(2, 5), (None, None, 4, 8), "patches=5"),
            (lambda: keras_polycom.PatchGroupNormalization(2, 1), (None, 8), "spatial axes"),
        ],
        ids=["tokens", "channels", "rank", "patch_channels", "patches", "patch_rank"],
    )
    def test_groups_at_build(self, make, shape, message):
        with pytest.raises(ValueError, match=message):
            make().build(shape)

    @pytest.mark.parametrize("value", [0, -2, 1.5, None])
    def test_groups_at_construction(self, value):
        with pytest.raises(ValueError, match=f"`token_groups` must be an integer of at least 1.*{value}"):
            keras_polycom.MixNormalization(value, 2)
        with pytest.raises(ValueError, match=f"`patches` must be an integer of at least 1.*{value}"):
            keras_polycom.PatchGroupNormalization(2, value)


class TestNames:
    """The names models and scripts use; numbers in brackets set the sizes, as the paper writes PLN[4]."""

    @pytest.mark.parametrize("registry", [activations, normalizations], ids=["activations", "normalizations"])
    @pytest.mark.parametrize(
        ("name", "kind", "settings"),
        [
            ("pln", keras_polycom.PLN, {"norm_size": 8}),
            ("pln[4]", keras_polycom.PLN, {"norm_size": 4}),
            ("pls[16]", keras_polycom.PLS, {"norm_size": 16}),
            ("mix_norm", keras_polycom.MixNormalization, {"token_groups": 4, "channel_groups": 4}),
            ("mix_norm[2,12]", keras_polycom.MixNormalization, {"token_groups": 2, "channel_groups": 12}),
            ("mix_norm[2, 12]", keras_polycom.MixNormalization, {"token_groups": 2, "channel_groups": 12}),
            ("patch_group_norm[4,2]", keras_polycom.PatchGroupNormalization, {"channel_groups": 4, "patches": 2}),
        ],
    )
    def test_known(self, registry, name, kind, settings):
        layer = registry.get(name, name="it", dtype="float64")
        assert type(layer) is kind
        assert (layer.name, layer.compute_dtype) == ("it", "float64")
        assert {key: getattr(layer, key) for key in settings} == settings
        assert registry.serialize(name) == name

    def test_channels_first(self):
        assert normalizations.get("pln[4]", axis=1).axis == 1

    @pytest.mark.parametrize(
        "name", ["pln[x]", "pln[]", "pln[4", "pln[4,2]", "pln[-4]", "mix_norm[2]", "relu[3]", "no[1]"]
    )
    def test_unknown(self, name):
        with pytest.raises(ValueError) as error:
            activations.get(name)
        assert f"Unknown activation {name!r}" in str(error.value)
        assert "pln or pln[norm_size]" in str(error.value)
        assert "mix_norm[token_groups,channel_groups]" in str(error.value)

    def test_illegal_size(self):
        with pytest.raises(ValueError, match="Received: norm_size=0"):
            activations.get("pln[0]")

    def test_as_the_nonlinearity_of_a_feed_forward_layer(self, rng):
        x = rng.standard_normal((2, 5, 6)).astype("float32")
        layer = keras_polycom.FeedForward(8, activation="pln[4]")
        layer.build(x.shape)
        assert [w.path.split("/")[-2] for w in layer.weights].count("activation") == 2
        hidden = ops.parallel_layer_norm(layer.up_proj(x), 4)
        assert_close(run(layer, x), as_float64(layer.down_proj(hidden)), 1e-5)
