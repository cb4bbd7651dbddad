"""Batches of pictures for masked autoencoders: random crops for training, centre crops with fixed noise to compare."""

import numpy as np

from support import crops
from support.batches import ImageBatches

NOISE_SEED = 0


class RandomCrops(ImageBatches):
    """Normalized random crops; the crop of a picture follows from (seed, epoch, its number) alone.

    Args:
        pictures: `pictures.PictureSet`.
        batch_size: integer.
        seed: integer.
        mirror: bool. Whether every other crop is mirrored.
    """

    def __init__(self, pictures, batch_size, seed, mirror):
        super().__init__(
            pictures.train, batch_size, pictures.mean, pictures.std, num_classes=None, seed=seed, training=True
        )
        self.size = pictures.image_shape[:2]
        self.mirror = mirror

    def _load(self, rows, numbers):
        return ((np.stack([self._crop(int(row)) for row in rows]) - self.mean) / self.std,)

    def _crop(self, row):
        rng = np.random.default_rng([self.seed, self.epoch, row])
        return crops.random_crop(self.images[row], self.size, rng, self.mirror)


class CentreCrops(ImageBatches):
    """Normalized centre crops, always the same ones, with noise that hides the same patches for every model.

    Args:
        pictures: `pictures.PictureSet`.
        batch_size: integer, the largest.
        patches: integer. Number of patches per picture.
    """

    def __init__(self, pictures, batch_size, patches):
        super().__init__(pictures.validation, batch_size, pictures.mean, pictures.std, num_classes=None)
        size = pictures.image_shape[:2]
        crop = [crops.centre_crop(pictures.validation[row], size) for row in range(len(pictures.validation))]
        self.pixels = np.stack(crop)
        self.noise = np.random.default_rng(NOISE_SEED).random((len(crop), patches), dtype="float32")

    def _load(self, rows, numbers):
        return (self.part(rows),)

    def part(self, rows):
        """The pictures with the numbers `rows`, as a model takes them."""
        return {"images": (self.pixels[rows] - self.mean) / self.std, "noise": self.noise[rows]}
