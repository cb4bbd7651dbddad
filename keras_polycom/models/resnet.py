"""The residual network with bottleneck blocks, version 1.5."""

import functools

import keras

from keras_polycom import activations, normalizations
from keras_polycom.layers.channels import on_axis
from keras_polycom.layers.max_pooling import PaddedMaxPooling2D
from keras_polycom.layers.poly_relu import PolyPReLU, PolyReLU
from keras_polycom.models.configured import (
    ConfiguredModel,
    check_data_format,
    check_head,
    check_one_of,
    image_sizes,
)
from keras_polycom.ops._numerics import check_count

EXPANSION = 4
VARIANTS = {"resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3), "resnet152": (3, 8, 36, 3)}
STEMS = ("imagenet", "cifar")

# Each block's sum is raised to the third power and added up again, which no normalization undoes.
_CUBES_OF_CUBES = {"poly_relu": PolyReLU, "poly_prelu": PolyPReLU}


@keras.saving.register_keras_serializable(package="keras_polycom")
class ResNet50(ConfiguredModel):
    """Residual network with bottleneck blocks whose activation and normalization can be swapped.

    Version 1.5, as in torchvision and timm: the stride is on the 3x3 convolution. Convolutions have no bias; strided
    ones pad both sides alike; max pooling pads with minus infinity, so that negative activations are pooled rightly.
    PolyNorm and its kin normalize the channel axis at each position.

    Input: images (batch, height, width, channels), or (batch, channels, height, width) for `"channels_first"`. Output:
    (batch, num_classes); without a head the features, (batch, 4 widths[-1]), or the feature map for `pooling=None`.

    Layers, for `get_layer`: `images`, `stem_convolution`, `stem_norm`, `stem_activation`, `stem_pool`;
    `stage_0_block_0_convolution_1`, `..._norm_1`, `..._activation_1`, the same with 2 and 3,
    `..._shortcut_convolution`, `..._shortcut_norm`, `..._add` before `..._activation_3`; `pooled`, `head`. Convolutions
    start He normal by fan-out, the head uniform within plus or minus the root of its fan-in, as in torchvision.

    Args:
        variant: string or `None`. A depth by name: `"resnet50"`, `"resnet101"`, `"resnet152"`; `None` stands for
            `"resnet50"`.
        image_shape: triple of integers. Height and width may be `None`. Defaults to `(224, 224, 3)`.
        num_classes: integer, or `None` or 0 for no head. Defaults to `1000`.
        depths: sequence of integers. Blocks per stage; every stage but the first halves the image. Defaults to the
            variant's.
        widths: sequence of integers. Bottleneck width per stage; the output has four times as many channels. Defaults
            to `(64, 128, 256, 512)`.
        stem: `"imagenet"`, a 7x7 convolution and max pooling, both of stride 2; or `"cifar"`, a 3x3 convolution of
            stride 1, for small images. Defaults to `"imagenet"`.
        stem_width: integer or `None`. Channels of the stem; `None` for `widths[0]`. Defaults to `None`.
        activation: activation at every site: a name, function, layer class, maker, config, or a layer instance, which
            is cloned per site. By name or class, PolyReLU and PolyPReLU start as the rectifier they are made of:
            coefficients of 1/3 each would overflow before the first step, since sums of blocks are cubed one after
            another. They want a small learning rate here; PolyNorm is the steadier one. Defaults to `"relu"`.
        normalization: normalization: a name, class, maker, config or instance. Defaults to `"batch_norm"` (epsilon
            1e-5, momentum 0.9).
        zero_init_residual: bool. Whether the last gain of each block starts at 0, so that blocks start as identities.
            Defaults to `False`.
        pooling: `"mean"` over all positions; `None`, only without a head, for the feature map. Defaults to `"mean"`.
        classifier_activation: activation of the head, such as `"softmax"`; `None` for logits. Defaults to `None`.
        data_format: `"channels_last"` or `"channels_first"`; `None` for `keras.config.image_data_format()`. Defaults to
            `None`.
        name: optional string.
        dtype: dtype or policy of all layers; `None` for the global policy. Defaults to `None`.
        trainable: bool. `False` freezes all layers. Defaults to `True`. Which single layers are frozen is not part of
            the config: freeze them again after loading.

    Raises:
        ValueError: an unknown variant or name, a size or choice out of range, or an image smaller than the product of
            the strides.

    Example:

    >>> import keras, keras_polycom
    >>> model = keras_polycom.models.ResNet50(
    ...     image_shape=(32, 32, 3), num_classes=10, depths=(1, 1), widths=(4, 8), stem="cifar", activation="poly_norm"
    ... )
    >>> model(keras.ops.ones((2, 32, 32, 3))).shape == (2, 10)
    True

    Reference: He et al., Deep Residual Learning for Image Recognition, arXiv 1512.03385, table 1; the PolyNorm version
    is that of Zhuo et al., arXiv 2411.03884, appendix H.
    """

    def __init__(
        self,
        variant=None,
        *,
        image_shape=(224, 224, 3),
        num_classes=1000,
        depths=None,
        widths=(64, 128, 256, 512),
        stem="imagenet",
        stem_width=None,
        activation="relu",
        normalization="batch_norm",
        zero_init_residual=False,
        pooling="mean",
        classifier_activation=None,
        data_format=None,
        name=None,
        dtype=None,
        trainable=True,
    ):
        # === Sizes and checks ===
        check_one_of("variant", variant, (None, *VARIANTS))
        depths = tuple(VARIANTS[variant or "resnet50"] if depths is None else depths)
        widths = tuple(widths)
        if not depths or len(depths) != len(widths):
            raise ValueError(
                f"`depths` and `widths` must have one entry per stage. Received: depths={depths}, widths={widths}"
            )
        for depth, width in zip(depths, widths, strict=True):
            check_count(depth, "depths")
            check_count(width, "widths")
        check_one_of("stem", stem, STEMS)
        stem_width = check_count(widths[0] if stem_width is None else stem_width, "stem_width")
        check_one_of("pooling", pooling, ("mean", None))
        num_classes = check_head(num_classes, pooling)
        data_format = check_data_format(data_format)
        _check_image(image_shape, len(depths), stem, data_format)
        dtype = keras.dtype_policies.get(dtype)

        # === Functional model ===
        parts = _Parts(activation, normalization, data_format, dtype)
        images = keras.Input(shape=tuple(image_shape), name="images")
        x = _stem(images, stem_width, stem, parts)
        for stage, (depth, width) in enumerate(zip(depths, widths, strict=True)):
            for block in range(depth):
                stride = 2 if stage > 0 and block == 0 else 1
                x = _bottleneck(x, width, stride, block == 0, zero_init_residual, parts, f"stage_{stage}_block_{block}")
        if pooling:
            x = keras.layers.GlobalAveragePooling2D(data_format=data_format, dtype=dtype, name="pooled")(x)
        if num_classes:
            x = keras.layers.Dense(
                num_classes,
                activation=classifier_activation,
                kernel_initializer=keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform"),
                dtype=dtype,
                name="head",
            )(x)
        super().__init__(inputs=images, outputs=x, name=name, trainable=None if trainable else False)

        # === Config ===
        self._remember(
            dtype,
            variant=variant,
            image_shape=tuple(image_shape),
            num_classes=num_classes,
            depths=depths,
            widths=widths,
            stem=stem,
            stem_width=stem_width,
            activation=activations.serialize(activation, dtype=dtype),
            normalization=normalizations.serialize(normalization, dtype=dtype),
            zero_init_residual=zero_init_residual,
            pooling=pooling,
            classifier_activation=activations.serialize(classifier_activation, dtype=dtype),
            data_format=data_format,
        )


class _Parts:
    """Makes the layers of one model: all that its blocks have in common."""

    def __init__(self, activation, normalization, data_format, dtype):
        self.identifiers = (_started_as_rectifier(activation), normalization)
        self.data_format = data_format
        self.dtype = dtype
        self.channel_axis = -1 if data_format == "channels_last" else 1

    def convolution(self, x, filters, kernel_size, stride, name):
        padding = (kernel_size - 1) // 2
        if stride > 1 and padding:  # "same" would pad the far side only
            x = keras.layers.ZeroPadding2D(
                padding, data_format=self.data_format, dtype=self.dtype, name=f"{name}_padding"
            )(x)
        return keras.layers.Conv2D(
            filters,
            kernel_size,
            strides=stride,
            padding="same" if stride == 1 else "valid",
            data_format=self.data_format,
            use_bias=False,
            kernel_initializer=keras.initializers.VarianceScaling(2.0, "fan_out", "untruncated_normal"),
            dtype=self.dtype,
            name=name,
        )(x)

    def norm(self, x, name, **overrides):
        layer = normalizations.get(self.identifiers[1], name=name, dtype=self.dtype)
        return on_axis(layer, self.channel_axis, data_format=self.data_format, **overrides)(x)

    def activation(self, x, name):
        layer = activations.get_layer(self.identifiers[0], name=name, dtype=self.dtype)
        return on_axis(layer, self.channel_axis, data_format=self.data_format)(x)


def _started_as_rectifier(activation):
    layer_class = _CUBES_OF_CUBES.get(activation) if isinstance(activation, str) else activation
    if layer_class not in _CUBES_OF_CUBES.values():
        return activation
    return functools.partial(layer_class, coefficients_initializer=[1.0, 0.0, 0.0])


def _stem(x, filters, stem, parts):
    if stem == "imagenet":
        x = parts.convolution(x, filters, 7, 2, "stem_convolution")
    else:
        x = parts.convolution(x, filters, 3, 1, "stem_convolution")
    x = parts.norm(x, "stem_norm")
    x = parts.activation(x, "stem_activation")
    if stem == "imagenet":
        x = PaddedMaxPooling2D(3, 2, 1, data_format=parts.data_format, dtype=parts.dtype, name="stem_pool")(x)
    return x


def _bottleneck(x, width, stride, first, zero_init_residual, parts, name):
    shortcut = x
    if first:
        shortcut = parts.convolution(x, EXPANSION * width, 1, stride, f"{name}_shortcut_convolution")
        shortcut = parts.norm(shortcut, f"{name}_shortcut_norm")
    x = parts.convolution(x, width, 1, 1, f"{name}_convolution_1")
    x = parts.norm(x, f"{name}_norm_1")
    x = parts.activation(x, f"{name}_activation_1")
    x = parts.convolution(x, width, 3, stride, f"{name}_convolution_2")
    x = parts.norm(x, f"{name}_norm_2")
    x = parts.activation(x, f"{name}_activation_2")
    x = parts.convolution(x, EXPANSION * width, 1, 1, f"{name}_convolution_3")
    x = parts.norm(x, f"{name}_norm_3", **({"gamma_initializer": "zeros"} if zero_init_residual else {}))
    x = keras.layers.Add(dtype=parts.dtype, name=f"{name}_add")([shortcut, x])
    return parts.activation(x, f"{name}_activation_3")


def _check_image(image_shape, stages, stem, data_format):
    height, width, _ = image_sizes(image_shape, data_format)
    smallest = (4 if stem == "imagenet" else 1) * 2 ** (stages - 1)
    if any(side is not None and side < smallest for side in (height, width)):
        hint = ", or stem='cifar' for small images" if stem == "imagenet" else ""
        raise ValueError(
            f"The strides of {stages} stages with stem={stem!r} need an image of at least {smallest} x {smallest}. "
            f"Received: height={height}, width={width} (image_shape={tuple(image_shape)}, {data_format}). Use larger "
            f"images or fewer stages{hint}."
        )
