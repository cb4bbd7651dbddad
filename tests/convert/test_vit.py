"""Vision transformers of timm and torchvision, and the encoder of MAE."""

import keras
import numpy as np
import pytest
from reference_values import FOLDER, as_float64, assert_close
from torch_states import as_torchvision_vit, channels_last, reference, refused, vit_forward

from keras_polycom import PolyNorm, convert
from keras_polycom.convert.rows import Row
from keras_polycom.convert.transfer import transfer
from keras_polycom.convert.vit import PUBLISHED_HEADS, heads
from keras_polycom.models import ViT

HEADS = {"timm_vit_small": 3, "timm_vit_deep": 2}
SMALL = {
    "image_shape": (16, 16, 3),
    "patch_size": 4,
    "num_layers": 2,
    "hidden_dim": 48,
    "num_heads": 3,
    "num_classes": 7,
    "data_format": "channels_last",
}


def small(**changes):
    return ViT(**{**SMALL, **changes})


def small_state(**changes):
    """The small reference's state dict with some tensors changed, those changed to `None` taken out."""
    state = {**reference("timm_vit_small")[0], **changes}
    return {name: array for name, array in state.items() if array is not None}


def weights_of(model):
    return {v.path: as_float64(v) for v in model.weights}


# === The real implementations' numbers ===


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("timm_vit_small", "timm"),
        ("timm_vit_small", "torchvision"),
        ("timm_vit_deep", "timm"),
        ("timm_vit_deep", "older torchvision"),
    ],
)
def test_made_model_equals_the_real_one(name, names):
    state, case = reference(name)
    if names != "timm":
        state = as_torchvision_vit(state, ("0", "3") if names == "torchvision" else ("linear_1", "linear_2"))
    model = convert.make_vit(state, num_heads=HEADS[name], data_format="channels_last")
    assert model.num_layers == (12 if name == "timm_vit_deep" else 2)
    outputs = keras.Model(model.input, [model.get_layer("final_norm").output, model.output])
    tokens, logits = outputs(channels_last(case["x_nchw"]), training=False)
    assert_close(tokens, case["tokens"], 1e-4, "tokens")
    assert_close(logits, case["logits"], 1e-4, "logits")


def test_given_model_equals_the_real_one():
    _, case = reference("timm_vit_small")
    model = small()
    summary = convert.load_vit(model, FOLDER / "timm_vit_small.safetensors")
    assert len(set(summary.loaded)) == len(model.weights)
    assert (summary.kept, summary.left_out, summary.notes) == ((), (), ())
    assert str(summary) == f"{len(model.weights)} weights loaded."
    assert_close(model(channels_last(case["x_nchw"]), training=False), case["logits"], 1e-4)


def test_every_block_equals_the_formula():
    """CASES 044; the formula itself is held to timm's tokens."""
    state, case = reference("timm_vit_small")
    tokens, behind = vit_forward(state, case["x_nchw"], heads=3)
    assert_close(tokens, case["tokens"], 1e-5, "the formula")
    model = convert.make_vit(state, num_heads=3, data_format="channels_last")
    blocks = [model.get_layer(f"block_{i}_feed_forward_add").output for i in range(2)]
    for index, output in enumerate(keras.Model(model.input, blocks)(channels_last(case["x_nchw"]))):
        assert_close(output, behind[index], 1e-4, f"block {index}")


@pytest.mark.parametrize("kept", ["q", "k", "v", "qk", "qv", "kv"])
def test_queries_keys_and_values_are_told_apart(kept):
    """CASES 044: with one or two of the three left, the numbers still are the formula's."""
    state, case = reference("timm_vit_small")
    for name in [name for name in state if ".qkv." in name]:
        thirds = np.split(state[name].copy(), 3)
        for part, third in zip("qkv", thirds, strict=True):
            third *= part in kept
        state[name] = np.concatenate(thirds)
    expected, _ = vit_forward(state, case["x_nchw"], heads=3)
    model = small(num_classes=None, pooling=None)
    convert.load_vit(model, state, head=False)
    assert_close(model(channels_last(case["x_nchw"]), training=False), expected, 1e-4)
    values = {path: array for path, array in weights_of(model).items() if "_attention/" in path}
    for part, name in zip("qkv", ("query", "key", "value"), strict=True):
        chosen = [array for path, array in values.items() if f"/{name}/" in path]
        assert len(chosen) == 4 and all(array.any() == (part in kept) for array in chosen)


def test_a_patch_that_is_not_square(rng):
    state = small_state(
        **{
            "patch_embed.proj.weight": rng.standard_normal((48, 2, 4, 8)).astype("float32"),
            "pos_embed": rng.standard_normal((1, 9, 48)).astype("float32"),
        }
    )
    images = rng.standard_normal((2, 2, 16, 16)).astype("float32")
    model = convert.make_vit(
        state, num_heads=3, image_shape=(16, 16, 2), head=False, pooling=None, data_format="channels_last"
    )
    assert (model.patch_size, model.image_shape) == ((4, 8), (16, 16, 2))
    assert_close(model(channels_last(images)), vit_forward(state, images, heads=3)[0], 1e-4)


def test_the_norm_after_pooling(rng):
    """timm's `fc_norm`, which the fine-tuned models of MAE have."""
    state, case = reference("timm_vit_small")
    for kind in ("weight", "bias"):
        state[f"fc_norm.{kind}"] = state.pop(f"norm.{kind}") + rng.standard_normal(48).astype("float32")
    expected, _ = vit_forward(state, case["x_nchw"], heads=3, pool="mean")
    images = channels_last(case["x_nchw"])
    model = convert.make_vit({"model": state, "epoch": 99}, num_heads=3, data_format="channels_last")
    assert model.pooling == "mean_before_norm" and model.class_token
    assert_close(model(images, training=False), expected, 1e-4)
    twin = ViT.from_config(model.get_config())
    convert.load_vit(twin, state)
    assert_close(twin(images, training=False), expected, 1e-4)
    del state["cls_token"]
    state["pos_embed"] = state["pos_embed"][:, 1:]
    model = convert.make_vit(state, num_heads=3, pooling="mean_before_norm", data_format="channels_last")
    assert not model.class_token
    assert_close(model(images), vit_forward(state, case["x_nchw"], heads=3, pool="mean")[0], 1e-4)
    message = refused(
        lambda: convert.load_vit(small(), {**state, "cls_token": np.zeros((1, 1, 48))}), "Unused: fc_norm."
    )
    assert "it needs a ViT with pooling='mean_before_norm'" in message


@pytest.mark.skipif(keras.backend.backend() == "tensorflow", reason="its CPU has no channels-first convolution")
def test_channels_first():
    state, case = reference("timm_vit_small")
    model = convert.make_vit(state, num_heads=3, data_format="channels_first")
    assert model.image_shape == (3, 16, 16)
    assert_close(model(case["x_nchw"], training=False), case["logits"], 1e-4)


def test_variables_of_another_dtype():
    variable = keras.Variable(np.zeros((2, 2)), dtype="bfloat16")
    transfer(
        "model", {"head/kernel": variable}, [Row("head.weight", "head/kernel")], {"head.weight": np.full((2, 2), 1.5)}
    )
    assert variable.dtype == "bfloat16"
    np.testing.assert_array_equal(as_float64(variable), np.full((2, 2), 1.5))


# === What is not in the state dict ===


def test_learned_activations_keep_their_start_and_train():
    state, case = reference("timm_vit_small")
    before = {name: array.copy() for name, array in state.items()}
    model = small(activation=PolyNorm(coefficients_initializer=[0.5, 0.25, 0.125]))
    summary = convert.load_vit(model, state)
    assert len(summary.kept) == 4 and "4 weights keep their values: block_0_feed_forward/" in str(summary)
    activation = model.get_layer("block_1_feed_forward").activation
    np.testing.assert_array_equal(as_float64(activation.coefficients), [0.5, 0.25, 0.125])
    np.testing.assert_array_equal(as_float64(model.get_layer("head").kernel), state["head.weight"].T)
    model.compile("adam", "mse", jit_compile=keras.backend.backend() == "jax")
    model.fit(channels_last(case["x_nchw"]), case["logits"], verbose=0)
    assert np.any(as_float64(activation.coefficients) != [0.5, 0.25, 0.125])
    for name, array in before.items():
        np.testing.assert_array_equal(state[name], array, err_msg=f"training changed the caller's {name}")


def test_without_biases_of_queries_keys_and_values():
    """timm's qkv_bias=False keeps the bias of the projection."""
    state, case = reference("timm_vit_small")
    state = {name: array for name, array in state.items() if not name.endswith("qkv.bias")}
    expected, _ = vit_forward(state, case["x_nchw"], heads=3)
    model = convert.make_vit(state, num_heads=3, head=False, pooling=None, data_format="channels_last")
    assert_close(model(channels_last(case["x_nchw"])), expected, 1e-4)
    assert "The state dict has no biases of queries" in str(convert.load_vit(model, state, head=False))
    one = {**state, "blocks.0.attn.qkv.bias": np.zeros(144)}
    refused(lambda: convert.load_vit(model, one, head=False), "(1 missing,", "blocks.1.attn.qkv.bias", model=model)
    none = {name: array for name, array in state.items() if not name.endswith("attn.proj.bias")}
    assert not convert.make_vit(none, num_heads=3).qkv_bias


def test_the_head_can_be_left_out():
    model = small(num_classes=4)
    message = refused(
        lambda: convert.load_vit(model, small_state()),
        "(0 missing, 0 unused, 2 misshapen). Nothing was written.",
        "Misshapen: head.weight has the shape (7, 48) where (4, 48) is expected (for head/kernel (48, 4))",
        "To leave the classifier out, on both sides: head=False.",
        model=model,
    )
    assert "Setting" not in message
    before = as_float64(model.get_layer("head").kernel)
    summary = convert.load_vit(model, small_state(), head=False)
    assert set(summary.left_out) == {"head.weight", "head.bias"}
    assert set(summary.kept) == {"head/kernel", "head/bias"}
    np.testing.assert_array_equal(as_float64(model.get_layer("head").kernel), before)
    refused(lambda: convert.load_vit(small(num_classes=None), small_state()), "Unused: head.weight (7, 48)")
    refused(
        lambda: convert.load_vit(small(), small_state(**{"head.bias": None})), "Missing: head.bias (for head/bias (7,))"
    )
    assert convert.make_vit(small_state(), num_heads=3, head=False, num_classes=9).num_classes == 9
    assert convert.make_vit(small_state(), num_heads=3, head=False).num_classes is None
    refused(lambda: convert.make_vit(small_state(), num_heads=3, num_classes=9), "head=False")


def test_torchvisions_head_can_be_left_out():
    summary = convert.load_vit(small(num_classes=4), as_torchvision_vit(small_state()), head=False)
    assert set(summary.left_out) == {"heads.head.weight", "heads.head.bias"}


# === Refusals ===


def test_everything_that_does_not_fit_is_listed_and_nothing_written():
    model = small(normalization=lambda: keras.layers.LayerNormalization(epsilon=1e-3))
    state = small_state(
        **{
            "norm.bias": None,
            "blocks.1.mlp.fc1.weight": np.zeros((100, 48)),
            "blocks.0.ls1.gamma": np.ones(48),
            "reg_token": np.zeros((1, 4, 48)),
            "blocks.0.attn.num_batches_tracked": np.array(3),
        }
    )
    message = refused(
        lambda: convert.load_vit(model, state),
        "(1 missing, 2 unused, 1 misshapen). Nothing was written.",
        "Missing: norm.bias (for final_norm/beta (48,))",
        "Unused: blocks.0.ls1.gamma (48,)",
        "Unused: reg_token (1, 4, 48)",
        "blocks.1.mlp.fc1.weight has the shape (100, 48) where (192, 48) is expected",
        "Setting: block_1_feed_forward_norm has epsilon=0.001 where the weights were trained with 1e-06",
        model=model,
    )
    assert message.count("Setting:") == 5 and "num_batches_tracked" not in message


@pytest.mark.parametrize("kind", ["keras default", "1e-5", "rms"])
def test_another_normalization_is_refused(kind):
    """CASES 044: Keras's default epsilon is 1e-3, that of these models 1e-6."""
    made = {
        "keras default": keras.layers.LayerNormalization,
        "1e-5": lambda: keras.layers.LayerNormalization(epsilon=1e-5),
        "rms": "rms_norm",
    }
    model = small(normalization=made[kind])
    text = "is a RMSNormalization where the weights are of a LayerNormalization" if kind == "rms" else "epsilon="
    refused(lambda: convert.load_vit(model, small_state()), text, model=model)


def test_another_epsilon_can_be_asked_for():
    model = convert.make_vit(small_state(), num_heads=3, epsilon=1e-5)
    assert model.get_layer("block_1_attention_norm").epsilon == 1e-5
    refused(lambda: convert.load_vit(model, small_state()), "final_norm has epsilon=1e-05")
    convert.load_vit(model, small_state(), epsilon=1e-5)


@pytest.mark.parametrize("feed_forward", ["swiglu", "qd_moa"])
def test_weights_without_a_tensor_are_listed(feed_forward):
    model = small(feed_forward=feed_forward)
    name = "gate_proj/kernel" if feed_forward == "swiglu" else "mixing_kernel"
    refused(
        lambda: convert.load_vit(model, small_state()),
        f"Missing: nothing stands for block_0_feed_forward/{name}",
        model=model,
    )


def test_other_names_and_models_are_refused():
    state = {f"module.{name}": array for name, array in small_state().items()}
    refused(lambda: convert.load_vit(small(), state), "Neither 'patch_embed.proj.weight' (timm, MAE) nor", "prefix=")
    convert.load_vit(small(), convert.read_state_dict(state, prefix="module."))
    for model in (keras.Sequential([keras.layers.Dense(2)]), keras.layers.Dense(2)):
        with pytest.raises(TypeError, match=r"Expected a keras_polycom.models.ViT, .* without patch_embedding"):
            convert.load_vit(model, small_state())


def test_sizes_that_cannot_be_read_off():
    refused(
        lambda: convert.make_vit(small_state()),
        "`num_heads` cannot be told from the weights and no published model has the width 48",
        "192: 3, 384: 6, 768: 12, 1024: 16, 1280: 16",
    )
    refused(
        lambda: convert.make_vit(small_state(), num_heads=3, mlp_dim=3, patch_size=2), "not to be given: mlp_dim, patch"
    )
    refused(
        lambda: convert.make_vit(small_state(pos_embed=None), num_heads=3),
        "Among the names of the state dict: blocks.0.mlp.fc1.weight (192, 48)",
    )
    refused(lambda: convert.make_vit(small_state(), num_heads=3, image_shape=(16, 16, 4)), "for images of 3 channels")
    refused(
        lambda: convert.make_vit(small_state(pos_embed=np.zeros((1, 13, 48))), num_heads=3),
        "12 rows for patches",
        "Give image_shape",
    )


@pytest.mark.parametrize(("width", "number"), [(192, 3), (384, 6), (768, 12), (1024, 16), (1280, 16)])
def test_published_heads_are_known(width, number):
    assert heads("num_heads", None, width, PUBLISHED_HEADS) == number
    assert heads("num_heads", 8, width, PUBLISHED_HEADS) == 8


# === Positions ===


@pytest.mark.parametrize("images", [(24, 24, 3), (8, 16, 3), (20, 12, 3)], ids=str)
def test_positions_are_resized(images):
    """CASES 035 and 087: the grid part is resized, the class token's row copied, and a message names both grids."""
    model = small(image_shape=images)
    rows, columns = images[0] // 4, images[1] // 4
    table = small_state()["pos_embed"]
    with pytest.warns(UserWarning, match=f"position table was resized from 4 x 4 to {rows} x {columns} patches"):
        summary = convert.load_vit(model, small_state())
    assert summary.notes[0] in str(summary)
    loaded = as_float64(model.get_layer("position_embedding").table)
    np.testing.assert_array_equal(loaded[:, 0], table[:, 0])
    assert_close(loaded, convert.resize_position_table(table, (4, 4), (rows, columns)), 1e-6)
    with pytest.warns(UserWarning, match=f"from 4 x 4 to {rows} x {columns}"):
        made = convert.make_vit(small_state(), num_heads=3, image_shape=images, data_format="channels_last")
    np.testing.assert_array_equal(as_float64(made.get_layer("position_embedding").table), loaded)


def test_positions_without_a_class_token_are_resized():
    """CASES 035: a model without a class token takes a table without its row."""
    table = small_state()["pos_embed"][:, 1:]
    model = small(image_shape=(24, 24, 3), pooling="mean")
    with pytest.warns(UserWarning, match="from 4 x 4 to 6 x 6"):
        convert.load_vit(model, small_state(pos_embed=table, cls_token=None))
    expected = convert.resize_position_table(table, (4, 4), (6, 6), prefix=0)
    assert_close(model.get_layer("position_embedding").table, expected, 1e-6)


def test_the_grid_of_the_table_can_be_given():
    model = small(image_shape=(8, 32, 3))
    refused(
        lambda: convert.load_vit(model, small_state()),
        "16 patches, which may be a grid of (4, 4) or the model's (2, 8). Give grid=(rows, columns)",
        model=model,
    )
    convert.load_vit(model, small_state(), grid=(2, 8))
    np.testing.assert_array_equal(as_float64(model.get_layer("position_embedding").table), small_state()["pos_embed"])
    with pytest.warns(UserWarning, match="from 4 x 4 to 2 x 8"):
        convert.load_vit(model, small_state(), grid=(4, 4))
    refused(lambda: convert.load_vit(model, small_state(), grid=(3, 5)), "16 rows for patches where grid=(3, 5) has 15")


@pytest.mark.parametrize(
    ("changes", "settings", "lines"),
    [
        ({"pos_embed": np.zeros((1, 14, 48))}, {}, ["has 14 rows: less 1 for the class token, that is no square grid"]),
        ({"pos_embed": np.zeros((1, 16, 48))}, {}, ["a table without a row for the class token is not supported"]),
        ({"pos_embed": np.zeros((1, 17, 32))}, {}, ["has the shape (1, 17, 32) where (1, tokens, 48) is expected"]),
        ({"pos_embed": np.zeros((17, 48))}, {}, ["has the shape (17, 48) where (1, tokens, 48) is expected"]),
        ({}, {"pooling": "mean"}, ["Unused: cls_token (1, 1, 48)"]),
        ({"cls_token": None, "pos_embed": np.zeros((1, 16, 48))}, {}, ["Missing: cls_token (for class_token/token"]),
        ({"reg_token": np.zeros((1, 4, 48)), "pos_embed": np.zeros((1, 21, 48))}, {}, ["Unused: reg_token", "21 rows"]),
    ],
    ids=["no grid", "no class row", "width", "rank", "no class token here", "no class token there", "registers"],
)
def test_positions_that_are_not_supported_are_an_error(changes, settings, lines):
    """CASES 035: never a random table."""
    model = small(image_shape=(24, 24, 3), **settings)
    refused(lambda: convert.load_vit(model, small_state(**changes)), *lines, model=model)


# === The encoder of MAE ===


def test_the_encoder_of_a_masked_autoencoder():
    """The published files for fine-tuning hold the encoder under timm's names, without a head."""
    state, case = reference("mae_norm_pix")
    images = channels_last(case["x_nchw"])
    encoder = {name: array for name, array in state.items() if "decoder" not in name and name != "mask_token"}
    model = convert.make_vit({"model": encoder}, num_heads=3, pooling=None, data_format="channels_last")
    assert_close(model(images), case["encoder_all_tokens"], 1e-4)
    whole = convert.make_vit(
        state, num_heads=3, pooling=None, ignore=["decoder_", "mask_token"], data_format="channels_last"
    )
    assert_close(whole(images), case["encoder_all_tokens"], 1e-4)
    classifier = ViT(**{**SMALL, "image_shape": (32, 32, 3), "patch_size": 8})
    refused(
        lambda: convert.load_vit(classifier, state),
        "Missing: head.weight",
        "Unused: decoder_embed.weight",
        "ignore=['decoder_', 'mask_token']",
        model=classifier,
    )
    convert.load_vit(classifier, encoder, head=False)
    np.testing.assert_array_equal(as_float64(classifier.get_layer("class_token").token), state["cls_token"])


def test_fine_tuning_begins_as_in_mae():
    """MAE's fine-tuning normalizes after pooling, with a fresh norm in place of the encoder's."""
    state, _ = reference("mae_norm_pix")
    state = {name: array for name, array in state.items() if "decoder" not in name and name != "mask_token"}
    model = ViT(**{**SMALL, "image_shape": (32, 32, 3), "patch_size": 8, "pooling": "mean_before_norm"})
    refused(lambda: convert.load_vit(model, state, head=False), "Unused: norm.weight", "head=False, ignore=['norm.']")
    summary = convert.load_vit(model, state, head=False, ignore="norm.")
    assert set(summary.kept) == {"final_norm/gamma", "final_norm/beta", "head/kernel", "head/bias"}
    assert set(summary.left_out) == {"norm.weight", "norm.bias"}
