"""PolyNorm, a polynomial of normalized powers [PolyCom, eq. 3], its rectified form and its per-expert form."""

import keras

from keras_polycom.ops._numerics import (
    as_tensor,
    check_axis,
    check_epsilon,
    inverse_root,
    mean,
    normalize_axis,
    raise_precision,
    scale_into_range,
)
from keras_polycom.ops.fused import dispatch
from keras_polycom.ops.polynomial import check_polynomial, horner

EPSILON = 1e-6


def poly_norm(x, coefficients, bias=None, axis=-1, epsilon=EPSILON):
    """Polynomial of powers that are each normalized by their root mean square.

    Formula, means taken over `axis`:

    ```
    y = a_0 + sum_i a_i norm(x^i),    norm(z) = z / sqrt(mean(z^2) + epsilon)
    ```

    Every finite `x` has a finite, accurate `y`, at any magnitude and in any float dtype: rows are brought into range
    before powers are taken. With `epsilon=0` a row of zeros gives exactly `a_0` and zero gradients.

    Args:
        x: tensor of any shape with at least one dimension. float16 and bfloat16 are raised to float32 inside;
            integers become float32.
        coefficients: tensor (order,), `a_1 ... a_r` in ascending powers.
        bias: tensor () or (1,), `a_0`; `None` for 0. Defaults to `None`.
        axis: integer. The axis of the means, usually the channels. Defaults to `-1`.
        epsilon: float, added to each mean square. Defaults to `1e-6`.

    Returns:
        Tensor of the shape and float dtype of `x`.

    Raises:
        ValueError: `coefficients` is not a vector, `bias` not a single number, `axis` not an axis of `x`, or `epsilon`
            negative.
        TypeError: `x` is complex.

    Example:

    >>> from keras_polycom import ops
    >>> y = ops.poly_norm([[-2.0, -1.0, 0.0, 1.0, 2.0]], coefficients=[1 / 3, 1 / 3, 1 / 3])
    >>> [round(float(v), 4) for v in y[0]]
    [-0.4831, -0.1732, 0.0, 0.4289, 1.5057]

    Reference: Zhuo et al., Polynomial Composition Activations, arXiv 2411.03884, equation 3. The equation writes the
    L2 norm; the paper's code and all public implementations divide by the root mean square, and so does this.
    """
    coefficients, bias = check_polynomial(coefficients, bias)
    check_epsilon(epsilon)
    x = as_tensor(x)
    normalize_axis(check_axis(axis), len(x.shape))
    return dispatch(_poly_norm, x, coefficients, bias, axis=axis, epsilon=epsilon)


def _poly_norm(x, coefficients, bias=None, axis=-1, epsilon=EPSILON):
    x, dtype = raise_precision(x)
    coefficients = keras.ops.unstack(keras.ops.cast(coefficients, x.dtype))
    bias = None if bias is None else keras.ops.cast(bias, x.dtype)
    return keras.ops.cast(_normalized_polynomial(x, coefficients, bias, axis, epsilon), dtype)


def poly_relu_norm(x, coefficients, bias=None, axis=-1, epsilon=EPSILON):
    """PolyNorm of the rectifier.

    Formula, means taken over `axis`:

    ```
    y = a_0 + sum_i a_i norm(relu(x)^i),    norm(z) = z / sqrt(mean(z^2) + epsilon)
    ```

    Arguments, returns and errors are those of `poly_norm`.

    Example:

    >>> from keras_polycom import ops
    >>> y = ops.poly_relu_norm([[-5.0, 2.0]], coefficients=[1.0])
    >>> [round(float(v), 4) for v in y[0]]
    [0.0, 1.4142]

    Reference: Zhuo et al., arXiv 2411.03884, the ablation of section 4 (PolyReLUNorm).
    """
    return poly_norm(keras.ops.relu(x), coefficients, bias, axis=axis, epsilon=epsilon)


def grouped_poly_norm(x, coefficients, bias, group_index, axis=-1, epsilon=EPSILON):
    """PolyNorm with one set of coefficients per group, as for the experts of a mixture.

    Formula, for an element of `x` whose leading position belongs to group g:

    ```
    y = b[g] + sum_i a[g, i] norm(x^i),    norm(z) = z / sqrt(mean(z^2) + epsilon)
    ```

    Args:
        x: tensor of any shape with at least two dimensions.
        coefficients: tensor (num_groups, order), ascending powers.
        bias: tensor (num_groups,), or `None` for 0.
        group_index: integer tensor with the shape of the leading axes of `x`, in `[0, num_groups)`. Values outside
            are clipped to the nearest group, never wrapped; the layer refuses them where it can see them.
        axis: integer. The axis of the means, behind the axes that `group_index` covers. Defaults to `-1`.
        epsilon: float, added to each mean square. Defaults to `1e-6`.

    Returns:
        Tensor of the shape and float dtype of `x`.

    Raises:
        ValueError: shapes that do not fit, `axis` among the leading axes, or `epsilon` negative.
        TypeError: `x` is complex or `group_index` is not of an integer dtype.

    Example:

    >>> from keras_polycom import ops
    >>> y = ops.grouped_poly_norm(
    ...     [[1.0, -1.0], [1.0, -1.0]], coefficients=[[1.0, 0.0], [0.0, 2.0]], bias=[0.0, 0.5], group_index=[0, 1]
    ... )
    >>> [[round(float(v), 3) for v in row] for row in y]
    [[1.0, -1.0], [2.5, 2.5]]

    Source: the per-expert PolyNorm of Motif 3 (384 experts, three coefficients and one bias each).
    """
    x, coefficients, group_index = as_tensor(x), as_tensor(coefficients), as_tensor(group_index)
    shape = tuple(coefficients.shape)
    if len(shape) != 2 or 0 in shape:
        raise ValueError(f"`coefficients` must have shape (num_groups, order). Received: shape={shape}")
    if bias is not None:
        bias = as_tensor(bias)
        if tuple(bias.shape) != shape[:1]:
            raise ValueError(f"`bias` must have shape (num_groups,) = {shape[:1]}. Received: shape={tuple(bias.shape)}")
    check_epsilon(epsilon)
    axis = normalize_axis(check_axis(axis), len(x.shape))
    _check_group_index(group_index, tuple(x.shape), axis)
    return dispatch(_grouped_poly_norm, x, coefficients, bias, group_index, axis=axis, epsilon=epsilon)


def _grouped_poly_norm(x, coefficients, bias, group_index, axis=-1, epsilon=EPSILON):
    x, dtype = raise_precision(x)
    if keras.backend.standardize_dtype(group_index.dtype) not in ("int32", "int64"):
        group_index = keras.ops.cast(group_index, "int32")  # TensorFlow takes no narrower index
    group_index = keras.ops.clip(group_index, 0, coefficients.shape[0] - 1)

    def spread(per_group):  # (groups, ...) -> one value per leading position, broadcast over the rest of x
        taken = keras.ops.take(keras.ops.cast(per_group, x.dtype), group_index, axis=0)
        for _ in range(len(x.shape) - len(group_index.shape)):
            taken = keras.ops.expand_dims(taken, axis=len(group_index.shape))
        return taken

    coefficients = keras.ops.unstack(spread(coefficients), axis=-1)
    bias = None if bias is None else spread(bias)
    return keras.ops.cast(_normalized_polynomial(x, coefficients, bias, axis, epsilon), dtype)


def _check_group_index(group_index, x_shape, axis):
    dtype = keras.backend.standardize_dtype(group_index.dtype)
    if "int" not in dtype:
        raise TypeError(f"`group_index` must be of an integer dtype. Received: dtype={dtype}")
    index_shape = tuple(group_index.shape)
    leading = x_shape[: len(index_shape)]
    fits = all(i == n or None in (i, n) for i, n in zip(index_shape, leading, strict=False))
    if not fits or not 1 <= len(index_shape) <= axis:
        raise ValueError(
            "`group_index` must have the shape of the leading axes of `x`, in front of `axis`. Received: "
            f"group_index of shape {index_shape}, x of shape {x_shape}, axis={axis}"
        )


def _normalized_polynomial(x, coefficients, bias, axis, epsilon):
    """`bias + sum_i coefficients[i] norm(x^i)` in the dtype of `x`; coefficients is a list that broadcasts.

    With y = x / s for any s > 0, norm(x^i) = y^i / sqrt(mean(y^2i) + epsilon / s^2i). The scale s = max(max|x|, floor)
    keeps powers of y from overflowing, and its lower end, the 2r-th root of epsilon, keeps epsilon / s^2i at or below
    one. Where `scale_into_range` stops s, y is at most 4, whose powers are harmless up to order 31.
    Since the result does not depend on s, s is a constant in the derivative, of every order.
    """
    order = len(coefficients)
    floor = epsilon ** (1 / (2 * order))
    if 0 in x.shape:  # the maximum of nothing is not defined; this is as empty, and keeps the (zero) gradients
        return horner(x, coefficients, bias)
    # amax: keras.ops.max breaks the graph of torch.compile
    largest = keras.ops.stop_gradient(keras.ops.amax(keras.ops.abs(x), axis=axis, keepdims=True))
    scale = scale_into_range(largest, floor)
    y = x / scale
    shrink = keras.ops.square(floor / scale)  # (floor / s)^2, at most 1
    epsilon_i = 1.0 if epsilon > 0 else 0.0  # becomes epsilon / s^2i = floor^(2r - 2i) (floor / s)^2i
    weights = []
    power = y
    for i, coefficient in enumerate(coefficients, start=1):
        if i > 1:
            power = power * y
        epsilon_i = epsilon_i * shrink
        mean_square = mean(keras.ops.square(power), axis)
        inverse = inverse_root(mean_square, epsilon_i * floor ** (2 * (order - i)), epsilon > 0)
        weights.append(inverse * coefficient)  # in this order: a JAX array refuses a symbolic tensor on its right
    return horner(y, weights, bias)
