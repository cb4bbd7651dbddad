"""PolyReLU, a polynomial of the rectifier [PolyCom, eq. 2], and its PReLU variant."""

import keras

from keras_polycom.ops._numerics import raise_precision
from keras_polycom.ops.fused import dispatch
from keras_polycom.ops.polynomial import check_polynomial, check_scalar, horner


def poly_relu(x, coefficients, bias=None):
    """Polynomial of the rectifier.

    Formula:

    ```
    y = a_0 + a_1 relu(x) + a_2 relu(x)^2 + ... + a_r relu(x)^r
    ```

    Args:
        x: tensor of any shape. float16 and bfloat16 are raised to float32 inside; integers become float32.
        coefficients: tensor (order,), `a_1 ... a_r` in ascending powers.
        bias: tensor () or (1,), `a_0`; `None` for 0. Defaults to `None`.

    Returns:
        Tensor of the shape and float dtype of `x`.

    Raises:
        ValueError: `coefficients` is not a vector or `bias` not a single number.
        TypeError: `x` is complex.

    Example:

    >>> from keras_polycom import ops
    >>> y = ops.poly_relu([-1.0, 1.0, 2.0], coefficients=[0.5, 0.25])
    >>> [float(v) for v in y]
    [0.0, 0.75, 2.0]

    Reference: Zhuo et al., Polynomial Composition Activations, arXiv 2411.03884, equation 2.
    """
    coefficients, bias = check_polynomial(coefficients, bias)
    return dispatch(_poly_relu, x, coefficients, bias)


def _poly_relu(x, coefficients, bias=None):
    x, dtype = raise_precision(x)
    return keras.ops.cast(_polynomial_of(keras.ops.relu(x), coefficients, bias), dtype)


def poly_prelu(x, coefficients, alpha, bias=None):
    """Polynomial of the rectifier with a negative slope.

    Formula, with `f(x) = max(x, 0) + alpha min(x, 0)`:

    ```
    y = a_0 + a_1 f(x) + a_2 f(x)^2 + ... + a_r f(x)^r
    ```

    Args:
        x: tensor of any shape.
        coefficients: tensor (order,), `a_1 ... a_r` in ascending powers.
        alpha: tensor () or (1,), the slope where `x` is negative.
        bias: tensor () or (1,), `a_0`; `None` for 0. Defaults to `None`.

    Returns:
        Tensor of the shape and float dtype of `x`.

    Raises:
        ValueError: `coefficients` is not a vector, or `alpha` or `bias` not a single number.
        TypeError: `x` is complex.

    Example:

    >>> from keras_polycom import ops
    >>> y = ops.poly_prelu([-2.0, 2.0], coefficients=[2.0, 1.0], alpha=[0.5])
    >>> [float(v) for v in y]
    [-1.0, 8.0]

    Reference: Zhuo et al., arXiv 2411.03884, equation 1 (type I) with PReLU.
    """
    coefficients, bias = check_polynomial(coefficients, bias)
    x, dtype = raise_precision(x)
    alpha = keras.ops.cast(check_scalar(alpha, "alpha"), x.dtype)
    rectified = keras.ops.relu(x) - alpha * keras.ops.relu(-x)
    return keras.ops.cast(_polynomial_of(rectified, coefficients, bias), dtype)


def _polynomial_of(x, coefficients, bias):
    coefficients = keras.ops.unstack(keras.ops.cast(coefficients, x.dtype))
    return horner(x, coefficients, None if bias is None else keras.ops.cast(bias, x.dtype))
