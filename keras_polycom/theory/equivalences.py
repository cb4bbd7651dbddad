"""Which networks are the same [PLN, lemmas 3.1 and 3.2]."""

import keras
import numpy as np

from keras_polycom.theory.networks import (
    Affine,
    Normalization,
    block_diagonal,
    build_network,
    normalization_layer,
    read_network,
)


def sum_of_networks(model):
    """A shallow PLN-Net as a sum of LN-Nets.

    Statement (lemma 3.1): a PLN[n]-Net with one hidden layer of N groups is the sum of N LN[n]-Nets, each with a hidden
    layer of n units; `join_networks` is the converse. The same holds for PLS and LS.

    Construction: the k-th LN-Net takes the k-th block of columns of the first affine map and the k-th block of rows of
    the second; the last bias goes to the first.

    Args:
        model: a model as `build_network` makes it, with one normalization.

    Returns:
        `keras.Model` of N branches, each `Dense`, normalization of its whole width, `Dense`, and their sum.

    Raises:
        ValueError: the model is no such network.

    Example:

    >>> from keras_polycom import theory
    >>> model = theory.sum_of_networks(theory.sign_network(units=3, norm_size=4))
    >>> [layer.units for layer in model.layers if layer.name.startswith("into")]
    [4, 4, 4]
    """
    (into, out), normalization = _read_shallow(model)
    size, dtype = normalization.norm_size, model.layers[-1].dtype_policy
    inputs = keras.Input((into.kernel.shape[0],), dtype=model.layers[-1].compute_dtype)
    branches, weights = [], []
    for k in range(into.kernel.shape[1] // size):
        block = slice(k * size, (k + 1) * size)
        arguments = {"kernel_initializer": "zeros", "dtype": dtype}  # the values are set below
        first = keras.layers.Dense(size, name=f"into_{k}", **arguments)
        second = keras.layers.Dense(out.kernel.shape[1], use_bias=k == 0, name=f"out_{k}", **arguments)
        norm = normalization_layer(normalization, dtype, name=f"norm_{k}")
        branches.append(second(norm(first(inputs))))
        weights.append((first, [into.kernel[:, block], into.bias[block]]))
        weights.append((second, [out.kernel[block], out.bias][: 1 + (k == 0)]))
    outputs = keras.layers.Add(dtype=dtype)(branches) if len(branches) > 1 else branches[0]
    for layer, values in weights:
        layer.set_weights(values)
    return keras.Model(inputs, outputs)


def join_networks(models):
    """A sum of shallow LN-Nets as one PLN-Net: the converse of `sum_of_networks`.

    Statement (lemma 3.1): the sum of LN[n]-Nets (or PLN[n]-Nets) with one hidden layer each is a PLN[n]-Net with one
    hidden layer.

    Args:
        models: sequence of models as `build_network` makes them, with one normalization, the same in all, and the same
            numbers of inputs and outputs.

    Returns:
        `keras.Sequential`, `Dense`, normalization, `Dense`.

    Raises:
        ValueError: no model, or models that are no such networks.

    Example:

    >>> import keras
    >>> from keras_polycom import theory
    >>> model = theory.join_networks([theory.sign_network(), theory.sign_network()])
    >>> float(keras.ops.convert_to_numpy(model(keras.ops.array([[-3.0]])))[0, 0])
    -2.0
    """
    if not models:
        raise ValueError("Expected at least one model. Received: none")
    parts = [_read_shallow(model) for model in models]
    shapes = {(into.kernel.shape[0], out.kernel.shape[1], normalization) for (into, out), normalization in parts}
    if len(shapes) > 1:
        raise ValueError(
            "Expected the same numbers of inputs and outputs and the same normalization in all models. Received: "
            f"{sorted(shapes)}"
        )
    into = Affine(
        np.concatenate([into.kernel for (into, _), _ in parts], axis=1),
        np.concatenate([into.bias for (into, _), _ in parts]),
    )
    out = Affine(
        np.concatenate([out.kernel for (_, out), _ in parts], axis=0),
        sum(out.bias for (_, out), _ in parts),
    )
    return build_network([into, out], [parts[0][1]], models[0].layers[-1].dtype_policy)


def as_layer_scaling_network(model):
    """A network of layer normalizations as one of layer scalings.

    Statement (lemma 3.2): an LN[n]-Net is an LS[n-1]-Net of the same depth, and a PLN[n]-Net a PLS[n-1]-Net with the
    same number of groups, for n >= 2; `as_layer_norm_network` is the converse.

    Construction: let the columns of Q, (n, n - 1), be an orthonormal basis of the vectors of mean zero. Then

    ```
    LN[n](h) = sqrt(n / (n - 1)) Q LS[n-1](Q^T h)
    ```

    because centring is Q Q^T and |Q^T h| = |Q Q^T h|. Q^T goes into the affine map in front, sqrt(n / (n - 1)) Q into
    the one behind. With an epsilon the equation stays exact if that of LS is n / (n - 1) times that of LN.

    Args:
        model: a model as `build_network` makes it, of any depth, with PLN layers.

    Returns:
        `keras.Sequential` of `Dense` and `ParallelLayerScaling` layers.

    Raises:
        ValueError: the model is no such network, or has a layer scaling already.

    Example:

    >>> from keras_polycom import theory
    >>> model = theory.as_layer_scaling_network(theory.phi_network(norm_size=4))
    >>> type(model.layers[1]).__name__, model.layers[1].norm_size
    ('ParallelLayerScaling', 3)
    """

    def convert(normalization):
        n = normalization.norm_size
        basis = centered_basis(n)
        scaling = Normalization(n - 1, centered=False, epsilon=normalization.epsilon * n / (n - 1))
        return scaling, basis, np.sqrt(n / (n - 1)) * basis.T

    return _change_basis(model, True, convert)


def as_layer_norm_network(model):
    """A network of layer scalings as one of layer normalizations.

    Statement (lemma 3.2): an LS[m]-Net is an LN[m+1]-Net of the same depth, and a PLS[m]-Net a PLN[m+1]-Net with the
    same number of groups, for m >= 1; `as_layer_scaling_network` is the converse.

    Construction: with n = m + 1 and Q as there,

    ```
    LS[m](g) = sqrt(m / n) Q^T LN[n](Q g)
    ```

    exactly, if the epsilon of LN is m / n times that of LS.

    Args:
        model: a model as `build_network` makes it, of any depth, with PLS layers.

    Returns:
        `keras.Sequential` of `Dense` and `ParallelLayerNormalization` layers.

    Raises:
        ValueError: the model is no such network, or has a layer normalization already.

    Example:

    >>> from keras_polycom import theory
    >>> scaling = theory.as_layer_scaling_network(theory.phi_network(norm_size=4))
    >>> theory.as_layer_norm_network(scaling).layers[1].norm_size
    4
    """

    def convert(normalization):
        m = normalization.norm_size
        basis = centered_basis(m + 1)
        norm = Normalization(m + 1, centered=True, epsilon=normalization.epsilon * m / (m + 1))
        return norm, basis.T, np.sqrt(m / (m + 1)) * basis

    return _change_basis(model, False, convert)


def centered_basis(n):
    """Orthonormal basis of the vectors of mean zero, (n, n - 1): column k is (1, ..., 1, -k, 0, ...), scaled."""
    basis = np.triu(np.ones((n, n - 1)))
    for k in range(1, n):
        basis[k, k - 1] = -k
    return basis / np.linalg.norm(basis, axis=0)


def _change_basis(model, centered, convert):
    """Replaces every normalization: `convert` gives the new one, the matrix for one group in front, and behind."""
    affine_maps, normalizations = read_network(model)
    if any(normalization.centered != centered for normalization in normalizations):
        kind = "ParallelLayerNormalization" if centered else "ParallelLayerScaling"
        raise ValueError(f"Expected a network of {kind} layers only. Received: {normalizations}")
    converted = []
    for i, normalization in enumerate(normalizations):
        groups = affine_maps[i].bias.shape[0] // normalization.norm_size
        new, before, behind = convert(normalization)
        before, behind = block_diagonal(before, groups), block_diagonal(behind, groups)
        affine_maps[i] = Affine(affine_maps[i].kernel @ before, affine_maps[i].bias @ before)
        affine_maps[i + 1] = Affine(behind @ affine_maps[i + 1].kernel, affine_maps[i + 1].bias)
        converted.append(new)
    return build_network(affine_maps, converted, model.layers[-1].dtype_policy)


def _read_shallow(model):
    affine_maps, normalizations = read_network(model)
    if len(normalizations) != 1:
        raise ValueError(f"Expected a network with one normalization. Received: {len(normalizations)} of them")
    return affine_maps, normalizations[0]
