"""Residual networks of timm and torchvision."""

import keras
import numpy as np
import pytest
from reference_values import FOLDER, as_float64, assert_close
from torch_states import channels_last, reference, refused, resnet_shapes

from keras_polycom import convert
from keras_polycom.models import ResNet50

NAME = "timm_resnet_bottleneck"
SMALL = {
    "image_shape": (None, None, 3),
    "depths": (1, 2, 1, 1),
    "widths": (8, 12, 16, 24),
    "stem_width": 64,
    "num_classes": 7,
    "data_format": "channels_last",
}
DEPTHS = {"resnet50": (3, 4, 6, 3), "resnet152": (3, 8, 36, 3)}
COUNTS = {"resnet50": 320, "resnet152": 932}  # of torchvision's state dicts


def small_state(**changes):
    state = {**reference(NAME)[0], **changes}
    return {name: array for name, array in state.items() if array is not None}


@pytest.mark.parametrize("way", ["made", "given"])
def test_equals_the_real_one_at_an_even_and_an_odd_size(way):
    """CASES 017: padding on both sides, the stride's place, the epsilon, and random statistics."""
    _, case = reference(NAME)
    if way == "made":
        path = FOLDER / f"{NAME}.safetensors"
        model = convert.make_resnet(path, image_shape=(None, None, 3), data_format="channels_last")
        assert (model.depths, model.widths, model.stem_width) == ((1, 2, 1, 1), (8, 12, 16, 24), 64)
        assert (model.stem, model.num_classes) == ("imagenet", 7)
    else:
        model = ResNet50(**SMALL)
        summary = convert.load_resnet(model, small_state())
        assert len(set(summary.loaded)) == len(model.weights) and summary.kept == ()
    for x, logits in (("x_nchw", "logits"), ("x_odd_nchw", "logits_odd")):
        output = as_float64(model(channels_last(case[x]), training=False))
        assert_close(output, case[logits], 1e-4, x)
        np.testing.assert_array_equal(output.argmax(-1), case[logits].argmax(-1))


def test_statistics_are_not_swapped():
    state = small_state()
    norm = convert.make_resnet(state).get_layer("stage_1_block_0_shortcut_norm")
    for weight, tensor in (("gamma", "weight"), ("beta", "bias"), ("moving_mean", "running_mean")):
        np.testing.assert_array_equal(as_float64(getattr(norm, weight)), state[f"layer2.0.downsample.1.{tensor}"])
    np.testing.assert_array_equal(as_float64(norm.moving_variance), state["layer2.0.downsample.1.running_var"])


@pytest.mark.parametrize("variant", DEPTHS)
def test_every_tensor_of_the_published_depths_is_used_once(variant):
    """CASES 017: only num_batches_tracked is not used. Narrow, with the names and number of torchvision's tensors."""
    shapes = resnet_shapes(DEPTHS[variant], widths=(1, 1, 1, 1), stem=3, classes=2)
    assert len(shapes) == COUNTS[variant]
    state = {name: np.full(shape, i, "float32") for i, (name, shape) in enumerate(shapes.items())}
    model = ResNet50(variant, image_shape=(32, 32, 3), widths=(1, 1, 1, 1), stem_width=3, num_classes=2)
    summary = convert.load_resnet(model, state)
    assert len(set(summary.loaded)) == len(model.weights) == sum("tracked" not in name for name in state)
    found = sorted(value.flat[0] for value in model.get_weights())
    assert found == [i for i, name in enumerate(state) if "tracked" not in name], "one tensor went to two weights"
    if variant == "resnet50":
        assert convert.make_resnet(state, image_shape=(32, 32, 3)).depths == DEPTHS[variant]


def test_the_small_stem_is_recognised():
    shapes = {**resnet_shapes((1,), (4,), stem=5), "conv1.weight": (5, 1, 3, 3)}
    model = convert.make_resnet({n: np.zeros(s, "float32") for n, s in shapes.items()}, data_format="channels_last")
    assert (model.stem, model.stem_width, model.num_classes, model.image_shape) == ("cifar", 5, None, (224, 224, 1))


def test_learned_activations_keep_their_start():
    model = ResNet50(**SMALL, activation="poly_norm")
    summary = convert.load_resnet(model, small_state())
    assert len(summary.kept) == 2 * (1 + 3 * 5)
    assert_close(model.get_layer("stage_3_block_0_activation_2").coefficients, np.full(3, 1 / 3), 1e-6)
    assert_close(model.get_layer("head").kernel, small_state()["fc.weight"].T, 1e-7)


def test_the_head_can_be_left_out():
    model = ResNet50(**{**SMALL, "num_classes": 4})
    refused(
        lambda: convert.load_resnet(model, small_state()),
        "Misshapen: fc.weight has the shape (7, 96) where (4, 96) is expected",
        "head=False",
        model=model,
    )
    summary = convert.load_resnet(model, small_state(), head=False)
    assert set(summary.left_out) == {"fc.weight", "fc.bias"} and set(summary.kept) == {"head/kernel", "head/bias"}
    assert convert.make_resnet(small_state(), head=False, num_classes=9).num_classes == 9


def test_everything_that_does_not_fit_is_listed_and_nothing_written():
    model = ResNet50(**SMALL, normalization=keras.layers.BatchNormalization)
    message = refused(
        lambda: convert.load_resnet(
            model,
            small_state(
                **{
                    "bn1.running_mean": None,
                    "layer2.1.conv2.weight": np.zeros((12, 12, 1, 1)),
                    "layer5.0.conv1.weight": np.zeros((2, 2, 1, 1)),
                }
            ),
        ),
        "(1 missing, 1 unused, 1 misshapen). Nothing was written.",
        "Missing: bn1.running_mean (for stem_norm/moving_mean (64,))",
        "Unused: layer5.0.conv1.weight (2, 2, 1, 1)",
        "layer2.1.conv2.weight has the shape (12, 12, 1, 1) where (12, 12, 3, 3) is expected",
        "Setting: stem_norm has epsilon=0.001 where the weights were trained with 1e-05",
        model=model,
    )
    assert "num_batches_tracked" not in message and "head=False" not in message


def test_other_networks_are_refused():
    basic = {name: array for name, array in small_state().items() if "conv3" not in name and "bn3" not in name}
    refused(lambda: convert.make_resnet(basic), "No bottleneck blocks", "ResNet-18 and 34 have no conv3")
    wide = small_state(**{"layer1.0.conv2.weight": np.zeros((16, 8, 3, 3))})
    refused(lambda: convert.make_resnet(wide), "layer1.0.conv2.weight has the shape (16, 8, 3, 3)")
    deep = small_state(**{"conv1.weight": None, "conv1.0.weight": np.zeros((32, 3, 3, 3))})
    refused(lambda: convert.make_resnet(deep), "a conv1 before them")
    refused(lambda: convert.make_resnet(small_state(), depths=(1,)), "not to be given: depths")
    with pytest.raises(TypeError, match="models.ResNet50"):
        convert.load_resnet(keras.Sequential([keras.layers.Dense(2)]), small_state())
    model = convert.make_resnet(small_state(), epsilon=1e-3)
    assert model.get_layer("stage_0_block_0_norm_3").epsilon == 1e-3
    refused(lambda: convert.load_resnet(model, small_state()), "has epsilon=0.001")
