"""Evaluating sum_i c_i x^i by Horner's rule, and the checks on its coefficients."""

import numpy as np

from keras_polycom.ops._numerics import as_tensor


def check_polynomial(coefficients, bias):
    """Returns `coefficients` as a vector and `bias` as a scalar, tensors or arrays; `None` stays.

    Raises:
        ValueError: `coefficients` is not a vector of at least one number, or `bias` is not a single number.
    """
    coefficients = _weight(coefficients)
    shape = tuple(coefficients.shape)
    if len(shape) != 1 or shape[0] == 0:
        raise ValueError(
            "`coefficients` must be a vector (order,) with the coefficients of x^1, x^2, ... in ascending powers. "
            f"Received: shape={shape}"
        )
    return coefficients, None if bias is None else check_scalar(bias, "bias")


def check_scalar(value, name):
    """Returns `value`, the argument called `name`, a number or a vector of one number, as a scalar.

    Raises:
        ValueError: it is neither.
    """
    value = _weight(value)
    if tuple(value.shape) not in ((), (1,)):
        raise ValueError(f"`{name}` must be a scalar or have shape (1,). Received: shape={tuple(value.shape)}")
    return value[0] if len(value.shape) else value


def _weight(value):
    """As `as_tensor`, but Python numbers keep their 64 bits until they are cast to the dtype of the computation."""
    numbers = value if isinstance(value, (list, tuple)) else [value]
    return np.asarray(value) if all(isinstance(number, (int, float)) for number in numbers) else as_tensor(value)


def horner(x, coefficients, bias=None):
    """`bias + x (c_1 + x (c_2 + ... ))` for a list of tensors `c_i` that broadcast against `x`.

    Products only: a general power with a float exponent has no derivative at negative numbers, and `0 * x^3` is NaN
    once `x^3` overflows, which Horner's rule never forms.
    """
    total = x * power_sum(x, coefficients)
    return total if bias is None else total + bias


def power_sum(x, coefficients):
    """`c_1 + x (c_2 + x (c_3 + ... ))`, of tensors of Keras or of the backend in use."""
    total = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        total = x * total + coefficient
    return total
