"""Random resized crops and mirroring of single images, by Pillow, from a random generator that is handed in."""

import math

import numpy as np

from support.errors import require

SCALE = (0.2, 1.0)
RATIO = (3 / 4, 4 / 3)
ATTEMPTS = 10


def random_box(height, width, rng, scale=SCALE, ratio=RATIO):
    """Returns (left, top, right, bottom) of a random crop.

    Its share of the image's area is uniform in `scale`, the logarithm of its width over its height uniform in the
    logarithms of `ratio`, its place uniform; a crop that does not fit is drawn again, and after ten attempts the
    largest centred one with a legal ratio is taken.
    """
    for _ in range(ATTEMPTS):
        area = height * width * rng.uniform(*scale)
        shape = math.exp(rng.uniform(math.log(ratio[0]), math.log(ratio[1])))
        crop_width, crop_height = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
        if 0 < crop_width <= width and 0 < crop_height <= height:
            left, top = rng.integers(width - crop_width + 1), rng.integers(height - crop_height + 1)
            return int(left), int(top), int(left) + crop_width, int(top) + crop_height
    crop_width, crop_height = min(width, round(height * ratio[1])), min(height, round(width / ratio[0]))
    left, top = (width - crop_width) // 2, (height - crop_height) // 2
    return left, top, left + crop_width, top + crop_height


def random_crop(pixels, size, rng, mirrored=True):
    """Returns float32 pixels (*size, channels) of a random crop, mirrored every other time if `mirrored`."""
    crop = resized(pixels, size, random_box(*pixels.shape[:2], rng))
    return crop[:, ::-1] if mirrored and rng.random() < 0.5 else crop


def centre_crop(pixels, size):
    """Returns float32 pixels (*size, channels) of the largest centred part of the same shape as `size`."""
    height, width = pixels.shape[:2]
    scale = min(height / size[0], width / size[1])
    left, top = (width - size[1] * scale) / 2, (height - size[0] * scale) / 2
    return resized(pixels, size, (left, top, left + size[1] * scale, top + size[0] * scale))


def resized(pixels, size, box):
    """Returns float32 pixels (*size, channels) of a part of an image (height, width, channels), 0 to 255, bicubic."""
    image_module = require("PIL.Image", "Resizing images")
    bicubic, size = image_module.Resampling.BICUBIC, (size[1], size[0])
    if pixels.dtype == "uint8" and pixels.shape[2] == 3:
        return np.asarray(image_module.fromarray(pixels).resize(size, bicubic, box=box), "float32")
    channels = [image_module.fromarray(np.ascontiguousarray(c, "float32")) for c in np.moveaxis(pixels, -1, 0)]
    stacked = np.stack([np.asarray(channel.resize(size, bicubic, box=box)) for channel in channels], axis=-1)
    return np.clip(stacked, 0, 255)  # bicubic interpolation overshoots
