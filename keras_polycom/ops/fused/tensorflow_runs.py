"""Normalization of runs of consecutive channels on TensorFlow: what is kept for the derivative is the input alone."""

import functools
import operator

import tensorflow as tf

from keras_polycom.ops._numerics import LARGEST_SCALE
from keras_polycom.ops.fused.shared import formulas
from keras_polycom.ops.fused.tensorflow_halves import compiled, unless, with_halves
from keras_polycom.ops.fused.tensorflow_reductions import column_sums, row_sums

# Up to this size a run is summed element by element, many runs at once; XLA on a CPU would sum one run after another.
_LARGEST_UNROLLED_SIZE = 32


def normalize_runs(x, gamma, beta, size, center, epsilon):
    """`gamma (x - mean) / sqrt(var + epsilon) + beta` in runs of `size` along the last axis, or without the mean.

    `gamma` and `beta` are (channels,) in the dtype that is computed in, which they must have.
    """
    shape = (x.shape[-1] // size, size)
    runs = tf.reshape(x, (-1, *shape))
    out = _normalize(center, epsilon)(runs, tf.reshape(gamma, shape), tf.reshape(beta, shape))
    return tf.ensure_shape(tf.reshape(out, tf.shape(x)), x.shape)


@functools.cache
def _normalize(center, epsilon):
    def formula(x, gamma, beta):
        normalize = formulas("block_normalization")._normalize
        return tf.cast(normalize(tf.cast(x, gamma.dtype), None, (2,), center, epsilon) * gamma + beta, x.dtype)

    return with_halves(formula, *(compiled(functools.partial(half, center, epsilon)) for half in (_forward, _backward)))


def _forward(center, epsilon, x, gamma, beta):
    raised = tf.cast(x, gamma.dtype)
    return tf.cast(_apply(raised, _statistics(raised, epsilon, center)) * gamma + beta, x.dtype)


def _backward(center, epsilon, x, gamma, beta, upstream):
    """With z the normalized x, h = g gamma, and z = r t (x - mean):  d x = r t (h - mean(h) - z mean(h z))."""
    raised, g = tf.cast(x, gamma.dtype), tf.cast(upstream, gamma.dtype)
    statistics = _statistics(raised, epsilon, center)
    h, z = g * gamma, _apply(raised, statistics)
    mean = _mean(_parts(h))
    pull = _mean([a * _apply(b, statistics) for a, b in zip(_parts(h), _parts(raised), strict=True)])
    shrink, _, _, inverse_root = statistics
    grad_x = ((h - mean if center else h) - z * pull) * inverse_root * shrink
    return tf.cast(grad_x, x.dtype), *column_sums(g * z, g)


def _statistics(x, epsilon, center):
    """Returns t, c, m and r, one number per run, such that the normalized x is `r (t x - c - m)`.

    c is t times the first element of the run: next to a large mean differences from it are exact. t = 1 unless a
    variance leaves the comfortable range, when it is a power of 2 that brings the run to at most 1. Since the result
    does not depend on them, t and c are constants in the derivative.
    """
    ones = tf.ones_like(x[:, :, :1])
    reference = tf.stop_gradient(x[:, :, :1]) if center else 0 * ones

    def spread(shrink):
        first = shrink * reference
        parts = [shrink * part - first for part in _parts(x)]
        mean = _mean(parts) if center else 0 * ones
        return first, mean, _mean([tf.square(part - mean) for part in parts])

    def rescaled():
        halves = functools.reduce(tf.maximum, [tf.abs(part / 2 - reference / 2) for part in _parts(x)])
        largest = 2 * tf.clip_by_value(
            tf.reduce_max(halves, axis=2, keepdims=True), 0.5, LARGEST_SCALE[x.dtype.name] / 2
        )
        shrink = tf.stop_gradient(_power_of_two_below(1 / largest))
        return shrink, *spread(shrink)

    first, mean, variance = spread(ones)
    in_range = tf.reduce_max(variance) < x.dtype.max**0.5
    shrink, first, mean, variance = unless(in_range, (ones, first, mean, variance), rescaled)
    return shrink, first, mean, 1 / tf.sqrt(variance + epsilon * shrink * shrink)


def _power_of_two_below(x):
    """The power of 2 at or below a positive normal number: its bits without those of the fraction."""
    integer, fraction = {tf.float32: (tf.int32, 23), tf.float64: (tf.int64, 52)}[x.dtype]
    exponent = tf.bitwise.right_shift(tf.bitcast(x, integer), tf.constant(fraction, integer))
    return tf.bitcast(tf.bitwise.left_shift(exponent, tf.constant(fraction, integer)), x.dtype)


def _apply(x, statistics):
    shrink, first, mean, inverse_root = statistics
    return (shrink * x - first - mean) * inverse_root


def _parts(x):
    """The elements of each run, one tensor for each position; for long runs one tensor of them all."""
    size = x.shape[2]
    return [x[:, :, k : k + 1] for k in range(size)] if size <= _LARGEST_UNROLLED_SIZE else [x]


def _mean(parts):
    total = functools.reduce(operator.add, parts)
    runs, size = total.shape[1:]
    if size == 1:
        return total / len(parts)
    (total,) = row_sums(tf.reshape(total, (-1, size, 1)))
    return tf.reshape(total, (-1, runs, 1)) / size
