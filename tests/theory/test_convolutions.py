"""Theorem 5.2: convolution, pointwise network, convolution is convolution, CPLN, convolution."""

import keras
import numpy as np
import pytest
from reference_values import as_float64, assert_close
from tracing import traced

import keras_polycom
from keras_polycom import theory

# On torch Keras multiplies float64 matrices in float32, so that `Dense` has no more digits than that there.
DIGITS = 1e-5 if keras.backend.backend() == "torch" else 1e-10

CASES = {
    "plain": ({}, {}),
    "zero_padding": ({"padding": "same"}, {"padding": "same"}),
    "strides": ({"strides": 2, "padding": "same"}, {"strides": 3, "padding": "same"}),
    "dilation": ({"dilation_rate": 2}, {"dilation_rate": 3, "padding": "same"}),
    "no_bias": ({"use_bias": False}, {"use_bias": False, "padding": "same"}),
    "activation_behind": ({}, {"activation": "tanh", "padding": "same"}),
}


def convolutions(rng, input_shape, channels, first=None, second=None, kind=keras.layers.Conv2D):
    """Two convolutions with random weights, and the shape between them."""
    common = {"kernel_size": 3, "data_format": "channels_last", "kernel_initializer": "zeros", "dtype": "float64"}
    first, second = kind(channels[0], **common, **(first or {})), kind(4, **common, **(second or {}))
    first.build((None, *input_shape))
    between = first.compute_output_shape((None, *input_shape))
    second.build((*between[:-1], channels[1]))
    for weight in [*first.weights, *second.weights]:
        weight.assign(rng.standard_normal(tuple(weight.shape)))
    return first, second


def composed(first, network, second, x):
    """The network at every position between the two."""

    def chain(x):
        between = first(x)
        shape = tuple(between.shape)
        activated = network(keras.ops.reshape(between, (-1, shape[-1])))
        return second(keras.ops.reshape(activated, (*shape[:-1], activated.shape[-1])))

    return as_float64(traced(chain)(x))


@pytest.mark.parametrize(
    ("name", "case"), [("phi_epsilon", case) for case in CASES] + [("phi", "strides"), ("sign", "strides")]
)
def test_exact(name, case, rng):
    network = {
        "sign": lambda: theory.sign_network(3, norm_size=2, dtype="float64"),
        "phi": lambda: theory.phi_network(3, norm_size=4, dtype="float64"),
        "phi_epsilon": lambda: theory.phi_network(3, norm_size=3, epsilon=0.1, dtype="float64"),
    }[name]()
    first, second = convolutions(rng, (11, 13, 2), (3, 3), *CASES[case])
    model = theory.fold_into_convolutions(network, first, second, (11, 13, 2))
    assert [type(layer) for layer in model.layers[1:]] == [
        keras.layers.Conv2D,
        keras_polycom.ConvParallelLayerNormalization,
        keras.layers.Conv2D,
    ]
    x = keras.ops.convert_to_tensor(rng.standard_normal((2, 11, 13, 2)))
    assert_close(traced(model)(x), composed(first, network, second, x), DIGITS)


def general_network(rng, bias):
    """From 3 channels to 5 by way of 2 groups of 4."""
    maps = [
        theory.Affine(rng.standard_normal((3, 8)), rng.standard_normal(8)),
        theory.Affine(rng.standard_normal((8, 5)), bias),
    ]
    return theory.build_network(maps, [theory.Normalization(4, epsilon=1e-3)], dtype="float64")


@pytest.mark.parametrize(
    ("kind", "shape"),
    [(keras.layers.Conv1D, (12, 2)), (keras.layers.Conv3D, (5, 6, 7, 2))],
    ids=["conv1d", "conv3d"],
)
def test_other_numbers_of_spatial_axes(kind, shape, rng):
    network = general_network(rng, np.zeros(5))
    first, second = convolutions(rng, shape, (3, 5), {}, {"padding": "same"}, kind)
    x = keras.ops.convert_to_tensor(rng.standard_normal((2, *shape)))
    model = theory.fold_into_convolutions(network, first, second, shape)
    assert_close(traced(model)(x), composed(first, network, second, x), DIGITS)


def test_bias_at_the_end_is_legal_without_padding(rng):
    network = general_network(rng, rng.standard_normal(5))
    first, second = convolutions(rng, (8, 9, 2), (3, 5), {"padding": "same"})
    x = keras.ops.convert_to_tensor(rng.standard_normal((2, 8, 9, 2)))
    model = theory.fold_into_convolutions(network, first, second, (8, 9, 2))
    assert_close(traced(model)(x), composed(first, network, second, x), DIGITS)


class TestErrors:
    def test_bias_in_front_of_padding(self, rng):
        network = general_network(rng, np.ones(5))
        first, second = convolutions(rng, (8, 9, 2), (3, 5), {}, {"padding": "same"})
        with pytest.raises(ValueError, match=r"can't be folded into a convolution that pads.*padding='same'"):
            theory.fold_into_convolutions(network, first, second, (8, 9, 2))

    def test_activation_of_the_first(self, rng):
        first, second = convolutions(rng, (8, 9, 2), (3, 3), {"activation": "relu"})
        with pytest.raises(ValueError, match="`first` must have no activation"):
            theory.fold_into_convolutions(theory.phi_network(3, dtype="float64"), first, second, (8, 9, 2))

    def test_numbers_of_channels(self, rng):
        first, second = convolutions(rng, (8, 9, 2), (3, 3))
        with pytest.raises(ValueError, match="3 filters, a network from 2 to 2, 3 input channels"):
            theory.fold_into_convolutions(theory.phi_network(2, dtype="float64"), first, second, (8, 9, 2))

    def test_not_built(self):
        layer = keras.layers.Conv2D(3, 3)
        with pytest.raises(ValueError, match="`first` must be a built Conv1D, Conv2D or Conv3D"):
            theory.fold_into_convolutions(theory.phi_network(3), layer, layer, (8, 9, 2))
