"""A convolutional network without activations: the only nonlinearity is the normalization behind each convolution."""

import re

import keras

from keras_polycom import normalizations
from support.errors import UserError, building
from support.initial import uniform

EPSILON = 1e-5
GROUP_SIZE = 8
NAMES = "ln, gn, gn[N], pln[N], pls[N], patch_group_norm[C,P], mix_norm[T,C]"
_OURS = ("pln", "pls", "patch_group_norm", "mix_norm")


def normalization(name, channels, affine=False):
    """Makes a normalization of feature maps (height, width, channels).

    Args:
        name: `"ln"`, over all channels and positions; `"gn[N]"`, over N groups of channels and all positions; `"gn"`,
            the same with 8 channels to a group; or one that `keras_polycom.normalizations` knows: `"pln[8]"`,
            `"patch_group_norm[4,2]"`, ...
        channels: integer.
        affine: bool. Whether it has gamma and beta.

    Raises:
        ValueError: unknown name, or one that does not fit the channels.
    """
    arguments = {"epsilon": EPSILON, "center": affine, "scale": affine}
    groups = re.fullmatch(r"gn(?:\[([1-9]\d*)\])?", "gn[1]" if name == "ln" else name)
    if groups:
        return keras.layers.GroupNormalization(int(groups[1] or max(1, channels // GROUP_SIZE)), **arguments)
    base = name.split("[")[0]
    if base not in _OURS:
        raise ValueError(f"Unknown normalization {name!r}")
    if base == "patch_group_norm":
        arguments["data_format"] = "channels_last"
    return normalizations.get(name, **arguments)


def check_name(name):
    """Raises `UserError` for an unknown name of `--normalization`."""
    try:
        normalization(name, 64)
    except ValueError as error:
        raise UserError(f"--normalization {name} is not a known name: choose from {NAMES}.") from error


def build(image_shape, classes, name, *, width, depth, stride, pool, affine, seed):
    """[3x3 convolution, normalization] x depth, average pooling, and a linear layer to the classes.

    Two calls with one seed differ in nothing but the normalizations.

    Args:
        image_shape: (height, width, channels).
        classes: integer.
        name: of the normalization.
        width, depth: integers, the channels and number of the convolutions.
        stride: integer, that of the first convolution; the others have 1.
        pool: integer. The last feature map is averaged over squares of so many pixels.
        affine: bool. Whether the normalizations have gamma and beta.
        seed: integer.

    Raises:
        UserError: sizes that do not fit together.
    """
    keras.utils.set_random_seed(seed)
    x = images = keras.Input(image_shape, name="images")
    with building(f"with {name}"):
        for number in range(1, depth + 1):
            x = keras.layers.Conv2D(
                width,
                3,
                strides=stride if number == 1 else 1,
                padding="same",
                data_format="channels_last",
                name=f"convolution_{number}",
                **uniform(9 * x.shape[-1]),
            )(x)
            x = normalization(name, width, affine)(x)
        if min(x.shape[1:3]) < pool:
            raise UserError(
                f"--pool {pool} is larger than the last feature map of {x.shape[1]}x{x.shape[2]}: give "
                f"{min(x.shape[1:3])} or less."
            )
        x = keras.layers.AveragePooling2D(pool, data_format="channels_last", name="pool")(x)
        x = keras.layers.Flatten(data_format="channels_last", name="flatten")(x)
    logits = keras.layers.Dense(classes, name="head", **uniform(x.shape[-1]))(x)
    return keras.Model(images, logits, name="conv_net")
