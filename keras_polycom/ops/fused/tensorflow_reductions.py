"""Sums over rows and columns, several at a time, for the faster versions on TensorFlow."""

import functools

import tensorflow as tf

from keras_polycom.ops.fused.shared import PIECES, ROWS

try:  # one pass over memory for several sums; not public TensorFlow, so there is a way without it
    from tensorflow.compiler.tf2xla.python.xla import variadic_reduce
except ImportError:
    variadic_reduce = None


def row_sums(*terms):
    """Sums of several (before, axis, after) tensors over the middle axis, kept as (before, 1, after)."""
    if variadic_reduce is None:
        return [tf.reduce_sum(term, axis=1, keepdims=True) for term in terms]
    return _one_pass(terms, tf.shape(terms[0]))


def _one_pass(terms, shape):
    length = terms[0].shape[1]
    pieces = next((n for n in PIECES if length % n == 0), 1) if terms[0].shape[2] == 1 else 1
    if pieces > 1:
        terms = [tf.reshape(term, (-1, pieces, length // pieces)) for term in terms]
    dtype = terms[0].dtype
    add = _addition(len(terms), dtype)
    sums = variadic_reduce(list(terms), [tf.zeros((), dtype)] * len(terms), [1], add)
    if pieces > 1:
        sums = [tf.reduce_sum(s, axis=1) for s in sums]
    return [tf.reshape(s, (-1, 1, shape[2])) for s in sums]


def column_sums(*terms):
    """Sums of several (rows, runs, size) tensors over the first axis."""
    shape = terms[0].shape[1:]
    together = tf.shape(terms[0])[0] // ROWS * ROWS
    blocks = row_sums(*(tf.reshape(term[:together], (-1, ROWS, shape.num_elements())) for term in terms))
    rest = [tf.reduce_sum(term[together:], axis=0) for term in terms]
    return [r + tf.reshape(tf.reduce_sum(b, axis=0), shape) for r, b in zip(rest, blocks, strict=True)]


@functools.cache
def _addition(count, dtype):
    @tf.function(autograph=False)
    def add(*operands):
        return tuple(a + b for a, b in zip(operands[:count], operands[count:], strict=True))

    return add.get_concrete_function(*[tf.TensorSpec((), dtype)] * (2 * count))
