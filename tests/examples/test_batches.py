"""Batches and augmentation follow from (seed, epoch, index), whatever was asked for before."""

import importlib.util

import keras
import numpy as np
import pytest
from support import augment
from support.batches import ImageBatches, even_batch_size
from support.data import ArrayImages

HAS_KERAS_CV = all(map(importlib.util.find_spec, ("tensorflow", "keras_cv")))
SOURCES = [
    "keras",
    pytest.param("keras-cv", marks=pytest.mark.skipif(not HAS_KERAS_CV, reason="needs keras-cv and TensorFlow")),
]


@pytest.fixture
def images(arrays):
    return ArrayImages(arrays["x_train"], arrays["y_train"])


def make(images, **options):
    options = {"num_classes": 3, "seed": 5, "training": True, **options}
    return ImageBatches(images, 8, (100.0,) * 3, (50.0,) * 3, **options)


def test_every_epoch_has_its_own_order_of_all_images(images):
    batches = make(images, num_classes=None)
    assert len(batches) == 3  # 28 images: 4 wait for another epoch
    orders = []
    for epoch in (0, 1):
        batches.epoch = epoch
        pixels = np.concatenate([batches[i][0] for i in range(3)]) * 50 + 100
        rows = [int(np.abs(images.pixels - image).sum((1, 2, 3)).argmin()) for image in pixels]
        assert len(set(rows)) == 24
        orders.append(rows)
    assert orders[0] != orders[1]


def test_batches_do_not_depend_on_what_was_asked_before(images):
    first, second = make(images), make(images)
    for index in (2, 0, 1):
        first[index]
    first.epoch = second.epoch = 4
    assert all(np.array_equal(a, b) for a, b in zip(first[1], second[1], strict=True))
    assert not np.array_equal(first[1][0], make(images, seed=6)[1][0])


def test_test_images_come_in_order_to_the_last(images):
    batches = make(images, training=False)
    assert [len(batches[i][0]) for i in range(len(batches))] == [8, 8, 8, 4]
    pixels, targets = batches[3]
    assert np.allclose(pixels, (images.pixels[24:] - 100.0) / 50, atol=1e-5)
    assert np.array_equal(targets.argmax(-1), images.labels[24:]) and targets.dtype == "float32"


@pytest.mark.parametrize(("count", "largest", "size"), [(10, 64, 10), (100, 64, 50), (359, 64, 60), (7, 1, 1)])
def test_even_batch_size(count, largest, size):
    assert even_batch_size(count, largest) == size


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("level", ["light", "strong"])
@pytest.mark.filterwarnings("ignore")  # of the libraries that augment
def test_augmentation_follows_from_the_numbers(images, source, level, monkeypatch):
    monkeypatch.setattr(augment, "OPERATIONS", 1)
    pixels = images.pixels[:8].astype("float32")
    targets = np.eye(3, dtype="float32")[images.labels[:8]]
    augmenter = augment.make_augmenter(level, (8, 8, 3), source=source)
    first, third, second = (augmenter(pixels, targets, (5, 1, index)) for index in (2, 3, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert not np.array_equal(first[0], third[0]) and not np.array_equal(first[0], pixels)
    assert first[0].shape == pixels.shape and first[0].min() >= 0 and first[0].max() <= 255
    assert np.allclose(first[1].sum(-1), 1, atol=1e-5)
    assert np.array_equal(first[1], targets) == (level == "light")


@pytest.mark.parametrize("source", SOURCES)
def test_gray_digits_are_moved_but_not_mirrored(source):
    pixels = np.zeros((8, 8, 8, 1), "float32")
    pixels[:, 3:5, 2, 0] = 200  # a bar in the left half, which a crop moves by one at most
    augmenter = augment.make_augmenter("light", (8, 8, 1), mirrored=False, source=source)
    moved = np.concatenate([augmenter(pixels, None, (0, 0, index))[0] for index in range(4)])
    columns = {int(image[..., 0].sum(0).argmax()) for image in moved}
    assert columns <= {1, 2, 3} and len(columns) > 1


def test_mirrored_images_are_among_the_augmented(images):
    pixels = images.pixels[:8].astype("float32")
    augmenter = augment.make_augmenter("light", (8, 8, 3), source="keras")
    augmenter._crop = lambda padded: padded[:, 1:-1, 1:-1]
    out, _ = augmenter(pixels, None, (0, 0, 0))
    mirrored = [np.array_equal(a, b[:, ::-1]) for a, b in zip(out, pixels, strict=True)]
    kept = [np.array_equal(a, b) for a, b in zip(out, pixels, strict=True)]
    assert all(m != k for m, k in zip(mirrored, kept, strict=True)) and any(mirrored) and any(kept)


def test_no_augmentation_is_none():
    assert augment.make_augmenter("none", (8, 8, 3)) is None


@pytest.mark.parametrize("level", ["light", "medium", "strong"])
def test_default_source_is_what_is_installed_and_leaves_compiled_functions_alone(level):
    slow = keras.backend.backend() == "tensorflow" and level != "light"
    assert augment.default_source(level) == ("keras-cv" if HAS_KERAS_CV and not slow else "keras")


def test_an_error_while_reading_is_kept(images):
    batches = make(images)
    batches.images = None
    with pytest.raises(AttributeError):
        batches[0]
    assert isinstance(batches.error, AttributeError)
