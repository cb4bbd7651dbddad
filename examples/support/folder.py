"""Folders of images, one folder per class, read with Pillow."""

import concurrent.futures
import os
import pathlib
import struct

import numpy as np

from support.errors import UserError, require

SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"}
TRAIN = "train"
TESTS = ("test", "val")
LARGEST_DEFAULT_SIZE = 224
WORKERS = min(8, os.cpu_count() or 1)


class FileImages:
    """Images that are read when they are asked for, as squares: the short side is resized, the centre cut out.

    Args:
        paths: list of paths.
        labels: integer array (images,).
        image_size: integer, the side of the squares.
    """

    in_memory = False

    def __init__(self, paths, labels, image_size):
        self.paths = paths
        self.labels = labels
        self.image_size = image_size

    def __len__(self):
        return len(self.paths)

    def load(self, rows):
        """Returns float32 pixels (len(rows), image_size, image_size, 3), 0 to 255."""
        return np.stack([read_square(self.paths[row], self.image_size) for row in rows]).astype("float32")

    def load_all(self):
        """Returns all pixels as one uint8 array, reading in several threads."""
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            return np.stack(list(pool.map(lambda path: read_square(path, self.image_size), self.paths)))

    def first(self, count):
        return FileImages(self.paths[:count], self.labels[:count], self.image_size)


def read(root, image_size=None):
    """Reads the names of the images below `root`.

    Args:
        root: path of a folder with `train/<class>/` and `test/<class>/` or `val/<class>/`: ImageNet's layout.
        image_size: integer; `None` for the short side of the first image, at most 224.

    Returns:
        Training images, test images (both `FileImages`, classes taking turns), names of the classes.

    Raises:
        UserError: a folder is missing or empty, or a class is only in the test images.
    """
    root = pathlib.Path(root)
    train = _folders(root / TRAIN)
    test = next((_folders(root / name) for name in TESTS if (root / name).is_dir()), None)
    if test is None:
        raise UserError(f"{root} has neither a folder test nor a folder val: put the held-out images into one of them.")
    classes = tuple(sorted(train))
    if len(classes) < 2:
        raise UserError(f"{root / TRAIN} has a single class: give images of at least two, a folder each.")
    unknown = sorted(set(test) - set(train))
    if unknown:
        raise UserError(
            f"The class {unknown[0]} of {test[unknown[0]][0].parent} has no folder in {root / TRAIN}: add it."
        )
    if image_size is None:
        image_size = min(min(_opened(train[classes[0]][0], lambda image: image.size)), LARGEST_DEFAULT_SIZE)
    return *(_taking_turns(files, classes, image_size) for files in (train, test)), classes


def read_square(path, size):
    """Returns uint8 pixels (size, size, 3) of one image: the short side resized to `size`, the centre cut out."""
    return _opened(path, lambda image: _square(image, size))


def read_reduced(path, short_side):
    """Returns uint8 pixels (height, width, 3) of one image, its short side reduced to `short_side` if it is longer."""
    return _opened(path, lambda image: _reduced(image, short_side))


def _reduced(image, short_side):
    image_module = require("PIL.Image", "Reading images")
    scale = short_side / min(image.size)
    if scale < 1:
        size = [max(short_side, round(side * scale)) for side in image.size]
        image.draft("RGB", size)  # a JPEG is decoded no larger than needed
        image = image.convert("RGB").resize(size, image_module.Resampling.BICUBIC)
    return np.asarray(image.convert("RGB"), dtype="uint8")


def _square(image, size):
    image_module = require("PIL.Image", "Reading images")
    image = image.convert("RGB")
    width, height = image.size
    if (width, height) != (size, size):
        side = min(width, height)
        left, top = (width - side) / 2, (height - side) / 2
        box = (left, top, left + side, top + side)
        image = image.resize((size, size), image_module.Resampling.BILINEAR, box=box)
    return np.asarray(image, dtype="uint8")


def _opened(path, function):
    image_module = require("PIL.Image", "Reading images")
    try:
        with image_module.open(path) as image:
            return function(image)
    except (OSError, ValueError, SyntaxError, EOFError, struct.error, image_module.DecompressionBombError) as error:
        reason = (str(error) or type(error).__name__).replace(repr(str(path)), "it").rstrip(".")
        raise UserError(f"The image {path} cannot be read ({reason}): replace or delete it.") from error


def _folders(folder):
    """Class name -> sorted image paths."""
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder}: the layout is train/<class>/ and test/<class>/ or val/<class>/.")
    classes = {}
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.name.startswith("."):
            files = [file for file in sorted(path.iterdir()) if file.suffix.lower() in SUFFIXES and file.name[0] != "."]
            if not files:
                raise UserError(f"The class folder {path} has no images: fill it or delete it.")
            classes[path.name] = files
    if not classes:
        raise UserError(f"{folder} has no class folders: the layout is {folder.name}/<class>/<image>.")
    return classes


def _taking_turns(files, classes, image_size):
    """First image of each class, then the second of each, ...: the first n are then of all classes alike."""
    turns = sorted(
        (turn, label, path) for label, name in enumerate(classes) for turn, path in enumerate(files.get(name, ()))
    )
    return FileImages([path for _, _, path in turns], np.array([label for _, label, _ in turns], "int64"), image_size)
