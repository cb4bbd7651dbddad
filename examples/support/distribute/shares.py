"""Devices that compute equal parts of every batch, and what that asks of the batches."""

import keras
import numpy as np

from support.distribute.devices import Devices
from support.errors import UserError


class SharedBatches(Devices):
    """Base of the devices that share batches."""

    def check_batch_size(self, batch_size):
        if batch_size % self.parts:
            nearest = max(batch_size - batch_size % self.parts, self.parts)
            raise UserError(
                f"--batch-size {batch_size} is shared by {self.parts} devices in equal parts, which cannot be: give a "
                f"multiple of {self.parts}, such as {nearest}."
            )

    def evaluate(self, batches, evaluate):
        total, count = {}, 0
        for part in even_parts(batches, self.parts):
            for name, value in self.mean(evaluate(self.share(part))).items():
                total[name] = total.get(name, 0.0) + float(value) * part.images_once
            count += part.images_once
        return {name: value / count for name, value in total.items()}


def even_parts(batches, parts):
    """The same images in batches that can all be cut into equal parts.

    Returns:
        A list of at most two `Selection`s: what can be shared, and, for means, the few images left over, each of them
        once in every part, which does not change their mean.
    """
    count = len(batches.images)
    left_over = count % parts
    size = max(batches.batch_size // parts, 1) * parts
    shared, rest = np.split(np.arange(count), [count - left_over])
    shared = [shared[start : start + size] for start in range(0, len(shared), size)]
    selections = [Selection(batches, shared, count - left_over)] if shared else []
    return [*selections, Selection(batches, [np.tile(rest, parts)], left_over)] if left_over else selections


class Selection(keras.utils.PyDataset):
    """Batches of given rows of the images of other batches.

    Args:
        batches: `batches.ImageBatches`.
        rows: list of arrays, the row numbers of each batch.
        images_once: integer, the number of images, each counted once.
    """

    def __init__(self, batches, rows, images_once):
        super().__init__(workers=batches.workers, max_queue_size=batches.max_queue_size)
        self.batches = batches
        self.rows = rows
        self.images_once = images_once

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.batches.load(self.rows[index])

    def shared(self, index, part, parts):
        return self.batches.load(np.split(self.rows[index], parts)[part])


class Share(keras.utils.PyDataset):
    """One of the equal parts of every batch.

    Args:
        batches: `batches.ImageBatches` or `Selection`.
        part: integer, which.
        parts: integer, of how many.
    """

    def __init__(self, batches, part, parts):
        super().__init__(workers=batches.workers, max_queue_size=batches.max_queue_size)
        self.batches = batches
        self.part = part
        self.parts = parts

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.batches.shared(index, self.part, self.parts)
