"""The published masked autoencoder; more of its numbers are in tests/models/test_mae.py."""

import numpy as np
import pytest
from reference_values import FOLDER, as_float64, assert_close
from torch_states import channels_last, reference, refused

from keras_polycom import convert
from keras_polycom.models import MAE

HEADS = {"num_heads": 3, "decoder_num_heads": 2}
SMALL = {
    "image_shape": (32, 32, 3),
    "patch_size": 8,
    "num_layers": 2,
    "hidden_dim": 48,
    "decoder_num_layers": 1,
    "decoder_hidden_dim": 32,
    "data_format": "channels_last",
    **HEADS,
}


def test_a_made_and_a_given_model_are_the_same():
    state, _ = reference("mae_raw_pix")
    path = FOLDER / "mae_raw_pix.safetensors"
    made = convert.make_mae(path, **HEADS, normalize_pixels=False, data_format="channels_last")
    given = MAE(**SMALL, normalize_pixels=False)
    summary = convert.load_mae(given, {"model": state, "epoch": 399})
    assert len(set(summary.loaded)) == len(given.weights) == len(made.weights)
    for weight, other in zip(given.get_weights(), made.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, other)
    assert made.get_config() == {**given.get_config(), "name": made.name}


def test_positions_are_the_published_ones_bit_for_bit():
    state, _ = reference("mae_norm_pix")
    model = convert.make_mae(state, **HEADS)
    np.testing.assert_array_equal(as_float64(model.get_layer("patch_positions").table), state["pos_embed"][:, 1:])
    table = as_float64(model.get_layer("decoder_positions").table)
    np.testing.assert_array_equal(table, state["decoder_pos_embed"])


def test_learned_activations_keep_their_start():
    summary = convert.load_mae(MAE(**SMALL, activation="poly_norm"), reference("mae_norm_pix")[0])
    assert len(summary.kept) == 6 and all("feed_forward/" in path for path in summary.kept)


def test_other_images_and_learned_positions_are_refused():
    state, _ = reference("mae_norm_pix")
    model = MAE(**{**SMALL, "image_shape": (32, 48, 3)})
    refused(
        lambda: convert.load_mae(model, state),
        "(0 missing, 0 unused, 2 misshapen)",
        "pos_embed has the shape (1, 17, 48) where the model's images have (1, 25, 48)",
        "`to_classifier(image_shape=...)`",
        model=model,
    )
    same = MAE(**SMALL)
    shifted = {**state, "pos_embed": state["pos_embed"] + 0.01}
    refused(lambda: convert.load_mae(same, shifted), "pos_embed is not the table of sines and cosines", model=same)


def test_everything_that_does_not_fit_is_listed_and_nothing_written():
    state, _ = reference("mae_norm_pix")
    encoder = {name: array for name, array in state.items() if "decoder" not in name and name != "mask_token"}
    model = MAE(**SMALL)
    refused(
        lambda: convert.load_mae(model, {**encoder, "head.weight": np.ones((5, 48)), "norm.bias": np.ones(9)}),
        "(20 missing, 1 unused, 1 misshapen). Nothing was written.",
        "Missing: mask_token (for mask_tokens/token (1, 1, 32))",
        "Missing: decoder_blocks.0.attn.qkv.weight (for decoder_block_0_attention/query/kernel (32, 2, 16), ",
        "Unused: head.weight (5, 48)",
        "Misshapen: norm.bias has the shape (9,) where (48,) is expected",
        "Encoders without a decoder go into a ViT",
        model=model,
    )
    refused(lambda: convert.make_mae(encoder, **HEADS), "decoder_embed.weight", "make_vit")
    refused(lambda: convert.make_mae(state), "`num_heads` cannot be told")
    refused(lambda: convert.make_mae(state, num_heads=3), "`decoder_num_heads` cannot be told", "512: 16")
    refused(lambda: convert.make_mae(state, **HEADS, decoder_mlp_dim=3), "not to be given: decoder_mlp_dim")
    other = MAE(**SMALL, normalization="rms_norm")
    refused(lambda: convert.load_mae(other, state), "decoder_norm is a RMSNormalization", model=other)
    with pytest.raises(TypeError, match="models.MAE"):
        convert.load_mae(model.to_classifier(3), state)


def test_the_classifier_of_a_converted_model():
    state, case = reference("mae_norm_pix")
    body = convert.make_mae(state, **HEADS, data_format="channels_last").to_classifier(None, pooling=None)
    assert_close(body(channels_last(case["x_nchw"])), case["encoder_all_tokens"], 1e-4)
