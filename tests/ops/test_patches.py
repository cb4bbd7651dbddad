"""Images as rows of patches: the published pixel order, both data formats, and the statistics of a patch."""

import keras
import numpy as np
import pytest
from reference_values import as_float64, assert_close, check_derivatives

from keras_polycom import ops


def numbered_image():
    """4 x 4 x 3 with the value 100 row + 10 column + channel."""
    rows, columns, channels = np.meshgrid(np.arange(4), np.arange(4), np.arange(3), indexing="ij")
    return (100 * rows + 10 * columns + channels)[None].astype("float32")


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_pixel_order_and_round_trip(data_format):
    image = numbered_image()
    image = image if data_format == "channels_last" else image.transpose(0, 3, 1, 2)
    patches = as_float64(ops.patchify(image, (2, 2), data_format))
    assert patches[0, 0].tolist() == [0, 1, 2, 10, 11, 12, 100, 101, 102, 110, 111, 112]
    assert patches[0, 1, :4].tolist() == [20, 21, 22, 30]
    assert patches[0, 2, :4].tolist() == [200, 201, 202, 210]
    np.testing.assert_array_equal(as_float64(ops.unpatchify(patches, (2, 2), (2, 2), data_format)), image)


def test_patches_and_images_that_are_not_square():
    images = np.random.default_rng(0).normal(size=(3, 4, 15, 2)).astype("float32")
    patches = ops.patchify(images, (2, 3))
    assert patches.shape == (3, 10, 12)
    np.testing.assert_array_equal(as_float64(patches)[1, 7].reshape(2, 3, 2), images[1, 2:, 6:9])
    np.testing.assert_array_equal(as_float64(ops.unpatchify(patches, (2, 3), (2, 5))), images)


def test_unknown_batch():
    patches = ops.patchify(keras.KerasTensor((None, 4, 6, 3)), (2, 3))
    assert patches.shape == (None, 4, 18)
    assert ops.unpatchify(patches, (2, 3), (2, 2)).shape == (None, 4, 6, 3)


@pytest.mark.parametrize("unbiased", [True, False], ids=["n-1", "n"])
def test_statistics(unbiased, rng):
    patches = rng.normal(3, 2, size=(2, 3, 5))
    patches[0, 0] = 7.0
    mean, deviation = ops.patch_statistics(patches, unbiased)
    assert_close(mean, patches.mean(-1, keepdims=True), 1e-6)
    assert_close(deviation, np.sqrt(patches.var(-1, keepdims=True, ddof=int(unbiased)) + 1e-6), 1e-6)
    assert float(deviation[0, 0, 0]) == pytest.approx(1e-3), "a flat patch"


def test_statistics_of_half_precision_are_computed_in_float32():
    mean, deviation = ops.patch_statistics(keras.ops.cast(np.array([[[300.0, -300.0, 300.0, -300.0]]]), "float16"))
    assert float(mean[0, 0, 0]) == 0
    assert float(deviation[0, 0, 0]) == pytest.approx(346.4102, rel=1e-4)


def test_loss_of_hidden_patches(rng):
    prediction, target = rng.normal(size=(2, 2, 3, 4))
    mask = np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    errors = ((prediction - target) ** 2).mean(-1)
    assert_close(ops.masked_patch_loss(prediction, target, mask), errors[mask == 1].mean(), 1e-6)
    check_derivatives(
        lambda prediction, target: ops.masked_patch_loss(prediction, target, mask),
        {"prediction": prediction, "target": target},
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ops.patchify(np.zeros((1, 4, 6, 3)), (3, 3)), "patch_size"),
        (lambda: ops.patchify(np.zeros((4, 6, 3)), (2, 2)), "rank 4"),
        (lambda: ops.unpatchify(np.zeros((1, 5, 12)), (2, 2), (2, 2)), r"grid=\(2, 2\)"),
        (lambda: ops.unpatchify(np.zeros((1, 4, 13)), (2, 2), (2, 2)), "channels"),
        (lambda: ops.patch_statistics(np.zeros((1, 4, 1))), "unbiased=False"),
    ],
    ids=["indivisible", "rank", "grid", "channels", "one number"],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()
