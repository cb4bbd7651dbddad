"""The gate of a mixture: weights that each token computes from itself [MoA, eq. 7 to 10]."""

import keras

from keras_polycom.ops._numerics import as_tensor, raise_precision
from keras_polycom.ops.activation_functions import tanh


def _softmax(logits):
    if logits.shape[-1] == 1:  # exactly 1, with derivative 0; Keras warns of a softmax over one number
        return keras.ops.exp(logits - logits)
    return keras.ops.softmax(logits)


GATES = {"sigmoid": keras.ops.sigmoid, "tanh": tanh, "softmax": _softmax}


def check_gate(gate):
    """Raises `ValueError` unless `gate` names a gate."""
    if not isinstance(gate, str) or gate not in GATES:
        raise ValueError(f"`gate` must be one of {', '.join(GATES)}. Received: gate={gate!r}")
    return gate


def mixing_gate(x, kernel, gate="sigmoid", bias=None):
    """Weights of a mixture, computed from the input token by token.

    Formula, with phi the sigmoid, the hyperbolic tangent, or the softmax over all weights:

    ```
    p(x) = phi(x U + b)
    ```

    Args:
        x: tensor (..., width), the input of the feed-forward layer.
        kernel: tensor (width, n), `U`: one column per weight.
        gate: string, `"sigmoid"`, `"tanh"` or `"softmax"`. Defaults to `"sigmoid"`, the best in the paper.
        bias: tensor (n,), `b`, the constant coordinate of the paper's theory; `None` for 0. Defaults to `None`.

    Returns:
        Tensor (..., n), in float64 if `x` is, else in float32: the functions that take these weights compute in that
        precision too, so there is nothing to lower them for.

    Raises:
        ValueError: unknown `gate`, or shapes that do not fit.
        TypeError: `x` is complex.

    Example:

    >>> from keras_polycom import ops
    >>> p = ops.mixing_gate([[1.0, -1.0]], kernel=[[2.0, 0.0], [2.0, 0.0]], bias=[0.0, 1.0])
    >>> [round(float(v), 4) for v in p[0]]
    [0.5, 0.7311]

    Reference: Wang et al., arXiv 2605.26647, equations 7 to 10.
    """
    check_gate(gate)
    x, kernel, bias = as_tensor(x), as_tensor(kernel), None if bias is None else as_tensor(bias)
    _check_shapes(tuple(x.shape), tuple(kernel.shape), None if bias is None else tuple(bias.shape))
    x, _ = raise_precision(x)
    # Not keras.ops.matmul, which multiplies float64 in float32 on PyTorch.
    logits = keras.ops.einsum("...d,dn->...n", x, keras.ops.cast(kernel, x.dtype))
    return GATES[gate](logits if bias is None else logits + keras.ops.cast(bias, x.dtype))


def _check_shapes(x, kernel, bias):
    if len(kernel) != 2 or not x or x[-1] not in (None, kernel[0]):
        raise ValueError(
            "`kernel` must have shape (width, n), where width is that of the last axis of `x`. Received: "
            f"kernel of shape {kernel}, x of shape {x}"
        )
    if bias not in (None, kernel[1:]):
        raise ValueError(f"`bias` must have shape (n,) = {kernel[1:]}. Received: shape={bias}")
