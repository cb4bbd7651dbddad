import keras
import numpy as np
import pytest
from models_small import images, predict, resnet
from reference_values import assert_close

from keras_polycom import PolyNorm, PolyPReLU, PolyReLU
from keras_polycom.models import ResNet50


def test_any_size_equals_the_fixed_size_model():
    settings = {"stem": "imagenet", "activation": "poly_norm", "depths": (1,), "widths": (4,)}
    free = resnet(image_shape=(None, None, 3), **settings)
    for size in ((16, 24), (17, 19)):
        fixed = resnet(image_shape=(*size, 3), **settings)
        fixed.set_weights(free.get_weights())
        x = images(shape=(*size, 3))
        assert_close(predict(free, x), predict(fixed, x), 1e-5, str(size))


def test_strides_are_on_the_3x3_convolution():
    model = resnet()
    strides = {layer.name: layer.strides for layer in model.layers if isinstance(layer, keras.layers.Conv2D)}
    strided = {name for name, stride in strides.items() if stride == (2, 2)}
    assert strided == {"stage_1_block_0_convolution_2", "stage_1_block_0_shortcut_convolution"}
    assert not any(layer.use_bias for layer in model.layers if isinstance(layer, keras.layers.Conv2D))


def test_sizes_through_the_stages():
    model = ResNet50(image_shape=(45, 33, 3), depths=(1, 1, 1, 1), widths=(2, 2, 2, 2))
    shapes = {name: model.get_layer(name).output.shape[1:3] for name in ("stem_convolution", "stem_pool")}
    assert shapes == {"stem_convolution": (23, 17), "stem_pool": (12, 9)}
    stages = [model.get_layer(f"stage_{i}_block_0_activation_3").output.shape[1:] for i in range(4)]
    assert stages == [(12, 9, 8), (6, 5, 8), (3, 3, 8), (2, 2, 8)]


def test_poly_norm_normalizes_channels_at_each_position():
    for data_format, axis in (("channels_last", -1), ("channels_first", 1)):
        shape = (16, 24, 3) if axis == -1 else (3, 16, 24)
        trained = PolyNorm(order=1)
        trained.coefficients.assign([0.5])
        model = resnet(activation=trained, data_format=data_format, image_shape=shape)
        layer = model.get_layer("stage_1_block_1_activation_2")
        assert layer.axis == axis
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(layer.coefficients), [0.5])
        assert model.get_layer("stem_norm").axis == axis


def test_an_axis_that_was_chosen_is_kept():
    model = resnet(activation=PolyNorm(axis=2), data_format="channels_first", image_shape=(3, 16, 24))
    assert model.get_layer("stem_activation").axis == 2


@pytest.mark.parametrize("activation", ["poly_relu", PolyReLU], ids=["name", "class"])
def test_poly_relu_starts_as_the_rectifier(activation):
    """With 1/3 each the features of three blocks were 1e14, those of sixteen infinite."""
    rectified, model = resnet(activation="relu"), resnet(activation=activation)
    model.set_weights(_with_rectifiers(rectified, model))
    x = 3 * images()
    assert_close(model(x, training=True), rectified(x, training=True), 1e-5)
    loaded = ResNet50.from_config(model.get_config()).get_layer("stem_activation")
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(loaded.coefficients), [1, 0, 0])


def _with_rectifiers(rectified, model):
    """The weights of a model without learned activations, among these of one that has them."""
    given = iter(rectified.get_weights())
    return [keras.ops.convert_to_numpy(w) if "activation" in w.path else next(given) for w in model.weights]


def test_chosen_coefficients_are_kept():
    model = resnet(activation=PolyReLU(coefficients_initializer=[0.5, 0.25, 0.1]))
    coefficients = keras.ops.convert_to_numpy(model.get_layer("stem_activation").coefficients)
    np.testing.assert_allclose(coefficients, [0.5, 0.25, 0.1], rtol=1e-6)
    prelu = resnet(activation="poly_prelu").get_layer("stem_activation")
    assert isinstance(prelu, PolyPReLU)
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(prelu.coefficients), [1, 0, 0])


@pytest.mark.parametrize("activation", ["poly_relu", "poly_norm"])
def test_trains_in_half_precision(activation, rng):
    """CASES 074."""
    model = resnet(activation=activation, depths=(1, 1), dtype="mixed_float16")
    model.compile(keras.optimizers.Adam(1e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x, y = rng.standard_normal((8, *model.image_shape)).astype("float32"), rng.integers(4, size=8)
    losses = model.fit(x, y, batch_size=4, epochs=12, verbose=0).history["loss"]
    scale = float(keras.ops.convert_to_numpy(model.optimizer.dynamic_scale))
    assert np.isfinite(losses).all() and losses[-1] < losses[0]
    assert scale >= 2**12, "more than three of 24 steps were skipped"


def test_zero_init_residual_starts_blocks_as_identities():
    plain, zero = resnet(), resnet(zero_init_residual=True)
    for model, expected in ((plain, 1.0), (zero, 0.0)):
        for norm, value in (("norm_1", 1.0), ("norm_3", expected), ("shortcut_norm", 1.0)):
            gamma = model.get_layer(f"stage_1_block_0_{norm}").gamma
            assert (keras.ops.convert_to_numpy(gamma) == value).all(), norm
    block = keras.Model(
        zero.get_layer("stage_1_block_0_activation_3").output, zero.get_layer("stage_1_block_1_activation_3").output
    )
    x = np.abs(images(shape=(8, 12, 24)))
    np.testing.assert_array_equal(predict(block, x), x)


def test_batch_norm_settings_are_torchvisions():
    norm = resnet().get_layer("stage_0_block_0_norm_2")
    assert (norm.epsilon, norm.momentum) == (1e-5, 0.9)


def test_negative_activations_pass_the_stem_pool():
    model = ResNet50(image_shape=(32, 32, 3), depths=(1,), widths=(4,), activation=lambda: Negative(name="negative"))
    pooled = keras.Model(model.input, model.get_layer("stem_pool").output)
    assert (predict(pooled, images(shape=(32, 32, 3))) < -0.9).all()


@keras.saving.register_keras_serializable(package="keras_polycom_tests")
class Negative(keras.layers.Layer):
    """An activation that is nowhere above -1."""

    def call(self, inputs):
        return -1 - keras.ops.square(inputs)


def parameters(depths, classes=1000, widths=(64, 128, 256, 512)):
    """Counted from table 1 of the paper with batch norms, not from the layers."""
    total, channels = 3 * 49 * widths[0] + 2 * widths[0], widths[0]
    for depth, width in zip(depths, widths, strict=True):
        for block in range(depth):
            if block == 0:
                total += channels * 4 * width + 2 * 4 * width
            total += channels * width + 9 * width**2 + width * 4 * width + 2 * (width + width + 4 * width)
            channels = 4 * width
    return total + channels * classes + classes


PUBLISHED = {"resnet50": 25_557_032, "resnet101": 44_549_160, "resnet152": 60_192_808}


def test_variants_have_the_published_numbers_of_parameters():
    from keras_polycom.models.resnet import VARIANTS

    assert {name: parameters(depths) for name, depths in VARIANTS.items()} == PUBLISHED
    model = ResNet50(image_shape=(32, 32, 3), depths=(1, 2), widths=(4, 6))
    trainable = sum(int(np.prod(v.shape)) for v in model.trainable_variables)
    assert trainable == parameters((1, 2), widths=(4, 6))


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="the count is no backend's; PyTorch allocates fastest")
def test_resnet50_has_the_published_number_of_parameters():
    model = ResNet50("resnet50")
    assert sum(int(np.prod(v.shape)) for v in model.trainable_variables) == PUBLISHED["resnet50"]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"stem": "imagenet", "image_shape": (16, 7, 3)}, "at least 8 x 8. Received: height=16, width=7"),
        ({"image_shape": (1, 24, 3)}, "at least 2 x 2"),
        ({"stem": "none"}, "`stem` must be one of 'imagenet', 'cifar'"),
        ({"depths": (1, 2, 3)}, r"one entry per stage. Received: depths=\(1, 2, 3\), widths=\(4, 6\)"),
        ({"depths": (0, 1)}, "depths=0"),
        ({"widths": (4, 2.5)}, "widths=2.5"),
    ],
    ids=lambda value: "-".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else "",
)
def test_sizes_are_checked(changes, message):
    with pytest.raises(ValueError, match=message):
        resnet(**changes)
