"""PLN-Nets and PLS-Nets: Keras models that alternate affine maps and normalizations, and their description in NumPy."""

from typing import NamedTuple

import keras
import numpy as np

from keras_polycom.layers import ParallelLayerNormalization, ParallelLayerScaling


class Affine(NamedTuple):
    """The map `x kernel + bias`: kernel (inputs, outputs), bias (outputs,)."""

    kernel: np.ndarray
    bias: np.ndarray


class Normalization(NamedTuple):
    """PLN[norm_size], or with `centered=False` PLS[norm_size], without gamma and beta."""

    norm_size: int
    centered: bool = True
    epsilon: float = 0.0


def build_network(affine_maps, normalizations, dtype=None):
    """The network affine, normalization, affine, ..., affine, as a `keras.Sequential` of `Dense` and PLN or PLS layers.

    Args:
        affine_maps: sequence of `Affine`, one more than there are normalizations.
        normalizations: sequence of `Normalization`.
        dtype: dtype or dtype policy of the layers. Defaults to the global policy.

    Raises:
        ValueError: numbers or widths that do not fit together.

    Example:

    >>> import numpy as np
    >>> from keras_polycom import theory
    >>> maps = [theory.Affine(np.array([[1.0, -1.0]]), np.zeros(2)), theory.Affine(np.ones((2, 1)), np.zeros(1))]
    >>> model = theory.build_network(maps, [theory.Normalization(norm_size=2)])
    >>> [type(layer).__name__ for layer in model.layers]
    ['Dense', 'ParallelLayerNormalization', 'Dense']
    """
    if len(affine_maps) != len(normalizations) + 1:
        raise ValueError(
            "A network has one affine map more than normalizations. Received: "
            f"{len(affine_maps)} affine maps, {len(normalizations)} normalizations"
        )
    layers = [_dense(affine_maps[0], dtype)]
    for normalization, affine in zip(normalizations, affine_maps[1:], strict=True):
        layers += [normalization_layer(normalization, dtype), _dense(affine, dtype)]
    model = keras.Sequential([keras.Input((affine_maps[0].kernel.shape[0],), dtype=layers[0].compute_dtype), *layers])
    for layer, affine in zip(layers[::2], affine_maps, strict=True):
        layer.set_weights([affine.kernel, affine.bias])
    return model


def read_network(model):
    """The affine maps and normalizations of a model as `build_network` makes them; `gamma` and `beta` are folded away.

    Args:
        model: a `keras.Sequential` or functional chain of `Dense`, PLN or PLS, `Dense`, ..., `Dense`.

    Returns:
        List of `Affine` and list of `Normalization`, arguments of `build_network`.

    Raises:
        ValueError: the model is no such chain.
    """
    layers = [layer for layer in model.layers if not isinstance(layer, keras.layers.InputLayer)]
    dense, norms = layers[::2], layers[1::2]
    is_chain = len(layers) % 2 == 1 and all(isinstance(layer, keras.layers.Dense) for layer in dense)
    is_linear = is_chain and all(layer.activation is keras.activations.linear for layer in dense)
    if not is_linear or not all(isinstance(n, (ParallelLayerNormalization, ParallelLayerScaling)) for n in norms):
        raise ValueError(
            "Expected a chain of linear Dense layers with a ParallelLayerNormalization or ParallelLayerScaling between "
            f"any two. Received: {[type(layer).__name__ for layer in layers]}"
        )
    affine_maps = [_affine(dense[0])]
    for norm, layer in zip(norms, dense[1:], strict=True):
        affine = _affine(layer)
        gamma, beta = _values(norm.gamma, 1.0, affine), _values(norm.beta, 0.0, affine)
        affine_maps.append(Affine(gamma[:, None] * affine.kernel, affine.bias + beta @ affine.kernel))
    return affine_maps, [
        Normalization(norm.norm_size, isinstance(norm, ParallelLayerNormalization), norm.epsilon) for norm in norms
    ]


def normalization_layer(normalization, dtype=None, **kwargs):
    """The Keras layer of a `Normalization`."""
    layer = ParallelLayerNormalization if normalization.centered else ParallelLayerScaling
    return layer(
        normalization.norm_size,
        epsilon=normalization.epsilon,
        center=False,
        scale=False,
        dtype=dtype,
        **kwargs,
    )


def block_diagonal(block, count):
    """The matrix with `count` copies of `block` on its diagonal."""
    return np.kron(np.eye(count), block)


def _dense(affine, dtype):
    return keras.layers.Dense(affine.kernel.shape[1], kernel_initializer="zeros", dtype=dtype)  # set right after


def _affine(layer):
    kernel = _values(layer.kernel)
    return Affine(kernel, np.zeros(kernel.shape[1]) if layer.bias is None else _values(layer.bias))


def _values(variable, default=None, affine=None):
    if variable is None:
        return np.full(affine.kernel.shape[0], default)
    return keras.ops.convert_to_numpy(variable).astype("float64")
