"""Mixtures of activations on TensorFlow: what is kept for the derivative is the branches and the weights.

The derivative is that of the formula, taken anew for a few rows at a time: what it writes down in between stays in the
cache of a CPU, where memory for all rows would cost more than the arithmetic.
"""

import functools

import tensorflow as tf

from keras_polycom.ops.fused.tensorflow_halves import compiled, gradients, with_halves

# Numbers per branch that are worked on together.
_CHUNK = 24 * 1024


def mix(formula, functions, branches, weights):
    """`formula(*branches, *weights, *functions)`, for branches (..., hidden) and weights (n,) or (..., n)."""
    hidden, shape = branches[0].shape[-1], tf.shape(branches[0])
    weights = [tf.broadcast_to(w, tf.concat([shape[:-1], w.shape[-1:]], axis=0)) for w in weights]
    rows = [tf.reshape(operand, (-1, operand.shape[-1])) for operand in (*branches, *weights)]
    out = _halves(formula, functions, hidden)(*rows)
    return tf.ensure_shape(tf.reshape(out, shape), branches[0].shape)


@functools.lru_cache(maxsize=256)
def _halves(formula, functions, hidden):
    def of_rows(*rows):
        return formula(*rows, *functions)

    def pull(operands):
        *rows, upstream = operands
        return gradients(lambda rows: of_rows(*rows), rows, upstream)

    @compiled
    def backward(*operands):
        count, together = tf.shape(operands[-1])[0], max(1, _CHUNK // hidden)
        chunks = -(-count // together)
        padding = [[0, chunks * together - count], [0, 0]]
        chunked = [tf.reshape(tf.pad(o, padding), (chunks, together, o.shape[-1])) for o in operands]
        signature = [tf.TensorSpec((together, o.shape[-1]), o.dtype) for o in operands[:-1]]
        pulled = tf.map_fn(pull, chunked, fn_output_signature=signature)
        return [tf.reshape(p, (-1, p.shape[-1]))[:count] for p in pulled]

    return with_halves(of_rows, compiled(of_rows), backward)
