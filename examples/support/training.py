"""The training loop: what decays, the learning rate, the seeds, and epochs that resume exactly."""

import functools
import math
import statistics
import time

import keras
import numpy as np

from keras_polycom.layers.nested import nested_layers
from support import checkpoint
from support.distribute.devices import ONE
from support.errors import NonFiniteLoss, UserError
from support.learning_rate import LearningRate

# The attributes under which layers keep matrices: of Dense, EinsumDense, convolutions, recurrent cells, and the gates
# of the mixtures. All else (biases, gains, coefficients, slopes, class token, position table) is not decayed.
MATRICES = (
    "kernel",
    "depthwise_kernel",
    "pointwise_kernel",
    "recurrent_kernel",
    "mixing_kernel",
    "gate_mixing_kernel",
    "up_mixing_kernel",
)
REMEDY = "lower --learning-rate, lengthen --warmup, or give --clip-norm"


def split_by_decay(model):
    """Returns the trainable variables that weight decay is for, the matrices, and the others."""
    matrices = [getattr(layer, name, None) for layer in nested_layers(model) for name in MATRICES]
    decayed = {id(variable) for variable in matrices if isinstance(variable, keras.Variable)}
    variables = model.trainable_variables
    return [v for v in variables if id(v) in decayed], [v for v in variables if id(v) not in decayed]


def describe_decay(decayed, others):
    return (
        f"weight decay on {len(decayed)} matrices ({count(decayed):,} parameters), not on {len(others)} other "
        f"variables ({count(others):,}: biases, gains, coefficients, class token, position table)"
    )


def count(variables):
    return sum(math.prod(variable.shape) for variable in variables)


def warmup_cosine(peak, steps, warmup_steps):
    """Learning rate: linear up to `peak` over `warmup_steps`, then a cosine down to 0 at `steps`."""
    if not warmup_steps:
        return keras.optimizers.schedules.CosineDecay(peak, steps)
    return keras.optimizers.schedules.CosineDecay(
        peak / warmup_steps, max(steps - warmup_steps, 1), warmup_target=peak, warmup_steps=warmup_steps
    )


def adamw(model, learning_rate, weight_decay, *, beta_2=0.999, clip_norm=None, ema=None):
    """AdamW with the decay on matrices only, built for `model`.

    Args:
        model: built model.
        learning_rate: float or schedule.
        weight_decay: float.
        beta_2: float. Decay of the average of the squared gradients.
        clip_norm: float or `None`. Largest norm of all gradients together.
        ema: float or `None`. Momentum of a moving average of the weights.
    """
    optimizer = keras.optimizers.AdamW(
        learning_rate,
        weight_decay=weight_decay,
        beta_2=beta_2,
        global_clipnorm=clip_norm,
        use_ema=ema is not None,
        **({} if ema is None else {"ema_momentum": ema}),
    )
    optimizer.exclude_from_weight_decay(var_list=split_by_decay(model)[1])
    return optimizer


def copy_shared_weights(model, reference, own):
    """Starts a model from the weights of another wherever path and shape agree.

    Args:
        model: built model.
        reference: dict, path -> array, from `weights_by_path`.
        own: layers whose variables keep their own start: the activations.

    Returns:
        The number of variables copied, and the number that kept their own start.
    """
    kept = {id(variable) for layer in own for variable in layer.variables}
    shared = 0
    for variable in model.weights:
        value = reference.get(variable.path)
        if id(variable) not in kept and value is not None and value.shape == tuple(variable.shape):
            variable.assign(value)
            shared += 1
    return shared, len(model.weights) - shared


def weights_by_path(model):
    return {variable.path: _array(variable) for variable in model.weights}


def _array(variable):
    return np.array(keras.ops.convert_to_numpy(variable))  # a copy: on torch the variable's own memory comes back


def set_seed_states(model, seed, epoch, devices=ONE):
    """Makes dropout and its like follow from (seed, epoch), so that a resumed run draws what it would have drawn.

    For every part of a batch that is computed on its own other numbers are drawn.
    """
    if keras.backend.backend() == "torch":  # drops out by its global generator; TensorFlow would compile all anew
        keras.utils.set_random_seed(_drawn(1, seed, epoch, *_own(devices.part))[0])
    position = 0
    for layer in nested_layers(model):
        for value in vars(layer).values():
            if isinstance(value, keras.random.SeedGenerator):
                devices.set_state(value.state, functools.partial(_state, value.state.dtype, seed, epoch, position))
                position += 1


def _state(dtype, seed, epoch, position, part):
    return np.array(_drawn(2, seed, epoch, position, *_own(part)), str(dtype))


def _own(part):
    """The first part draws what a single device would."""
    return (part,) if part else ()


def _drawn(count, *numbers):
    """Integers from 0 to 2^31 - 1 that follow from `numbers`."""
    return [int(value) >> 1 for value in np.random.SeedSequence(numbers).generate_state(count)]


class EpochSeed(keras.callbacks.Callback):
    """Sets all random states when an epoch starts, after `fit` has drawn what it needs to prepare itself."""

    def __init__(self, seed, epoch, devices=ONE):
        super().__init__()
        self.seed = seed
        self.epoch = epoch
        self.devices = devices

    def on_epoch_begin(self, epoch, logs=None):
        set_seed_states(self.model, self.seed, self.epoch, self.devices)


class StepWatch(keras.callbacks.Callback):
    """Times the steps, shows progress, and stops at the first loss that is not finite."""

    def __init__(self, label, first_step, on_step, keep_weights, remedy, devices=ONE):
        super().__init__()
        self.devices = devices
        self.keep_weights = keep_weights
        self.remedy = remedy
        self.label = label
        self.first_step = first_step
        self.on_step = on_step
        self.seconds = []
        self.weights = None

    def on_train_batch_begin(self, batch, logs=None):
        self._start = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        # Waits for the step, so that the time is that of the step. Of all processes, so that they stop together.
        loss = float(self.devices.mean({"loss": logs["loss"]})["loss"])
        self.seconds.append(time.perf_counter() - self._start)
        if not math.isfinite(loss):
            raise NonFiniteLoss(
                f"the loss of {self.label} is {loss} at step {self.first_step + batch + 1} (step {batch + 1} of its "
                f"epoch): {self.remedy}."
            )
        self.on_step(batch + 1, loss)

    def on_epoch_end(self, epoch, logs=None):
        if self.keep_weights:
            self.weights = [_array(variable) for variable in self.model.trainable_variables]


class Run:
    """One model, trained epoch by epoch; each epoch ends with a checkpoint, from which a later process goes on.

    Args:
        label: string that names the run.
        model: compiled model whose optimizer is built.
        train: `batches.ImageBatches` or its like, a `PyDataset` with `epoch` and `error`.
        evaluate: function without arguments that returns what else is kept of an epoch: a dict, name -> number.
        seed: integer, for dropout.
        path: path of the checkpoint.
        settings: dict of JSON values. A checkpoint of a run with others is refused.
        progress: `progress.Progress`.
        averaged: bool. Whether the optimizer keeps a moving average of the weights, which is then what is evaluated and
            saved, whereas training goes on from the weights themselves.
        remedy: string, what the user may do about a loss that is not finite.
        devices: `distribute.Devices`, for which the model is built and compiled.
    """

    def __init__(
        self,
        label,
        model,
        train,
        evaluate,
        seed,
        path,
        settings,
        progress,
        averaged=False,
        remedy=REMEDY,
        devices=ONE,
    ):
        self.label = label
        self.model = model
        self.train_batches = train
        self.evaluate = evaluate
        self.seed = seed
        self.path = path
        self.settings = {"run": label, **settings}
        self.progress = progress
        self.averaged = averaged
        self.remedy = remedy
        self.devices = devices
        devices.adopt(model)
        record = devices.lead(checkpoint.restore, path, model, self.settings)
        devices.spread(model)
        self.history = record["history"] if record else []
        self.learning_rate = LearningRate(model.optimizer)
        self.resumed_at = len(self.history)

    def train(self, epochs, on_epoch):
        """Trains up to `epochs`, and calls `on_epoch(row)` after each, with the new last row of `history`."""
        for epoch in range(len(self.history), epochs):
            row = self._epoch(epoch, epochs)
            if self.devices.leads:
                checkpoint.save(self.path, self.model, {"settings": self.settings, "history": [*self.history, row]})
            self.history.append(row)
            on_epoch(row)
        if self.averaged:
            self.model.optimizer.finalize_variable_values(self.model.trainable_variables)

    def _epoch(self, epoch, epochs):
        self.train_batches.epoch = epoch
        start = time.perf_counter()
        steps = len(self.train_batches)
        with self.progress.epoch(self.label, epoch + 1, epochs, steps) as progress:
            watch = StepWatch(self.label, epoch * steps, progress.step, self.averaged, self.remedy, self.devices)
            logs = self._fit([EpochSeed(self.seed, epoch, self.devices), watch])
            if self.averaged:
                # fit has put the averages into the model, on JAX as the optimizer's own arrays, which evaluate deletes.
                self._assign([_array(variable) for variable in self.model.trainable_variables])
            row = {
                "epoch": epoch + 1,
                **{name: float(value) for name, value in logs.items()},
                **{name: float(value) for name, value in self.evaluate().items()},
                "learning_rate": self.learning_rate(),
                "ms_per_step": 1e3 * statistics.median(watch.seconds),
                "seconds": time.perf_counter() - start,
            }
            progress.finish(row)
        if self.averaged:
            self._assign(watch.weights)
        return row

    def _assign(self, values):
        for variable, value in zip(self.model.trainable_variables, values, strict=True):
            variable.assign(value)

    def _fit(self, callbacks):
        share = self.devices.share(self.train_batches)
        history = guarded(
            self.train_batches,
            lambda: self.model.fit(share, epochs=1, shuffle=False, verbose=0, callbacks=callbacks),
        )
        self.devices.settle(self.model)
        return self.devices.mean({name: values[-1] for name, values in history.history.items()})


def evaluate(model, batches, devices=ONE):
    """What `model.evaluate` returns for the batches, as a dict: means over their images."""
    return guarded(
        batches,
        lambda: devices.evaluate(batches, lambda share: model.evaluate(share, verbose=0, return_dict=True)),
    )


def guarded(batches, action):
    """Returns `action()`; an error of the user's that the batches met is raised as it was, not as Keras wraps it."""
    try:
        return action()
    except Exception as error:
        if isinstance(batches.error, UserError):
            raise batches.error from error
        raise
