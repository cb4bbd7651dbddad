"""A function in two halves, forward and backward, that XLA compiles each on its own."""

import functools

import tensorflow as tf

# Wherever it is called: in eager code, in a graph, or in a function that is compiled as a whole.
compiled = functools.partial(tf.function, jit_compile=True, autograph=False)


def with_halves(formula, forward, backward):
    """Returns `formula` with a faster value and first derivative.

    Derivatives of higher order are those of the formula.

    Args:
        formula: differentiable function of tensors that returns one tensor.
        forward: compiled function that returns the same.
        backward: compiled function of the same tensors and the gradient from above that returns a gradient for each.
    """

    def pull(operands):
        *inputs, upstream = operands
        return gradients(lambda inputs: formula(*inputs), inputs, upstream)

    @tf.custom_gradient
    def pulled(*operands):
        return _unseen(backward, operands), lambda *directions: gradients(pull, operands, directions)

    @tf.custom_gradient
    def function(*inputs):
        return _unseen(forward, inputs), lambda upstream: pulled(*inputs, upstream)

    return function


def unless(done, tried, again):
    """Returns the tensors `tried` where `done`, else those of `again()`, which are then computed and only then.

    A loop of at most one turn: of a `tf.cond` XLA computes both branches and selects.
    """
    _, *results = tf.while_loop(
        lambda done, *_: tf.logical_not(done),
        lambda *_: (tf.constant(True), *again()),
        (done, *tried),
        shape_invariants=(done.shape, *(tf.TensorShape([None] * t.shape.rank) for t in tried)),
    )
    return [tf.ensure_shape(result, t.shape) for result, t in zip(results, tried, strict=True)]


def _unseen(function, tensors):
    """`function(*tensors)` unseen by tapes: for them a compiled function would return all that it computes."""
    return function(*map(tf.stop_gradient, tensors))


def gradients(function, operands, upstream):
    """The gradients of `function(operands)`, with `upstream` from above."""
    with tf.GradientTape() as tape:
        tape.watch(operands)
        value = function(operands)
    return tape.gradient(value, operands, output_gradients=upstream, unconnected_gradients="zero")
