"""The picture that shows what masked autoencoders have learned: original, masked, and each model's reconstruction."""

import keras
import numpy as np

from keras_polycom import ops
from support.errors import require
from support.report import write_figure

GRAY = 128.0


def paint(model, part, mean, std):
    """Returns pixels 0 to 255 of the masked pictures and of their reconstruction by a model.

    Args:
        model: `keras_polycom.models.MAE`.
        part: dict of arrays, `"images"`, normalized, and `"noise"`.
        mean, std: what the images were normalized with.
    """
    painted, mask = (keras.ops.convert_to_numpy(x) for x in model.reconstruct(part["images"], part["noise"]))
    hidden = np.repeat(mask[..., None], ops.patchify(part["images"], model.patch_size).shape[-1], axis=-1)
    hidden = keras.ops.convert_to_numpy(ops.unpatchify(hidden, model.patch_size, model.grid)) > 0
    return np.where(hidden, GRAY, pixels(part["images"], mean, std)), pixels(painted, mean, std)


def pixels(images, mean, std):
    return np.clip(images * np.asarray(std) + np.asarray(mean), 0, 255)


def write_reconstructions(path, original, masked, painted, title):
    """Draws a column per picture: the original, what the models see of it, and a row for each run.

    Args:
        path: path of a .png.
        original, masked: pixels (pictures, height, width, channels), 0 to 255.
        painted: dict, label -> pixels.
        title: string.
    """
    figure_module = require("matplotlib.figure", "Drawing the plots")
    rows = {"original": original, "masked": masked, **painted}
    figure = figure_module.Figure(figsize=(1.5 * len(original) + 1.2, 1.5 * len(rows) + 0.5), layout="constrained")
    axes = figure.subplots(len(rows), len(original), squeeze=False)
    for line, (label, images) in zip(axes, rows.items(), strict=True):
        for axis, image in zip(line, images, strict=True):
            axis.imshow(_displayable(image), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_visible(False)
        line[0].set_ylabel(label, fontsize=9)
    figure.suptitle(title, fontsize=9)
    write_figure(path, figure)


def _displayable(image):
    image = np.round(image).astype("uint8")
    return image if image.shape[-1] == 3 else image.mean(-1)
