"""Faster versions of the ops on TensorFlow, with derivatives of their own.

The two halves of an op, forward and backward, are compiled by XLA each on its own, in eager code and in graphs too.
Reverse mode of every order works. For forward mode use `keras_polycom.config.set_fast_roads("off")`. In a
SavedModel the compiled halves are kept, in an export to ONNX the formulas take their place.
"""

import math

import tensorflow as tf

from keras_polycom.ops.fused import tensorflow_mixtures, tensorflow_polynomial, tensorflow_runs
from keras_polycom.ops.fused.shared import Mixtures, epsilon_refusal, runs_refusal, size_refusal


def poly_relu(x, coefficients, bias=None):
    """See `keras_polycom.ops.poly_relu`."""
    x, coefficients, bias = _raised(x, coefficients, bias, (1,))
    return tensorflow_polynomial.poly_relu(x, coefficients, bias)


def poly_relu_refuses(x, coefficients, bias=None):
    return _refusal(x)


def poly_norm(x, coefficients, bias=None, axis=-1, epsilon=1e-6):
    """See `keras_polycom.ops.poly_norm`."""
    x, coefficients, bias = _raised(x, coefficients, bias, (1,))
    return tensorflow_polynomial.poly_norm(x, coefficients[None], bias, axis % x.shape.rank, epsilon, shared=True)


def poly_norm_refuses(x, coefficients, bias=None, axis=-1, epsilon=1e-6):
    return _refusal(x, axis, epsilon)


def grouped_poly_norm(x, coefficients, bias, group_index, axis=-1, epsilon=1e-6):
    """See `keras_polycom.ops.grouped_poly_norm`."""
    x, coefficients, bias = _raised(x, coefficients, bias, coefficients.shape[:1])
    axis %= x.shape.rank
    index = tf.clip_by_value(tf.cast(group_index, "int32"), 0, coefficients.shape[0] - 1)
    leading = tf.shape(x)[:axis]
    shape = tf.concat([tf.shape(index), tf.ones(axis - index.shape.rank, "int32")], axis=0)
    index = tf.reshape(tf.broadcast_to(tf.reshape(index, shape), leading), (-1,))
    per_row = tf.gather(coefficients, index), tf.gather(bias, index)
    return tensorflow_polynomial.poly_norm(x, *per_row, axis, epsilon, shared=False)


def grouped_poly_norm_refuses(x, coefficients, bias, group_index, axis=-1, epsilon=1e-6):
    return _refusal(x, axis, epsilon)


def block_normalization(x, axes, groups, gamma=None, beta=None, axis=-1, center=True, epsilon=1e-5, mask=None):
    """See `keras_polycom.ops.block_normalization`."""
    x = tf.convert_to_tensor(x)
    dtype, channels = _computed_in(x), x.shape[-1]
    gamma = tf.ones(channels, dtype) if gamma is None else _plain(gamma, dtype)
    beta = tf.zeros(channels, dtype) if beta is None else _plain(beta, dtype)
    return tensorflow_runs.normalize_runs(x, gamma, beta, channels // groups[0], center, epsilon)


def block_normalization_refuses(x, axes, groups, gamma=None, beta=None, axis=-1, center=True, epsilon=1e-5, mask=None):
    if mask is not None:
        return "there is a mask"
    if not tuple(axes) == (axis,) == (len(x.shape) - 1,):
        return "it is for runs of the last axis, the channels"
    return _refusal(x, -1, epsilon) or runs_refusal(x.shape[-1], groups[0])


def _mix(formula, branches, weights, dictionaries):
    branches, weights = ([tf.convert_to_tensor(t) for t in tensors] for tensors in (branches, weights))
    return tensorflow_mixtures.mix(formula, dictionaries, branches, weights)


def _raised(x, coefficients, bias, bias_shape):
    """Tensors; the weights in the dtype that is computed in. No bias becomes zeros."""
    x = tf.convert_to_tensor(x)
    dtype = _computed_in(x)
    bias = tf.zeros(bias_shape, dtype) if bias is None else tf.reshape(_plain(bias, dtype), bias_shape)
    return x, _plain(coefficients, dtype), bias


def _computed_in(x):
    return tf.float64 if x.dtype == tf.float64 else tf.float32


def _plain(weight, dtype):
    """A tensor and no variable: `tf.custom_gradient` takes none that its function does not name."""
    return tf.identity(tf.cast(tf.convert_to_tensor(weight), dtype))


def _refusal(x, axis=-1, epsilon=1.0):
    x = tf.convert_to_tensor(x)
    if reason := epsilon_refusal(epsilon):
        return reason
    if not x.dtype.is_floating:
        return f"its input is of dtype {x.dtype.name}"
    if x.shape.rank is None or (x.shape.rank and x.shape[axis] is None):
        return "the size of the axis is not known before it runs"
    if 0 in x.shape:
        return "its input is empty"
    if tf.distribute.has_strategy():
        return "it cannot be compiled on its own for several devices"
    return size_refusal(math.prod(x.shape)) if tf.executing_eagerly() else None


_mixtures = Mixtures(_mix, _refusal)
mix_activations, mix_activations_refuses = _mixtures.mix_activations, _mixtures.mix_activations_refuses
mix_one_sided, mix_one_sided_refuses = _mixtures.mix_one_sided, _mixtures.mix_one_sided_refuses
mix_bi_sided, mix_bi_sided_refuses = _mixtures.mix_bi_sided, _mixtures.mix_bi_sided_refuses
mix_quadratic, mix_quadratic_refuses = _mixtures.mix_quadratic, _mixtures.mix_quadratic_refuses
