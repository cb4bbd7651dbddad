"""Pictures without labels for masked autoencoders: photographs in packages, folders, .npz files, and `data`'s sets.

| data | training pictures | held out |
|---|---|---|
| photos | windows of the left 70 % of six photographs | windows of their right 25 %: no pixel is in both |
| a folder with train/ and val/ or test/ | all images below train/ | all below the other |
| any other folder | all images below it but the held-out ones | every tenth, in an order drawn once |
| an .npz | x_train | x_test or x_val |
"""

import concurrent.futures
import dataclasses
import math
import pathlib

import numpy as np

from support import crops, data, folder
from support.errors import UserError, require

NAMES = ("photos", *data.NAMES)
PHOTOS = ("astronaut", "chelsea", "coffee", "rocket"), ("china.jpg", "flower.jpg")
TRAINING_PART, HELD_OUT_PART = 0.7, 0.25
WINDOW = 128
DEFAULT_SIZE = {"photos": 64, "folder": 96}
# Pictures are reduced until the smallest square crop, a fifth of the area, has the size of what the model sees.
RESERVE = math.sqrt(1 / crops.SCALE[0])


class ArrayPictures:
    """Pictures in memory: a sequence of arrays (height, width, channels), 0 to 255, of any heights and widths."""

    in_memory = True

    def __init__(self, arrays):
        self.arrays = arrays

    def __len__(self):
        return len(self.arrays)

    def __getitem__(self, row):
        return self.arrays[row]

    def first(self, count):
        return ArrayPictures(self.arrays[:count])


class FilePictures:
    """Pictures that are read when they are asked for."""

    in_memory = False

    def __init__(self, paths, short_side):
        self.paths = paths
        self.short_side = short_side

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, row):
        return folder.read_reduced(self.paths[row], self.short_side)

    def first(self, count):
        return FilePictures(self.paths[:count], self.short_side)

    def loaded(self, limit):
        """The same in memory if that takes at most `limit` bytes, else itself."""
        taken, arrays = 0, []
        with concurrent.futures.ThreadPoolExecutor(folder.WORKERS) as pool:
            for array in pool.map(self.__getitem__, range(len(self))):
                arrays.append(array)
                taken += array.nbytes
                if taken > limit:
                    pool.shutdown(cancel_futures=True)
                    return self
        return ArrayPictures(arrays)


@dataclasses.dataclass
class PictureSet(data.Limits):
    """Pictures for training and for validation, and the numbers they are normalized with.

    Args:
        name: string, `"photos"` or a path.
        train, validation: `ArrayPictures` or `FilePictures`.
        image_shape: (height, width, channels) of what the model sees.
        mean, std: tuples, one number per channel.
        mirrored: bool. Whether mirrored pictures are as good.
    """

    name: str
    train: object
    validation: object
    image_shape: tuple
    mean: tuple
    std: tuple
    mirrored: bool = True
    items = "pictures"


def load(name, image_size=None, memory=1024):
    """Loads pictures.

    Args:
        name: one of `NAMES`, or the path of a folder or of an .npz.
        image_size: integer or `None`. Side of the squares the model sees; `None` for 64 for the photographs, 96 for a
            folder, and the size they have for arrays.
        memory: number. Megabytes of pixels up to which a folder's training pictures are kept in memory.

    Raises:
        UserError: something is missing or unreadable.
    """
    if name == "photos":
        return _photos(image_size or DEFAULT_SIZE["photos"])
    if name in data.NAMES:
        image_set = data.load(name)
        arrays = image_set.train.pixels, image_set.test.pixels
        return _of_arrays(name, *arrays, image_size, image_set.mean, image_set.std, image_set.mirrored)
    if pathlib.Path(name).is_dir():
        return _folder(name, image_size or DEFAULT_SIZE["folder"], memory * 2**20)
    if not pathlib.Path(name).exists():
        raise UserError(
            f"--dataset {name} is neither one of {', '.join(NAMES)} nor an existing path: correct it, or give the path "
            "of a folder or of an .npz file."
        )
    train, validation = data.read_pixels(name)
    return _of_arrays(name, train, validation, image_size, *data.statistics(train))


def _of_arrays(name, train, validation, image_size, mean, std, mirrored=True):
    height, width, channels = train.shape[1:]
    shape = (height, width, channels) if image_size is None else (image_size, image_size, channels)
    return PictureSet(name, ArrayPictures(train), ArrayPictures(validation), shape, mean, std, mirrored)


def _photos(image_size):
    images = require("skimage.data", "--dataset photos")
    samples = require("sklearn.datasets", "--dataset photos")
    photographs = [getattr(images, name)() for name in PHOTOS[0]]
    photographs += [samples.load_sample_image(name) for name in PHOTOS[1]]
    train, validation = [], []
    for photograph in photographs:
        width = photograph.shape[1]
        train += _windows(photograph[:, : round(TRAINING_PART * width)])
        validation += _windows(photograph[:, width - round(HELD_OUT_PART * width) :])
    shape = (image_size, image_size, 3)
    return PictureSet("photos", ArrayPictures(train), ArrayPictures(validation), shape, *data.IMAGENET_NORMALIZATION)


def _windows(photograph):
    """Square windows of side `WINDOW`, or of the short side if that is less, half overlapping, up to all edges."""
    side = min(WINDOW, *photograph.shape[:2])
    rows, columns = (
        np.unique(np.linspace(0, n - side, math.ceil(2 * n / side) - 1).round()) for n in photograph.shape[:2]
    )
    return [photograph[int(i) : int(i) + side, int(j) : int(j) + side] for i in rows for j in columns]


def _folder(name, image_size, memory):
    root = pathlib.Path(name)
    held_out = next((root / part for part in folder.TESTS if (root / part).is_dir()), None)
    if (root / folder.TRAIN).is_dir() and held_out is not None:
        train, validation = _images_below(root / folder.TRAIN), _images_below(held_out)
    else:
        paths = _images_below(root)
        if len(paths) < 2:
            raise UserError(f"{root} has a single image: give at least two, one of which is held out.")
        order = np.random.default_rng(data.SPLIT_SEED).permutation(len(paths))
        count = max(1, len(paths) // 10)
        validation, train = ([paths[row] for row in sorted(rows)] for rows in (order[:count], order[count:]))
    short_side = math.ceil(RESERVE * image_size)
    train, validation = (FilePictures(paths, short_side) for paths in (train, validation))
    shape = (image_size, image_size, 3)
    return PictureSet(name, train.loaded(memory), validation, shape, *data.IMAGENET_NORMALIZATION)


def _images_below(root):
    paths = [p for p in sorted(root.rglob("*")) if p.suffix.lower() in folder.SUFFIXES and not p.name.startswith(".")]
    if not paths:
        raise UserError(f"There is no image below {root}: put images there, or give another folder.")
    return paths
