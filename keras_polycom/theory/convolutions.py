"""The exact representation of convolutional blocks [PLN, theorem 5.2]."""

import keras
import numpy as np

from keras_polycom.layers import ConvParallelLayerNormalization
from keras_polycom.theory.networks import read_network

_CONVOLUTIONS = (keras.layers.Conv1D, keras.layers.Conv2D, keras.layers.Conv3D)


def fold_into_convolutions(network, first, second, input_shape):
    """A convolution, a function at every position, a convolution, as: convolution, CPLN, convolution.

    Statement (theorem 5.2, as it is realised here): let s(z) = U PLN(V z + c) be a shallow PLN-Net without a bias at
    its end, applied to the channels at every position of a feature map (`sign_network` and `phi_network` are two: one
    group per channel). Then for any two convolutions, of whatever kernel sizes, strides, dilations and zero padding,
    there are two convolutions of the same ones such that

    ```
    second(s(first(x))) = second'(CPLN(first'(x)))    for all x
    ```

    So a convolutional block whose activation is such an s is one whose only nonlinearity is CPLN.

    Construction: V and c are a 1x1 convolution behind `first`, U is one in front of `second`, and each is folded into
    its neighbour. A 1x1 convolution commutes with strides and dilations. It commutes with zero padding only without a
    bias: s(0) need not be 0, but what `second` pads are the outputs of s, and U 0 = 0. A bias behind U is therefore
    legal only if `second` does not pad (`padding="valid"`), where it is folded into the bias of `second`.

    Args:
        network: a model as `theory.build_network` makes it, with one PLN, from the filters of `first` to the input
            channels of `second`.
        first, second: built `Conv1D`, `Conv2D` or `Conv3D` layers of the same data format with `groups=1`; `first` has
        no
            activation.
        input_shape: shape of the input of `first` without the batch axis, as of `keras.Input`.

    Returns:
        `keras.Model` of three layers.

    Raises:
        ValueError: layers that are not of this kind or do not fit, or a bias at the end of `network` where `second`
        pads.

    Example:

    >>> import keras
    >>> from keras_polycom import theory
    >>> first = keras.layers.Conv2D(5, 3, strides=2, data_format="channels_last")
    >>> second = keras.layers.Conv2D(2, 3, padding="same", data_format="channels_last")
    >>> first.build((None, 9, 9, 3)), second.build((None, 4, 4, 5))
    (None, None)
    >>> model = theory.fold_into_convolutions(theory.phi_network(units=5, norm_size=4), first, second, (9, 9, 3))
    >>> [type(layer).__name__ for layer in model.layers[1:]]
    ['Conv2D', 'ConvParallelLayerNormalization', 'Conv2D']
    """
    affine_maps, normalizations = read_network(network)
    if len(normalizations) != 1 or not normalizations[0].centered:
        raise ValueError(f"Expected a network with one ParallelLayerNormalization. Received: {normalizations}")
    into, out = affine_maps
    _check_convolutions(first, second, into, out)

    first_kernel, first_bias = _weights(first)
    second_kernel, second_bias = _weights(second)
    first_values = [first_kernel @ into.kernel, first_bias @ into.kernel + into.bias]
    spatial = tuple(range(second_kernel.ndim - 2))
    second_values = [out.kernel @ second_kernel, second_bias + out.bias @ second_kernel.sum(axis=spatial)]

    norm = ConvParallelLayerNormalization(
        normalizations[0].norm_size,
        data_format=first.data_format,
        epsilon=normalizations[0].epsilon,
        center=False,
        scale=False,
        dtype=network.layers[-1].dtype_policy,
    )
    new_first, new_second = _like(first, into.kernel.shape[1]), _like(second, second.filters)
    inputs = keras.Input(input_shape, dtype=first.compute_dtype)
    model = keras.Model(inputs, new_second(norm(new_first(inputs))))
    new_first.set_weights(first_values)
    new_second.set_weights(second_values)
    return model


def _check_convolutions(first, second, into, out):
    for name, layer in (("first", first), ("second", second)):
        if not isinstance(layer, _CONVOLUTIONS) or not layer.built or layer.groups != 1:
            raise ValueError(f"`{name}` must be a built Conv1D, Conv2D or Conv3D with groups=1. Received: {layer}")
    if first.activation is not keras.activations.linear:
        raise ValueError(f"`first` must have no activation: `network` is it. Received: {first.activation}")
    if first.data_format != second.data_format:
        raise ValueError(f"Expected one data format. Received: {first.data_format}, {second.data_format}")
    widths = (first.filters, into.kernel.shape[0], out.kernel.shape[1], second.kernel.shape[-2])
    if widths[0] != widths[1] or widths[2] != widths[3]:
        raise ValueError(
            "`network` must lead from the filters of `first` to the input channels of `second`. Received: "
            f"{widths[0]} filters, a network from {widths[1]} to {widths[2]}, {widths[3]} input channels"
        )
    if np.any(out.bias) and second.padding != "valid":
        raise ValueError(
            "A bias at the end of `network` can't be folded into a convolution that pads: the padding lacks it. "
            f"Received: bias {out.bias}, padding={second.padding!r}"
        )


def _weights(layer):
    kernel = keras.ops.convert_to_numpy(layer.kernel).astype("float64")
    if layer.bias is None:
        return kernel, np.zeros(layer.filters)
    return kernel, keras.ops.convert_to_numpy(layer.bias).astype("float64")


def _like(layer, filters):
    """A new convolution with the geometry of `layer`."""
    return type(layer)(
        filters,
        layer.kernel_size,
        strides=layer.strides,
        padding=layer.padding,
        data_format=layer.data_format,
        dilation_rate=layer.dilation_rate,
        activation=layer.activation,
        kernel_initializer="zeros",  # the values are set right after
        dtype=layer.dtype_policy,
    )
