"""Several runs with the same data and, as far as they can, the same start, one after another, stopped and resumed."""

import contextlib
import functools
import json

import keras

from support import curves, report, tensorboard, training
from support.distribute.devices import ONE
from support.errors import Interrupted, NonFiniteLoss
from support.files import whole_file
from support.progress import Progress


class Comparison:
    """Trains one model for each label, one after another, and keeps the results in the experiment's folder.

    Subclasses say how a model is built and compiled and what is kept of it: `build`, `compile`, `record`, `result`; and
    where it is not the same for all runs, the rest: `seed`, `batches`, `evaluate`, `network`.

    Args:
        options: namespace with `seed`, `epochs`, `tensorboard` and perhaps `ema`.
        experiment: `experiment.Experiment`.
        labels: sequence of strings, the names of the runs.
        train, test: `batches.ImageBatches`.
        devices: `distribute.Devices`. Of several processes only the leading one writes.
    """

    weight_decay = True  # whether the optimizers decay weights
    remedy = training.REMEDY

    def __init__(self, options, experiment, labels, train=None, test=None, devices=ONE):
        self.options = options
        self.devices = devices
        self.experiment = experiment
        self.labels = list(labels)
        self.train_batches = train
        self.test_batches = test
        self.progress = Progress()
        self.boards = {}  # label -> what TensorBoard shows of it
        if options.tensorboard:
            tensorboard.check_installed()
        self.starts = {}  # seed -> label and weights of the first run with it
        for label in self.labels:  # all are tried before any trains
            with devices.scope():
                model = self.build(label)
            if self.seed(label) not in self.starts:
                self.starts[self.seed(label)] = label, training.weights_by_path(model)

    def build(self, label):
        """Returns a fresh model."""
        raise NotImplementedError

    def compile(self, label, model):
        """Compiles the model and builds its optimizer."""
        raise NotImplementedError

    def record(self, label, model):
        """Returns a dict of JSON values that is kept of the untrained model."""
        raise NotImplementedError

    def result(self, label, model, history):
        """Returns a dict of JSON values that is kept of the trained model."""
        raise NotImplementedError

    def seed(self, label):
        """The seed of a run. Runs with the same one share their start."""
        return self.options.seed

    def batches(self, label):
        """The training batches of a run."""
        return self.train_batches

    def evaluate(self, label, model):
        """Returns a dict of numbers that are kept of an epoch besides what `fit` reports."""
        return {
            f"val_{name}": value for name, value in training.evaluate(model, self.test_batches, self.devices).items()
        }

    def network(self, model):
        """The part of the model that is saved."""
        return model

    def run(self):
        for label in self.labels:
            if self.devices.lead(self.experiment.is_finished, label):
                print(f"{label}: finished before, kept.")
                self.experiment.remove_checkpoint(label)
                self._open_logs(label)
            else:
                with self.devices.scope():
                    self._run(label)

    def _run(self, label):
        model = self.build(label)
        self._share_start(label, model)
        self.compile(label, model)
        decays = self._describe(label, model)
        run = training.Run(
            label,
            model,
            self.batches(label),
            functools.partial(self.evaluate, label, model),
            self.seed(label),
            self.experiment.checkpoint_path(label),
            self.experiment.identity(),
            self.progress,
            averaged=getattr(self.options, "ema", None) is not None,
            remedy=self.remedy,
            devices=self.devices,
        )
        if run.resumed_at:
            print(f"{label}: goes on after epoch {run.resumed_at} of {self.options.epochs}.")
        self.experiment.runs[label] = {
            **self.record(label, model),
            "parameters": training.count(model.trainable_variables),
            **decays,
            "status": "running",
            "history": run.history,
        }
        self._open_logs(label)
        try:
            run.train(self.options.epochs, functools.partial(self.keep, label))
            self._finish(label, model)
        except NonFiniteLoss as error:
            self._stop(label, f"stopped: {error}")
            raise
        except KeyboardInterrupt as error:
            self._stop(label, "interrupted")
            epoch = min(len(run.history) + 1, self.options.epochs)
            raise Interrupted(
                f" in epoch {epoch} of {label}; what was finished is in {self.experiment.folder}, and the same command "
                "goes on from there.",
                error,
            ) from error

    def _share_start(self, label, model):
        first, weights = self.starts[self.seed(label)]
        shared, own = training.copy_shared_weights(model, weights, curves.activation_layers(model))
        if label != first:
            print(f"{label}: {shared} variables start as in {first}, {own} are its own.")

    def _describe(self, label, model):
        """Says how large the model is and, if the optimizers do decay weights, which; returns the latter for JSON."""
        if not self.weight_decay:
            print(f"{label}: {model.count_params():,} parameters.")
            return {}
        decayed, others = training.split_by_decay(model)
        print(f"{label}: {model.count_params():,} parameters; {training.describe_decay(decayed, others)}.")
        return {
            "decayed": {"variables": len(decayed), "parameters": training.count(decayed)},
            "not_decayed": {"variables": len(others), "parameters": training.count(others)},
        }

    def _open_logs(self, label):
        """Brings the logs to the state of the run's history, from which they may differ after a crash."""
        if not self.devices.leads:
            return
        if self.options.tensorboard:
            history = self.experiment.runs[label]["history"]
            self.boards[label] = tensorboard.Board(self.experiment.board_folder(label), history)
        self._write_history()

    def keep(self, label, row):
        """Writes the last row of a run's history, whose checkpoint is written, to the logs."""
        if label in self.boards:
            self.boards[label].add(row)
        self._write_history()

    def _write_history(self):
        if not self.devices.leads:
            return
        report.write_history(self.experiment.folder / "history.csv", self.experiment.histories())

    def _stop(self, label, status):
        self.experiment.runs[label]["status"] = status
        self.experiment.write()

    def _finish(self, label, model):
        if not self.devices.leads:
            return
        with whole_file(self.experiment.model_path(label)) as temporary:
            self.network(model).save(temporary)
        record = self.experiment.runs[label]
        record.update(self.result(label, model, record["history"]), status="finished")
        self.experiment.write()
        self.experiment.remove_checkpoint(label)


def settings_of(options):
    """The options that decide the results, as JSON values."""
    unsaved = ("output", "overwrite", "memory", "tensorboard")
    settings = {name: value for name, value in vars(options).items() if name not in unsaved}
    return json.loads(json.dumps({**settings, "backend": keras.backend.backend()}))


def times(history):
    """Median milliseconds per step, the first epoch left out if there is another, since it compiles; all seconds."""
    steps = sorted(row["ms_per_step"] for row in history[1:] or history)
    return {"ms_per_step": steps[len(steps) // 2], "seconds": sum(row["seconds"] for row in history)}


@contextlib.contextmanager
def dtype_policy(name):
    """A `with` block with another global dtype policy."""
    former = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(former)
