"""PolyReLU and PolyNorm on TensorFlow: what is kept for the derivative is the input alone."""

import functools
import math

import tensorflow as tf

from keras_polycom.ops._numerics import LARGEST_SCALE
from keras_polycom.ops.fused.shared import formulas
from keras_polycom.ops.fused.tensorflow_halves import compiled, unless, with_halves
from keras_polycom.ops.fused.tensorflow_reductions import row_sums
from keras_polycom.ops.polynomial import horner, power_sum


def poly_relu(x, coefficients, bias):
    """`bias + sum_i coefficients[i] relu(x)^i`, for coefficients (order,) and bias (1,) of the computation's dtype."""
    return _poly_relu()(x, coefficients, bias)


@functools.cache
def _poly_relu():
    formula = formulas("poly_relu")._poly_relu
    return with_halves(lambda x, a, bias: formula(x, a, bias[0]), _poly_relu_forward, _poly_relu_backward)


@compiled
def _poly_relu_forward(x, coefficients, bias):
    rectified = tf.nn.relu(tf.cast(x, coefficients.dtype))
    return tf.cast(horner(rectified, tf.unstack(coefficients), bias[0]), x.dtype)


@compiled
def _poly_relu_backward(x, coefficients, bias, upstream):
    dtype = coefficients.dtype
    rectified, g = tf.nn.relu(tf.cast(x, dtype)), tf.cast(upstream, dtype)
    terms = [g]
    for _ in range(coefficients.shape[0]):
        terms.append(terms[-1] * rectified)
    width = x.shape[-1] if x.shape.rank else 1
    sums = [tf.reduce_sum(s) for s in row_sums(*[tf.reshape(term, (-1, width, 1)) for term in terms])]
    slope = power_sum(rectified, [(i + 1) * a for i, a in enumerate(tf.unstack(coefficients))])
    grad_x = tf.where(x > 0, g * slope, tf.zeros_like(g))
    return tf.cast(grad_x, x.dtype), tf.stack(sums[1:]), sums[0][None]


def poly_norm(x, coefficients, bias, axis, epsilon, shared):
    """`bias + sum_i coefficients[i] norm(x^i)` over `axis`.

    `coefficients` is (1, order), `bias` (1,) if they are `shared`, else (rows, order) and (rows,), where rows are the
    positions of the axes before `axis`.
    """
    shape = tf.shape(x)
    after = x.shape[axis + 1 :]
    after = math.prod(after) if after.is_fully_defined() else tf.reduce_prod(shape[axis + 1 :])
    rows = tf.reshape(x, (-1, x.shape[axis], after))
    return tf.ensure_shape(tf.reshape(_poly_norm(epsilon, shared)(rows, coefficients, bias), shape), x.shape)


@functools.cache
def _poly_norm(epsilon, shared):
    # An argument, not read off shapes: TensorFlow takes what it traced for an unknown number of rows for one row too.
    def formula(x, coefficients, bias):
        of_rows = formulas("poly_norm")._normalized_polynomial
        columns = [_per_row(column) for column in tf.unstack(coefficients, axis=1)]
        out = of_rows(tf.cast(x, coefficients.dtype), columns, _per_row(bias), 1, epsilon)
        return tf.cast(out, x.dtype)

    forward = compiled(functools.partial(_poly_norm_forward, epsilon))
    return with_halves(formula, forward, compiled(functools.partial(_poly_norm_backward, epsilon, shared)))


def _poly_norm_forward(epsilon, x, coefficients, bias):
    shrink, inverse_roots = _statistics(x, coefficients.shape[1], coefficients.dtype, epsilon)
    y = tf.cast(x, coefficients.dtype) * shrink
    weights = [_per_row(coefficients[:, i]) * root for i, root in enumerate(inverse_roots)]
    return tf.cast(horner(y, weights, _per_row(bias)), x.dtype)


def _poly_norm_backward(epsilon, shared, x, coefficients, bias, upstream):
    """With y = t x, r_i the inverse roots, p_i = sum_j g_j y_j^i and n the length of the axis:

    d a_i = r_i p_i,    d y = g sum_i i a_i r_i y^(i-1) - sum_i (i a_i / n) r_i^3 p_i y^(2i-1),    d x = t d y
    """
    order, dtype = coefficients.shape[1], coefficients.dtype
    shrink, inverse_roots = _statistics(x, order, dtype, epsilon)
    y, g = tf.cast(x, dtype) * shrink, tf.cast(upstream, dtype)
    terms = [g]
    for _ in range(order):
        terms.append(terms[-1] * y)
    grad_bias, *projections = row_sums(*terms)
    grad_coefficients = [r * p for r, p in zip(inverse_roots, projections, strict=True)]
    weights = [(i + 1) * _per_row(coefficients[:, i]) * r for i, r in enumerate(inverse_roots)]
    # Multiplied from the left: r^3 alone would leave the range of float32.
    pulls = [-w / x.shape[1] * c * r for w, c, r in zip(weights, grad_coefficients, inverse_roots, strict=True)]
    grad_x = (g * power_sum(y, weights) + y * power_sum(y * y, pulls)) * shrink
    grad_coefficients = tf.stack([_total(c, shared) for c in grad_coefficients], axis=1)
    return tf.cast(grad_x, x.dtype), grad_coefficients, _total(grad_bias, shared)


def _statistics(x, order, dtype, epsilon):
    """Returns t and the inverse roots `1 / sqrt(mean(y^2i) + epsilon t^2i)` for `y = t x`, per row.

    t = 1 unless a power leaves the comfortable range, when all rows are taken again with t = 1 / max(1, max|x|). The
    result does not depend on t, which is a constant in the derivative.
    """

    def mean_powers(shrink):
        y = tf.cast(x, dtype) * shrink
        square = y * y
        powers = [square]
        for _ in range(order - 1):
            powers.append(powers[-1] * square)
        return [s / x.shape[1] for s in row_sums(*powers)]

    def rescaled():
        largest = tf.cast(tf.reduce_max(tf.abs(x), axis=1, keepdims=True), dtype)
        shrink = tf.stop_gradient(1 / tf.clip_by_value(largest, 1, LARGEST_SCALE[dtype.name]))
        return shrink, *mean_powers(shrink)

    means = mean_powers(tf.ones((), dtype))
    in_range = tf.reduce_max(means[-1]) < dtype.max**0.5
    shrink, *means = unless(in_range, (tf.ones_like(means[0]), *means), rescaled)
    epsilon_i, inverse_roots = epsilon, []
    for mean in means:
        epsilon_i = epsilon_i * (shrink * shrink)
        inverse_roots.append(1 / tf.sqrt(mean + epsilon_i))
    return shrink, inverse_roots


def _per_row(values):
    return values[:, None, None]


def _total(per_row, shared):
    """(before, 1, after) summed to (1,) for weights that all rows share, else to (before,)."""
    return tf.reduce_sum(per_row)[None] if shared else tf.reduce_sum(per_row, axis=(1, 2))
