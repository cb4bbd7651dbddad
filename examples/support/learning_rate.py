"""The learning rate that an optimizer has arrived at."""

import keras


class LearningRate:
    """The learning rate of a built optimizer at the step it is at, as a number.

    On JAX it is compiled once. A schedule with a branch, such as a warm-up, would otherwise be compiled whenever it is
    asked for, and JAX keeps what it has compiled: a megabyte per epoch.

    Args:
        optimizer: built optimizer, or one that scales the loss.
    """

    def __init__(self, optimizer):
        self.iterations = optimizer.iterations
        self._at = _compiled(lambda step: self._schedule(optimizer, step))

    def __call__(self):
        return float(keras.ops.convert_to_numpy(self._at(self.iterations.value)))

    def _schedule(self, optimizer, step):
        with keras.StatelessScope([(self.iterations, step)]):
            return keras.ops.convert_to_tensor(optimizer.learning_rate)


def _compiled(function):
    if keras.backend.backend() != "jax":
        return function
    import jax

    return jax.jit(function)
