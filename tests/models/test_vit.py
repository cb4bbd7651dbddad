import keras
import numpy as np
import pytest
from models_small import images, predict, vit
from reference_values import assert_close

from keras_polycom import FeedForward, GatedFeedForward, PolyNorm, feed_forwards
from keras_polycom.models import ViT

WIDTH, TOKENS, PATCHES = 24, 7, 6


@pytest.mark.parametrize("feed_forward", ["mlp", "swiglu", "poly_norm_glu"])
def test_forward_with_every_feed_forward(feed_forward):
    model = vit(feed_forward=feed_forward)
    layer = model.get_layer("block_1_feed_forward")
    gated = feed_forward != "mlp"
    assert isinstance(layer, GatedFeedForward if gated else FeedForward)
    assert model.mlp_dim == layer.hidden_dim == (64 if gated else 96)
    assert np.isfinite(predict(model, images())).all()


@pytest.mark.parametrize(
    "feed_forward",
    [
        FeedForward,
        lambda hidden_dim, activation: FeedForward(hidden_dim, activation, use_bias=False),
        FeedForward(10, activation=PolyNorm(order=2)),
        feed_forwards.serialize(GatedFeedForward(10)),
    ],
    ids=["class", "maker", "instance", "config"],
)
def test_every_form_of_feed_forward_survives_its_config(feed_forward):
    model = vit(feed_forward=feed_forward, activation="poly_relu", num_classes=None)
    layers = [model.get_layer(f"block_{i}_feed_forward") for i in range(2)]
    assert layers[0] is not layers[1]
    twin = ViT.from_config(model.get_config())
    twin.set_weights(model.get_weights())
    np.testing.assert_array_equal(predict(twin, images()), predict(model, images()))


@pytest.mark.parametrize(
    "normalization",
    ["rms_norm", "batch_norm", lambda: keras.layers.GroupNormalization(4)],
    ids=["rms", "batch", "maker"],
)
def test_every_normalization(normalization):
    model = vit(normalization=normalization)
    names = ["block_0_attention_norm", "block_0_feed_forward_norm", "block_1_attention_norm", "final_norm"]
    assert len({type(model.get_layer(name)) for name in names}) == 1
    assert np.isfinite(predict(model, images())).all()


def test_paper_details():
    model = vit(dropout=0.1)
    assert model.get_layer("final_norm").epsilon == 1e-6
    layer = model.get_layer("block_0_feed_forward")
    exact = 0.5 * (1 + 0.6826894921370859)  # x Phi(x) at 1
    assert_close(layer.activation(keras.ops.array([1.0])), [exact], 1e-6, "exact GELU")
    assert model.get_layer("position_embedding").table.shape == (1, TOKENS, WIDTH)
    limit = np.sqrt(6 / (2 * WIDTH))
    for part in ("query", "key", "value", "attention_output"):
        kernel = next(v for v in model.get_layer("block_0_attention").weights if v.path.endswith(f"/{part}/kernel"))
        largest = np.abs(keras.ops.convert_to_numpy(kernel)).max()
        assert 0.9 * limit < largest <= limit, part


def test_the_first_token_of_a_patch_is_read_row_by_row():
    """Each token sees its own patch, patches counted along the rows first."""
    model = vit(num_classes=None, pooling=None)
    tokens = keras.Model(model.input, model.get_layer("patch_tokens").output)
    blank = np.zeros((1, 16, 24, 3), "float32")
    base = predict(tokens, blank)
    for patch in range(PATCHES):
        x = blank.copy()
        row, column = divmod(patch, 3)
        x[:, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8] = 1
        changed = np.abs(predict(tokens, x) - base).max((0, 2)) > 1e-6
        assert list(np.flatnonzero(changed)) == [patch]


def test_pooling():
    tokens = vit(num_classes=None, pooling=None)
    x = images()
    all_tokens = predict(tokens, x)
    for pooling, expected in (("token", all_tokens[:, 0]), ("mean", all_tokens[:, 1:].mean(1))):
        model = vit(num_classes=None, pooling=pooling, class_token=True)
        model.set_weights(tokens.get_weights())
        assert_close(predict(model, x), expected, 1e-5, pooling)
    before = vit(num_classes=None, pooling="mean_before_norm")
    assert before.class_token
    before.set_weights(tokens.get_weights())
    unnormalized = keras.Model(tokens.input, tokens.get_layer("final_norm").input)
    mean = predict(unnormalized, x)[:, 1:].mean(1)
    assert_close(predict(before, x), predict(tokens.get_layer("final_norm"), mean), 1e-5, "mean_before_norm")
    without = vit(num_classes=None, pooling="mean")
    assert not without.class_token
    assert without.get_layer("position_embedding").table.shape == (1, PATCHES, WIDTH)


def test_stochastic_depth_grows_linearly():
    model = vit(num_layers=3, drop_path=0.2)
    names = [layer.name for layer in model.layers if "drop_path" in layer.name]
    assert sorted(names) == sorted(f"block_{i}_{b}_drop_path" for i in (1, 2) for b in ("attention", "feed_forward"))
    for index, rate in ((1, 0.1), (2, 0.2)):
        for branch in ("attention", "feed_forward"):
            assert model.get_layer(f"block_{index}_{branch}_drop_path").rate == pytest.approx(rate)


def test_rates_of_zero_add_no_layer():
    assert not [layer.name for layer in vit().layers if "drop" in layer.name]


def test_explicit_sizes_override_the_variant():
    model = ViT("tiny/16", image_shape=(32, 16, 3), num_layers=1, hidden_dim=24, num_classes=None)
    sizes = (model.patch_size, model.num_layers, model.hidden_dim, model.num_heads, model.mlp_dim)
    assert sizes == ((16, 16), 1, 24, 3, 96)


def parameters(patch, layers, width, heads, classes=1000, image=224):
    """Counted from the paper's equations, not from the layers."""
    del heads  # splits the width, adds nothing
    embedding = 3 * patch**2 * width + width + width + ((image // patch) ** 2 + 1) * width
    attention = 4 * (width**2 + width)
    mlp = 2 * 4 * width**2 + 4 * width + width
    return embedding + layers * (attention + mlp + 4 * width) + 2 * width + width * classes + classes


PUBLISHED = {
    "tiny/16": 5_717_416,
    "small/16": 22_050_664,
    "base/16": 86_567_656,
    "base/32": 88_224_232,
    "large/16": 304_326_632,
    "huge/14": 632_045_800,
}


def test_variants_have_the_published_numbers_of_parameters():
    from keras_polycom.models.vit import VARIANTS

    assert {name: parameters(*sizes) for name, sizes in VARIANTS.items()} == PUBLISHED
    patch, layers, width, heads = 8, 2, 24, 3
    model = ViT(patch_size=patch, num_layers=layers, hidden_dim=width, num_heads=heads, image_shape=(16, 16, 3))
    assert model.count_params() == parameters(patch, layers, width, heads, image=16)


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="the count is no backend's; PyTorch allocates fastest")
def test_the_tiny_model_has_the_published_number_of_parameters():
    assert ViT("tiny/16").count_params() == PUBLISHED["tiny/16"]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"image_shape": (16, 20, 3)}, r"patch_size=\(8, 8\), image height=16, width=20"),
        ({"image_shape": (None, 24, 3)}, "height=None"),
        ({"patch_size": (8, 8, 8)}, "pair"),
        ({"patch_size": 0}, "`patch_size` must be an integer of at least 1"),
        ({"num_heads": 5}, "num_heads=5, width=24"),
        ({"num_layers": 0}, "num_layers=0"),
        ({"mlp_dim": 0}, "mlp_dim=0"),
        ({"dropout": 1.0}, "dropout=1.0"),
        ({"drop_path": -0.1}, "drop_path=-0.1"),
        ({"attention_dropout": "much"}, "attention_dropout='much'"),
        ({"class_token": False}, "pooling='token' needs a class token"),
        ({"feed_forward": "nosuch"}, "Unknown feed-forward layer 'nosuch'"),
    ],
    ids=lambda value: "-".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else "",
)
def test_sizes_are_checked(changes, message):
    with pytest.raises(ValueError, match=message):
        vit(**changes)
