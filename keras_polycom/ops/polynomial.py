"""Evaluating sum_i c_i x^i by Horner's rule, and the checks on its coefficients."""

from keras_polycom.ops._numerics import as_tensor


def check_polynomial(coefficients, bias):
    """Returns `coefficients` and `bias` as tensors.

    Raises:
        ValueError: `coefficients` is not a vector of at least one number, or `bias` is not a single number.
    """
    coefficients = as_tensor(coefficients)
    shape = tuple(coefficients.shape)
    if len(shape) != 1 or shape[0] == 0:
        raise ValueError(
            "`coefficients` must be a vector (order,) with the coefficients of x^1, x^2, ... in ascending powers. "
            f"Received: shape={shape}"
        )
    if bias is None:
        return coefficients, None
    bias = as_tensor(bias)
    if tuple(bias.shape) not in ((), (1,)):
        raise ValueError(f"`bias` must be a scalar or have shape (1,). Received: shape={tuple(bias.shape)}")
    return coefficients, bias


def horner(x, coefficients, bias=None):
    """`bias + x (c_1 + x (c_2 + ... ))` for a list of tensors `c_i` that broadcast against `x`.

    Products only: a general power with a float exponent has no derivative at negative numbers, and `0 * x^3` is NaN
    once `x^3` overflows, which Horner's rule never forms.
    """
    total = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        total = coefficient + x * total
    total = x * total
    return total if bias is None else total + bias
