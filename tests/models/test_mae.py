"""The masked autoencoder: the published numbers, its randomness, its training, and the way to a classifier."""

import functools
import inspect
import json

import keras
import numpy as np
import pytest
from harness import check_compiled_training
from reference_values import FOLDER, as_float64, assert_close

from keras_polycom import PolyNorm, convert, ops
from keras_polycom.layers import FeedForward
from keras_polycom.models import MAE, ViT

SMALL = {
    "image_shape": (8, 12, 3),
    "patch_size": 4,
    "num_layers": 1,
    "hidden_dim": 16,
    "num_heads": 2,
    "decoder_num_layers": 1,
    "decoder_hidden_dim": 8,
    "decoder_num_heads": 2,
    "mask_ratio": 0.5,
    "data_format": "channels_last",
}
PATCHES = 6
BACKEND = keras.backend.backend()
# XLA takes long to compile on TensorFlow: one test does it there. JAX always compiles.
QUICK = {"jit_compile": BACKEND == "jax"}


def small(**arguments):
    return MAE(**{**SMALL, **arguments})


@functools.cache
def shared():
    """One model for the tests that do not change it."""
    return small(seed=3)


def images_and_noise(count=5, seed=0):
    rng = np.random.default_rng(seed)
    images = rng.normal(size=(count, *SMALL["image_shape"])).astype("float32")
    return {"images": images, "noise": rng.random((count, PATCHES), dtype="float32")}


# === The published model's numbers ===


@pytest.mark.parametrize("name", ["mae_norm_pix", "mae_raw_pix"])
def test_equals_the_published_model(name):
    with np.load(FOLDER / f"{name}.npz") as file:
        case = dict(file)
    state = FOLDER / f"{name}.safetensors"
    normalize = name == "mae_norm_pix"
    model = convert.make_mae(
        state, num_heads=3, decoder_num_heads=2, normalize_pixels=normalize, data_format="channels_last"
    )
    for layer, width, class_token in (("patch_positions", 48, False), ("decoder_positions", 32, True)):
        table = ops.sincos_position_table((4, 4), width, class_token)
        assert_close(model.get_layer(layer).table, table[None], 1e-6, layer)

    images = case["x_nchw"].transpose(0, 2, 3, 1)
    output = model({"images": images, "noise": case["noise"]}, training=False)
    np.testing.assert_array_equal(as_float64(output["mask"]), case["mask"])
    assert_close(output["prediction"], case["pred"], 1e-4, "prediction")
    loss = model.reconstruction_loss(images, output["prediction"], output["mask"])
    assert_close(loss, case["loss"], 1e-4, "loss")
    assert_close(ops.patchify(images, (8, 8)), case["target_patches"], 1e-6, "patches")
    assert_close(model.make_encoder()(images), case["encoder_all_tokens"], 1e-4, "encoder")


def test_variance_with_n_is_an_option():
    patches = ops.patchify(images_and_noise()["images"], (4, 4))
    target = as_float64(small(unbiased_variance=False).target_patches(images_and_noise()["images"]))
    assert_close(target, as_float64(shared().target_patches(images_and_noise()["images"])) * np.sqrt(48 / 47), 1e-4)
    assert_close(target.std(-1), np.ones(patches.shape[:2]), 1e-4)


# === Masks ===


def test_masks_differ_between_images_and_calls_compiled_and_eager():
    model, images = shared(), np.zeros((5, *SMALL["image_shape"]), "float32")
    masks = [as_float64(model.predict(images, verbose=0)["mask"]) for _ in range(2)]
    masks += [as_float64(model(images)["mask"]) for _ in range(2)]
    for mask in masks:
        np.testing.assert_array_equal(mask.sum(1), np.full(5, PATCHES / 2))
    assert len({mask.tobytes() for mask in masks}) == 4, "a mask was repeated from call to call"
    assert len(np.unique(np.concatenate(masks), axis=0)) > 5, "the images of a batch share their mask"


def test_same_seed_gives_the_same_masks():
    masks = [as_float64(small(seed=3)(images_and_noise()["images"])["mask"]) for _ in range(2)]
    np.testing.assert_array_equal(*masks)


def test_noise_hides_the_same_patches_compiled_and_eager_with_ties():
    inputs = images_and_noise()
    inputs["noise"][0] = 0.5
    inputs["noise"][1, ::2] = 0.25
    order = np.argsort(np.argsort(inputs["noise"], axis=1, kind="stable"), axis=1, kind="stable")
    eager, compiled = shared()(inputs), shared().predict(inputs, verbose=0)
    np.testing.assert_array_equal(as_float64(eager["mask"]), order >= PATCHES // 2)
    np.testing.assert_array_equal(compiled["mask"], as_float64(eager["mask"]))
    assert_close(compiled["prediction"], eager["prediction"], 1e-5)


@pytest.mark.parametrize("ratio", [0, 1, -0.1, 0.999, 1.5, np.array(0.75), True])
def test_refused_mask_ratios(ratio):
    with pytest.raises(ValueError, match="mask_ratio"):
        small(mask_ratio=ratio)


def test_a_tensor_as_mask_ratio_is_refused_with_the_reason():
    with pytest.raises(ValueError, match="must be a Python number: it decides the shape"):
        small(mask_ratio=keras.ops.convert_to_tensor(0.75))


# === Training ===


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision_trains_without_overflow(policy):
    model, inputs = small(dtype=policy, seed=1), images_and_noise(8)
    inputs["images"] = 100 * inputs["images"]
    model.compile(keras.optimizers.SGD(0.05), **QUICK)
    losses = model.fit(inputs, batch_size=4, epochs=6, verbose=0).history["loss"]
    assert np.isfinite(losses).all() and losses[-1] < losses[0]
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer) == (policy == "mixed_float16")
    if policy == "mixed_float16":
        assert float(keras.ops.convert_to_numpy(model.optimizer.dynamic_scale)) >= 2**14, "steps were skipped"
    assert {v.dtype for v in model.trainable_variables} == {"float32"}
    assert keras.backend.standardize_dtype(model.output["prediction"].dtype) == policy.removeprefix("mixed_")


def test_float64_trains():
    """CASES 019."""
    model, inputs = small(dtype="float64", seed=1), images_and_noise(4)
    model.compile(keras.optimizers.SGD(0.1), **QUICK)
    losses = model.fit(inputs, batch_size=4, epochs=3, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    assert {v.dtype for v in model.trainable_variables} == {"float64"}
    assert keras.backend.standardize_dtype(model(inputs)["prediction"].dtype) == "float64"


def test_fit_compiled_with_an_odd_last_batch():
    model = small(dropout=0.1, seed=1)
    model.compile(keras.optimizers.SGD(0.1), jit_compile=BACKEND != "torch")
    before = as_float64(model.get_layer("random_masking").seed_generator.state)
    inputs = images_and_noise(7)
    history = model.fit(
        inputs["images"], batch_size=4, epochs=2, validation_data=(inputs, None), validation_batch_size=7, verbose=0
    ).history
    assert np.isfinite([*history["loss"], *history["val_loss"]]).all()
    assert np.any(as_float64(model.get_layer("random_masking").seed_generator.state) != before)
    for _ in range(2):
        again = model.evaluate(inputs, batch_size=7, verbose=0)
        assert again == pytest.approx(history["val_loss"][-1], rel=1e-6), "validation with noise is not deterministic"


@pytest.mark.skipif(BACKEND != "tensorflow", reason="JAX always uses XLA, and PyTorch takes a minute to compile")
def test_compiled_training_equals_eager_training():
    """Patch extraction and gathering, forward and backward, with noise as second input."""
    check_compiled_training(small, images_and_noise(4), batch_size=4)


def test_fit_learns_and_moves_every_weight():
    model = small(seed=1)
    model.compile(keras.optimizers.Adam(1e-2), **QUICK)
    inputs = images_and_noise(8)
    before = {v.path: as_float64(v) for v in model.variables}
    losses = model.fit(inputs, batch_size=8, epochs=12, verbose=0).history["loss"]
    assert losses[-1] < 0.9 * losses[0]
    trainable = {v.path for v in model.trainable_variables}
    for variable in model.variables:
        moved = np.any(as_float64(variable) != before[variable.path])
        if "key/bias" not in variable.path and "seed_generator" not in variable.path:  # softmax ignores the key's bias
            assert moved == (variable.path in trainable), variable.path
    assert not any("positions" in path for path in trainable)


def test_compiled_loss_is_the_eager_loss():
    model, inputs = small(), images_and_noise()
    model.compile(**QUICK)
    output = model(inputs, training=False)
    loss = model.reconstruction_loss(inputs["images"], output["prediction"], output["mask"])
    assert model.evaluate(inputs, verbose=0) == pytest.approx(as_float64(loss), rel=1e-5)
    assert model.evaluate(inputs, np.ones(5), verbose=0) == pytest.approx(as_float64(loss), rel=1e-5), "labels count"


def test_only_hidden_patches_count_in_the_loss():
    model, inputs = shared(), images_and_noise()
    output = model(inputs)
    visible = 1 - keras.ops.expand_dims(output["mask"], -1)
    moved = output["prediction"] + 100 * visible
    losses = [
        as_float64(model.reconstruction_loss(inputs["images"], prediction, output["mask"]))
        for prediction in (output["prediction"], moved)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_regularization_losses_are_added():
    def regularized(hidden_dim, **kwargs):
        return FeedForward(hidden_dim, kernel_regularizer=keras.regularizers.L2(1.0), **kwargs)

    model, inputs = small(feed_forward=regularized), images_and_noise()
    model.compile(**QUICK)
    output = model(inputs)
    squares = sum(
        np.sum(as_float64(v) ** 2) for v in model.trainable_variables if "feed_forward" in v.path and "kernel" in v.path
    )
    loss = as_float64(model.reconstruction_loss(inputs["images"], output["prediction"], output["mask"]))
    assert model.evaluate(inputs, verbose=0) == pytest.approx(loss + squares, rel=1e-4)


def test_sample_weights_are_refused():
    model, inputs = small(), images_and_noise()
    model.compile(**QUICK)
    with pytest.raises(ValueError, match="takes no sample weights"):
        model.evaluate(inputs["images"], np.zeros(5), sample_weight=np.ones(5), verbose=0)


# === Parts that can be swapped ===


@pytest.mark.parametrize("feed_forward", ["swiglu", "qd_moa"])
def test_other_feed_forward_layers_train_and_reload(feed_forward, tmp_path):
    model, inputs = small(feed_forward=feed_forward), images_and_noise()
    model.compile("adam", **QUICK)
    assert np.isfinite(model.fit(inputs, verbose=0).history["loss"]).all()
    check_reload(model, inputs, tmp_path)


@pytest.mark.parametrize(
    "feed_forward",
    [FeedForward, lambda hidden_dim, **kwargs: FeedForward(hidden_dim, **kwargs), FeedForward(5)],
    ids=["class", "maker", "instance"],
)
def test_decoder_gets_a_feed_forward_layer_of_its_own_size(feed_forward):
    model = small(feed_forward=feed_forward, activation=PolyNorm(order=2), mlp_dim=20, decoder_mlp_dim=10)
    sizes = [model.get_layer(f"{p}block_0_feed_forward").hidden_dim for p in ("", "decoder_")]
    assert sizes == ([5, 5] if isinstance(feed_forward, FeedForward) else [20, 10])
    if not isinstance(feed_forward, FeedForward):
        coefficients = [v for v in model.trainable_variables if v.path.endswith("coefficients")]
        assert len(coefficients) == 2, "the activation is not a fresh one in every block"
    twin = MAE.from_config(json.loads(json.dumps(model.get_config())))
    assert json.dumps(twin.get_config()) == json.dumps(model.get_config())
    assert [v.shape for v in twin.weights] == [v.shape for v in model.weights]


def test_a_built_feed_forward_instance_serves_encoder_and_decoder():
    layer = FeedForward(5)
    layer.build((None, None, 16))
    model = small(feed_forward=layer)
    assert model.get_layer("block_0_feed_forward").up_proj.kernel is not layer.up_proj.kernel
    assert model.get_layer("decoder_block_0_feed_forward").up_proj.kernel.shape == (8, 5)


def check_reload(model, inputs, folder):
    model.save(folder / "model.keras")
    loaded = keras.saving.load_model(folder / "model.keras")
    assert isinstance(loaded, MAE)
    assert json.dumps(loaded.get_config()) == json.dumps(model.get_config())
    for name in ("mask", "prediction"):
        assert_close(loaded(inputs)[name], as_float64(model(inputs)[name]), 1e-6, name)


def test_config_holds_every_argument_and_survives_a_reload(tmp_path):
    arguments = {
        **SMALL,
        "image_shape": (8, 12, 5),
        "patch_size": (4, 2),
        "mlp_dim": 12,
        "decoder_mlp_dim": 6,
        "mask_ratio": 0.25,
        "normalize_pixels": False,
        "unbiased_variance": False,
        "activation": "relu",
        "feed_forward": "glu",
        "decoder_feed_forward": "mlp",
        "normalization": "rms_norm",
        "dropout": 0.1,
        "attention_dropout": 0.2,
        "drop_path": 0.3,
        "qkv_bias": False,
        "seed": 4,
        "name": "painter",
        "trainable": False,
    }
    model = MAE(**arguments)
    config = model.get_config()
    assert {key: tuple(v) if isinstance(v, list) else v for key, v in config.items() if key in arguments} == arguments
    rng = np.random.default_rng(1)
    inputs = {
        "images": rng.normal(size=(3, 8, 12, 5)).astype("float32"),
        "noise": rng.random((3, 12), dtype="float32"),
    }
    check_reload(model, inputs, tmp_path)
    model.save_weights(tmp_path / "model.weights.h5")
    fresh = MAE.from_config(model.get_config())
    fresh.load_weights(tmp_path / "model.weights.h5")
    assert_close(fresh(inputs)["prediction"], as_float64(model(inputs)["prediction"]), 1e-6, ".weights.h5")
    assert model.reconstruct(**inputs)[0].shape == (3, 8, 12, 5)


@pytest.mark.skipif(BACKEND == "tensorflow", reason="TensorFlow has no channels-first convolution on CPU")
def test_channels_first_gives_the_same_numbers():
    model = small(data_format="channels_first", image_shape=(3, 8, 12))
    model.set_weights(shared().get_weights())
    inputs = images_and_noise()
    output = model({**inputs, "images": inputs["images"].transpose(0, 3, 1, 2)})
    assert_close(output["prediction"], as_float64(shared()(inputs)["prediction"]), 1e-5)
    painted, _ = model.reconstruct(inputs["images"].transpose(0, 3, 1, 2), inputs["noise"])
    expected, _ = shared().reconstruct(inputs["images"], inputs["noise"])
    assert_close(as_float64(painted).transpose(0, 2, 3, 1), expected, 1e-5)


@pytest.mark.parametrize("normalize", [True, False], ids=["normalized", "raw"])
def test_reconstruct_pastes_the_prediction_into_hidden_patches(normalize):
    model, inputs = small(normalize_pixels=normalize), images_and_noise()
    painted, mask = model.reconstruct(**inputs)
    patches, mask = as_float64(ops.patchify(inputs["images"], (4, 4))), as_float64(mask)[..., None]
    prediction = as_float64(model(inputs)["prediction"])
    if normalize:
        deviation = np.sqrt(patches.var(-1, ddof=1, keepdims=True) + 1e-6)
        prediction = prediction * deviation + patches.mean(-1, keepdims=True)
    expected = as_float64(ops.unpatchify(np.where(mask, prediction, patches), (4, 4), (2, 3)))
    assert_close(painted, expected, 1e-5)


@pytest.mark.parametrize(
    "inputs",
    [np.zeros((2, 12, 8, 3)), {"noise": np.zeros((2, 6))}, {"images": np.zeros((2, 8, 12, 3)), "ids": np.zeros(2)}],
    ids=["shape", "missing", "unknown"],
)
def test_refused_inputs(inputs):
    with pytest.raises(ValueError, match="Expected images"):
        shared()(inputs)


def test_noise_of_another_length_is_refused():
    with pytest.raises(ValueError, match=r"Expected noise of shape \(batch, 6\)"):
        shared()({**images_and_noise(), "noise": np.zeros((5, 7), "float32")})


# === Encoder and classifier ===


def test_encoder_is_deterministic_and_shares_its_weights():
    model, images = small(), images_and_noise()["images"]
    encoder = model.make_encoder()
    first = as_float64(encoder(images, training=False))
    np.testing.assert_array_equal(first, as_float64(encoder(images, training=False)))
    assert first.shape == (5, 1 + PATCHES, 16)
    model.get_layer("final_norm").beta.assign(np.ones(16))
    assert_close(encoder(images), first + 1, 1e-5)


@pytest.mark.parametrize("feed_forward", ["mlp", "qd_moa"])
def test_classifier_has_the_encoders_weights(feed_forward):
    model, images = small(feed_forward=feed_forward, activation="poly_norm"), images_and_noise()["images"]
    for variable in model.trainable_variables:
        variable.assign(as_float64(variable) + 0.1 * np.random.default_rng(0).normal(size=variable.shape))
    body = model.to_classifier(None, pooling=None)
    assert isinstance(body, ViT)
    assert_close(body(images), as_float64(model.make_encoder()(images)), 1e-5)
    tokens = as_float64(body(images))
    classifier = model.to_classifier(4, drop_path=0.1, classifier_activation="softmax")
    head = classifier.get_layer("head")
    logits = tokens[:, 0] @ as_float64(head.kernel)
    assert_close(classifier(images), np.exp(logits) / np.exp(logits).sum(-1, keepdims=True), 1e-4)
    assert classifier.drop_path == 0.1
    assert_close(model.to_classifier(None, pooling="mean")(images), tokens[:, 1:].mean(1), 1e-5)


def test_classifier_of_another_image_size_sees_the_same_area():
    classifier = shared().to_classifier(3, image_shape=(16, 24, 3))
    table = as_float64(classifier.get_layer("position_embedding").table)[0]
    assert table.shape == (1 + 24, 16)
    np.testing.assert_array_equal(table[0], np.zeros(16))
    frequencies = 10000.0 ** -(np.arange(4) / 4)
    token = table[1 + 1 * 6 + 2]  # row 1, column 2 of 4 x 6, over 2 x 3
    waves = [wave(place * frequencies) for place in (0.75, 0.25) for wave in (np.sin, np.cos)]
    assert_close(token, np.concatenate(waves), 1e-6)
    assert classifier(np.zeros((1, 16, 24, 3), "float32")).shape == (1, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_layers": 3}, "num_layers"),
        ({"variant": "tiny/16"}, "variant"),
        ({"class_token": False}, "class_token"),
        ({"image_shape": (8, 12, 1)}, "3 channels"),
    ],
    ids=["layers", "variant", "class token", "channels"],
)
def test_refused_classifiers(arguments, message):
    with pytest.raises(ValueError, match=message):
        shared().to_classifier(3, **arguments)


def test_papers_sizes():
    defaults = {name: p.default for name, p in inspect.signature(MAE).parameters.items()}
    names = ("decoder_num_layers", "decoder_hidden_dim", "decoder_num_heads", "mask_ratio", "normalize_pixels")
    assert [defaults[name] for name in names] == [8, 512, 16, 0.75, True]
    model = MAE("tiny/16", num_layers=1, decoder_num_layers=1, decoder_hidden_dim=8, decoder_num_heads=2)
    assert (model.hidden_dim, model.num_heads, model.mlp_dim, model.decoder_mlp_dim) == (192, 3, 768, 32)
    assert (model.grid, model.num_patches, model.num_visible) == ((14, 14), 196, 49)
