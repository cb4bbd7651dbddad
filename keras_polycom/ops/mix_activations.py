"""Weighted mixtures of activations, plain and gated [MoA, eq. 3 to 10].

Weights come as (n,), the same for every token, or as (..., n), one set per token, and broadcast over the hidden axis.
In all of these functions each activation is evaluated once per branch, and sums are accumulated term by term.
"""

import math

import keras

from keras_polycom.ops._numerics import as_tensor, raise_precision
from keras_polycom.ops.activation_dictionary import evaluate, resolve_dictionary, same_shape
from keras_polycom.ops.fused import dispatch


def number_of_pairs(size):
    """Number of pairs `k <= l` of `size` activations, `K (K + 1) / 2`."""
    return math.comb(size + 1, 2)


def mix_activations(h, weights, activations):
    """Weighted sum of activations.

    Formula:

    ```
    y = sum_k w_k s_k(h)
    ```

    Args:
        h: tensor (..., hidden). float16 and bfloat16 are raised to float32 inside; integers become float32.
        weights: tensor (K,), or (..., K) with one set of weights per token.
        activations: sequence of K names (`ops.ACTIVATION_FUNCTIONS` or `keras.activations`), callables or layers. An
            activation may occur more than once.

    Returns:
        Tensor of the shape and float dtype of `h`.

    Raises:
        ValueError: an empty dictionary, an unknown name, an activation that changes the shape, or `weights` that
            do not fit.
        TypeError: `h` is complex.

    Example:

    >>> from keras_polycom import ops
    >>> y = ops.mix_activations([-1.0, 2.0], weights=[1.0, 0.5], activations=["relu", "relu2"])
    >>> [float(v) for v in y]
    [0.0, 4.0]

    Reference: Wang et al., arXiv 2605.26647, equations 3 (fixed weights) and 7 (weights from `ops.mixing_gate`).
    """
    functions = resolve_dictionary(activations)
    h, weights = as_tensor(h), as_tensor(weights)
    _check_weights(weights, len(functions), h, "weights")
    return dispatch(_mix_activations, h, weights, functions)


def _mix_activations(h, weights, activations):
    h, dtype = raise_precision(h)
    return keras.ops.cast(_weighted_sum(_split(weights, h), evaluate(activations, h)), dtype)


def mix_one_sided(y, z, weights, activations):
    """Gated unit with a mixture on the up branch.

    Formula:

    ```
    out = silu(y) * sum_k w_k s_k(z)
    ```

    Args:
        y: tensor (..., hidden), the gate branch.
        z: tensor of the shape of `y`, the up branch.
        weights: tensor (K,) or (..., K).
        activations: sequence of K activations, as in `mix_activations`.

    Returns:
        Tensor of the shape and float dtype of `y` and `z`.

    Raises:
        ValueError: as in `mix_activations`, or `y` and `z` of different shapes.
        TypeError: `y` or `z` is complex.

    Example:

    >>> from keras_polycom import ops
    >>> out = ops.mix_one_sided([1.0, 1.0], [-1.0, 2.0], weights=[1.0, 0.5], activations=["relu", "relu2"])
    >>> [round(float(v), 4) for v in out]
    [0.0, 2.9242]

    Reference: Wang et al., arXiv 2605.26647, equations 4 and 8.
    """
    functions = resolve_dictionary(activations)
    y, z, weights = as_tensor(y), as_tensor(z), as_tensor(weights)
    _check_branches(y, z)
    _check_weights(weights, len(functions), z, "weights")
    return dispatch(_mix_one_sided, y, z, weights, functions)


def _mix_one_sided(y, z, weights, activations):
    y, z, dtype = _raise_branches(y, z)
    mixture = _weighted_sum(_split(weights, z), evaluate(activations, z))
    return keras.ops.cast(keras.ops.silu(y) * mixture, dtype)


def mix_bi_sided(y, z, gate_weights, up_weights, activations, up_activations=None):
    """Gated unit with a mixture on either branch.

    Formula:

    ```
    out = sum_k r_k s_k(y) * sum_l p_l s_l(z)
    ```

    Args:
        y: tensor (..., hidden), the gate branch.
        z: tensor of the shape of `y`, the up branch.
        gate_weights: tensor (K,) or (..., K), `r`.
        up_weights: tensor (K,) or (..., K), `p`.
        activations: sequence of K activations, as in `mix_activations`.
        up_activations: sequence of activations for `z`, where they are not those for `y`: layers with weights of
            their own. `None` for the same. Defaults to `None`.

    Returns:
        Tensor of the shape and float dtype of `y` and `z`.

    Raises:
        ValueError: as in `mix_activations`, or `y` and `z` of different shapes.
        TypeError: `y` or `z` is complex.

    Example:

    >>> from keras_polycom import ops
    >>> out = ops.mix_bi_sided([1.0, 2.0], [3.0, -3.0], [1.0, 1.0], [2.0, 0.0], activations=["identity", "relu2"])
    >>> [float(v) for v in out]
    [12.0, -36.0]

    Reference: Wang et al., arXiv 2605.26647, equations 5 and 9.
    """
    functions = resolve_dictionary(activations)
    up_functions = functions if up_activations is None else resolve_dictionary(up_activations, "up_activations")
    y, z, gate_weights, up_weights = as_tensor(y), as_tensor(z), as_tensor(gate_weights), as_tensor(up_weights)
    _check_branches(y, z)
    _check_weights(gate_weights, len(functions), y, "gate_weights")
    _check_weights(up_weights, len(up_functions), z, "up_weights")
    return dispatch(_mix_bi_sided, y, z, gate_weights, up_weights, functions, up_functions)


def _mix_bi_sided(y, z, gate_weights, up_weights, activations, up_activations):
    y, z, dtype = _raise_branches(y, z)
    gate = _weighted_sum(_split(gate_weights, y), evaluate(activations, y))
    up = _weighted_sum(_split(up_weights, z), evaluate(up_activations, z))
    return keras.ops.cast(gate * up, dtype)


def mix_quadratic(y, z, weights, activations, up_activations=None):
    """Gated unit that mixes products of activations of both branches.

    Formula, pairs in lexicographic order (1,1), (1,2), ..., (1,K), (2,2), ..., (K,K):

    ```
    out = sum_{k<=l} p_kl s_k(y) s_l(z) = sum_k s_k(y) * sum_{l>=k} p_kl s_l(z)
    ```

    Args:
        y: tensor (..., hidden), the gate branch: the first index of a pair acts on it.
        z: tensor of the shape of `y`, the up branch.
        weights: tensor (n,) or (..., n) with `n = K (K + 1) / 2`, one weight per pair.
        activations: sequence of K activations, as in `mix_activations`.
        up_activations: sequence of K activations for `z`, where they are not those for `y`: layers with weights of
            their own. `None` for the same. Defaults to `None`.

    Returns:
        Tensor of the shape and float dtype of `y` and `z`.

    Raises:
        ValueError: as in `mix_activations`, `y` and `z` of different shapes, or dictionaries of different sizes.
        TypeError: `y` or `z` is complex.

    Example:

    >>> from keras_polycom import ops
    >>> out = ops.mix_quadratic([2.0], [3.0], weights=[1.0, 10.0, 100.0], activations=["identity", "relu2"])
    >>> [float(v) for v in out]  # 2 * 3 + 10 * 2 * 9 + 100 * 4 * 9
    [3786.0]

    Reference: Wang et al., arXiv 2605.26647, equations 6 and 10.
    """
    functions = resolve_dictionary(activations)
    up_functions = functions if up_activations is None else resolve_dictionary(up_activations, "up_activations")
    if len(up_functions) != len(functions):
        raise ValueError(
            "`activations` and `up_activations` must be of one size. Received: "
            f"{len(functions)} and {len(up_functions)} activations"
        )
    y, z, weights = as_tensor(y), as_tensor(z), as_tensor(weights)
    _check_branches(y, z)
    _check_weights(weights, number_of_pairs(len(functions)), z, "weights")
    return dispatch(_mix_quadratic, y, z, weights, functions, up_functions)


def _mix_quadratic(y, z, weights, activations, up_activations):
    y, z, dtype = _raise_branches(y, z)
    remaining = _split(weights, z)
    values = evaluate(up_activations, z)
    rows = []  # sum_{l>=k} p_kl s_l(z), for each k
    for k in range(len(values)):
        row, remaining = remaining[: len(values) - k], remaining[len(values) - k :]
        rows.append(_weighted_sum(row, values[k:]))
    return keras.ops.cast(_weighted_sum(rows, evaluate(activations, y)), dtype)


def _split(weights, x):
    """The weights one by one, each with an axis of length 1 in place of the hidden axis, in the dtype of `x`."""
    return keras.ops.split(keras.ops.cast(weights, x.dtype), weights.shape[-1], axis=-1)


def _weighted_sum(weights, values):
    total = weights[0] * values[0]
    for weight, value in zip(weights[1:], values[1:], strict=True):
        total = total + weight * value
    return total


def _raise_branches(y, z):
    """`y` and `z` in one float dtype of at least float32, and the dtype the result is lowered to."""
    (y, y_dtype), (z, z_dtype) = raise_precision(y), raise_precision(z)
    dtype = "float64" if "float64" in (y_dtype, z_dtype) else "float32"
    lowered = y_dtype if y_dtype == z_dtype else dtype
    return keras.ops.cast(y, dtype), keras.ops.cast(z, dtype), lowered


def _check_branches(y, z):
    if not same_shape(tuple(y.shape), tuple(z.shape)):
        raise ValueError(f"`y` and `z` must have the same shape. Received: {tuple(y.shape)} and {tuple(z.shape)}")


def _check_weights(weights, size, x, name):
    shape, x_shape = tuple(weights.shape), tuple(x.shape)
    if not shape or shape[-1] != size:
        raise ValueError(
            f"`{name}` must hold {size} weights on its last axis, one per term of the mixture. Received: shape={shape}"
        )
    tokens = len(shape) == len(x_shape) and all(
        w in (1, n) or None in (w, n) for w, n in zip(shape[:-1], x_shape[:-1], strict=True)
    )
    if len(shape) > 1 and not tokens:
        raise ValueError(
            f"`{name}` must have shape ({size},), or the leading axes of the hidden units and then {size}. Received: "
            f"shape={shape} for hidden units of shape {x_shape}"
        )
