"""Several devices on TensorFlow: `tf.distribute.MirroredStrategy`, whose replicas share each batch in one process."""

import contextlib
import functools

import tensorflow as tf

from support.distribute.shares import SharedBatches
from support.errors import UserError


class TensorFlowDevices(SharedBatches):
    """Arg: the names of the devices."""

    def __init__(self, names):
        self.names = names
        self.parts = len(names)
        self.strategy = _strategy(tuple(names))

    def scope(self):
        return self.strategy.scope()

    def adopt(self, model):
        """Compiling by XLA is switched off, which the strategy cannot do with the sum of the gradients in the step.

        Keras clips the gradients, and looks for those that are not finite, before it sums them over the devices. Where
        either is wanted they are summed before that, and divided, since Keras then sums what is equal.
        """
        model.jit_compile = False
        optimizer = model.optimizer
        inner = getattr(optimizer, "inner_optimizer", optimizer)  # of the one that scales the loss
        limit = inner.global_clipnorm
        if limit:
            _change(inner, lambda gradients: tf.clip_by_global_norm(gradients, limit / self.parts)[0])
        if limit or inner is not optimizer:
            _change(optimizer, self._mean)

    def set_state(self, variable, draw):
        for part, own in enumerate(self.strategy.experimental_local_results(variable.value)):
            own.assign(draw(part))

    def _mean(self, gradients):
        present = [gradient for gradient in gradients if gradient is not None]
        means = iter(tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, present))
        return [None if gradient is None else next(means) for gradient in gradients]


@functools.cache
def _strategy(names):
    """One for a process: a second one would count its collective operations anew, and meet those of the first."""
    return tf.distribute.MirroredStrategy(list(names))


def _change(optimizer, change):
    """Has an optimizer apply `change(gradients)`."""
    apply = optimizer.apply
    optimizer.apply = lambda gradients, trainable_variables=None: apply(change(gradients), trainable_variables)


def open_devices(choice, kind, number):
    """A `with` block that is given `TensorFlowDevices`."""
    gpus = len(tf.config.list_physical_devices("GPU"))
    if gpus == 0 and number is not None and number > 1:
        _cut_processor(choice, number)
        names = [f"CPU:{index}" for index in range(number)]
    else:
        names = [f"GPU:{index}" for index in range(min(gpus, number or gpus))]
    if len(names) < max(2, number or 2):
        seen = f"{gpus} GPUs" if gpus > 1 else "a single GPU" if gpus else "no GPU"
        raise UserError(
            f"--distribute {choice} does not go with {seen}: leave it out"
            + (", or give data=N for N parts of the CPU." if gpus == 0 else ", or give a number that fits.")
        )
    return contextlib.nullcontext(TensorFlowDevices(names))


def _cut_processor(choice, number):
    """Makes the CPU `number` devices, unless it is as many already."""
    processor = tf.config.list_physical_devices("CPU")[0]
    try:
        tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * number)
    except RuntimeError as error:  # TensorFlow has started
        if len(tf.config.list_logical_devices("CPU")) < number:
            raise UserError(
                f"--distribute {choice} comes too late, as TensorFlow has started with fewer CPUs: start anew."
            ) from error
