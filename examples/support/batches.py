"""Batches whose order and augmentation follow from (seed, epoch, index) alone."""

import keras
import numpy as np

from support.folder import WORKERS


class ImageBatches(keras.utils.PyDataset):
    """Normalized images with one-hot labels. Pass it to `fit` with `shuffle=False`, and set `epoch` before each epoch.

    Two instances with the same arguments yield the same batches in the same epoch, whatever was asked of them before:
    all models see the same data, and a resumed run the data it would have seen.

    Args:
        images: `data.ArrayImages` or `folder.FileImages`.
        batch_size: integer.
        mean, std: one number per channel, on the scale 0 to 255.
        num_classes: integer, or `None` for batches of images without labels.
        seed: integer.
        training: bool. Whether images are shuffled in every epoch, and those left over after the last full batch left
            out, so that all batches have one shape.
        augment: `augment.Augmenter` or `None`.
    """

    def __init__(self, images, batch_size, mean, std, *, num_classes, seed=0, training=False, augment=None):
        super().__init__(workers=1 if images.in_memory else WORKERS, max_queue_size=2 * WORKERS)
        self.images = images
        self.batch_size = batch_size
        self.mean = np.asarray(mean, "float32")
        self.std = np.asarray(std, "float32")
        self.num_classes = num_classes
        self.seed = seed
        self.training = training
        self.augment = augment
        self.error = None  # backends wrap what a data set raises: the original is kept here
        self.epoch = 0

    @property
    def epoch(self):
        return self._epoch

    @epoch.setter
    def epoch(self, epoch):
        self._epoch = epoch
        count = len(self.images)
        self._order = (
            np.random.default_rng([self.seed, epoch]).permutation(count) if self.training else np.arange(count)
        )

    def __len__(self):
        count = len(self.images)
        return count // self.batch_size if self.training else -(-count // self.batch_size)

    def __getitem__(self, index):
        return self.load(self._rows(index), (index,))

    def shared(self, index, part, parts):
        """One of the equal parts of a batch.

        Its images are those of the whole batch if they are in memory or not augmented. Otherwise only those of the part
        are read, and augmented on their own.
        """
        rows = self._rows(index)
        own = np.split(rows, parts)[part]
        if self.augment is None:
            return self.load(own)
        if not self.images.in_memory:
            return self.load(own, (index, part))
        return tuple(np.split(array, parts)[part] for array in self.load(rows, (index,)))

    def load(self, rows, numbers=()):
        """The images with the numbers `rows`, as a model takes them; augmentation follows from (seed, epoch, *numbers).

        An error is kept as `error`.
        """
        try:
            return self._load(rows, numbers)
        except Exception as error:
            self.error = error
            raise

    def _rows(self, index):
        return self._order[index * self.batch_size : (index + 1) * self.batch_size]

    def _load(self, rows, numbers):
        pixels = self.images.load(rows)
        targets = None
        if self.num_classes is not None:
            targets = np.eye(self.num_classes, dtype="float32")[self.images.labels[rows]]
        if self.augment is not None:
            pixels, targets = self.augment(pixels, targets, (self.seed, self.epoch, *numbers))
        pixels = (pixels - self.mean) / self.std
        return (pixels,) if targets is None else (pixels, targets)


def even_batch_size(count, largest):
    """The batch size of at most `largest` with the fewest, and then the most even, batches for `count` images."""
    return -(-count // -(-count // largest))
