"""Polynomial composition with any function [PolyCom, eq. 1]."""

import keras

from keras_polycom.ops._numerics import raise_precision
from keras_polycom.ops.polynomial import check_polynomial, horner


def poly_com(x, function, coefficients, bias=None, power_first=False):
    """Polynomial composition of any function.

    Formula:

    ```
    type I  (power_first=False):  y = a_0 + sum_i a_i f(x)^i
    type II (power_first=True):   y = a_0 + sum_i a_i f(x^i)
    ```

    Args:
        x: tensor of any shape. float16 and bfloat16 are raised to float32 inside; integers become float32.
        function: callable `f`, from a tensor to a tensor of the same shape.
        coefficients: tensor (order,), `a_1 ... a_r` in ascending powers.
        bias: tensor () or (1,), `a_0`; `None` for 0. Defaults to `None`.
        power_first: bool. Type II instead of type I. Powers are taken in at least float32 and may overflow there: for
            a normalization as `f` use `poly_norm`, which does not. Defaults to `False`.

    Returns:
        Tensor of the shape and float dtype of `x`.

    Raises:
        ValueError: `coefficients` is not a vector or `bias` not a single number.
        TypeError: `x` is complex or `function` is not callable.

    Example:

    >>> import keras
    >>> from keras_polycom import ops
    >>> y = ops.poly_com([2.0, -2.0], keras.ops.relu, coefficients=[1.0, 1.0], power_first=True)
    >>> [float(v) for v in y]
    [6.0, 4.0]

    Reference: Zhuo et al., Polynomial Composition Activations, arXiv 2411.03884, equation 1.
    """
    coefficients, bias = check_polynomial(coefficients, bias)
    if not callable(function):
        raise TypeError(f"`function` must be callable. Received: {function!r}")
    x, dtype = raise_precision(x)
    coefficients = keras.ops.unstack(keras.ops.cast(coefficients, x.dtype))
    bias = None if bias is None else keras.ops.cast(bias, x.dtype)
    if not power_first:
        return keras.ops.cast(horner(keras.ops.cast(function(x), x.dtype), coefficients, bias), dtype)
    total, power = 0.0, x
    for i, coefficient in enumerate(coefficients):
        power = power * x if i else power
        total = keras.ops.cast(function(power), x.dtype) * coefficient + total
    return keras.ops.cast(total if bias is None else total + bias, dtype)
