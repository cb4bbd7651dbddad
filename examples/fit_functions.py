"""Fits random functions of several variables with multilayer perceptrons, and compares nonlinearities.

    python examples/fit_functions.py
    python examples/fit_functions.py --activation pln[4] relu ln --targets 5 --seed 0 1 2 --output runs/table1
    KERAS_BACKEND=torch python examples/fit_functions.py --dimensions 8 --depth 4 --learning-rate 1e-4 3e-4 1e-3

The targets are f(x) = sum_j a_j cos(pi w_j . x + phi_j) on [-1, 1]^d with amplitudes a_j and frequencies w_j of +-1 and
random phases. Points are drawn evenly; the values are standardised, so that predicting the mean has an error of 1.

The setting is that of Ni et al., arXiv 2505.13142, table I. How many modes and epochs is not told there: --modes and
--epochs are ours.
"""

import statistics

from support import startup  # noqa: F401  isort: skip  (chooses the backend, so it comes before Keras)

import keras
from support import batches, cli, comparison, experiment, mlp, nonlinearities, points, report, sweep, training
from support.errors import UserError, exit_status_of, run_as_script
from support.progress import short

EPILOG = f"""\
There is one run for each combination of --activation, target, --seed and --learning-rate. All have the same points for
the same target, and the same initial weights and batches for the same seed. The weights and biases of every layer start
uniform between plus and minus 1 / sqrt(inputs of the layer).

The last table has a row per nonlinearity: the learning rate with the lowest validation error, in the mean over targets
and seeds, and the mean test error with it after the last epoch.

what is written to DIR:
  results.json  settings, versions, device, for each run its history and errors, and the last table as "summary"
  history.csv   one row per run and epoch, from the first epoch on
  curves.png    training and validation loss against the epoch, a line per run
  NAME.keras    the trained model, for keras.saving.load_model after import keras_polycom; from x to f(x),
                standardised
{cli.epilog_ending(16)}
"""
ACTIVATIONS = ("pln[4]", "pln[8]", "relu", "silu", "ln")


def make_parser():
    parser = cli.Parser(prog="fit_functions.py", description=__doc__, epilog=EPILOG)
    add_target_options(parser)
    group = parser.add_argument_group("network")
    group.add_argument(
        "--activation",
        nargs="+",
        default=list(ACTIVATIONS),
        metavar="NAME",
        help="one run for each: pln[4], pln[8], relu, silu, tanh, identity, ln (layer normalization over all "
        "channels), sat (taken as x / sqrt(1 + x^2)), ...; an unknown name lists all (default: "
        f"{' '.join(ACTIVATIONS)})",
    )
    group.add_argument(
        "--depth",
        type=cli.positive_integer,
        default=1,
        metavar="N",
        help="hidden layers, 1 or 4 in the paper (default: %(default)s)",
    )
    group.add_argument(
        "--width", type=cli.positive_integer, default=1024, metavar="N", help="of the layers (default: %(default)s)"
    )
    add_training_options(parser)
    cli.add_output_options(parser, "runs/functions-<dimensions>d-<depth>l")
    return parser


def add_target_options(parser):
    group = parser.add_argument_group("targets")
    group.add_argument(
        "--dimensions",
        type=cli.positive_integer,
        default=4,
        metavar="D",
        help="number of variables, 4 or 8 in the paper (default: %(default)s)",
    )
    group.add_argument(
        "--modes",
        type=cli.positive_integer,
        default=8,
        metavar="N",
        help="terms of the sum; the paper does not say how many; +-1 frequencies in 4 dimensions make 8 different ones "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--targets",
        type=cli.positive_integer,
        default=1,
        metavar="N",
        help="number of functions, each a run of its own; 5 in the paper (default: %(default)s)",
    )
    for option, count, what in (
        ("--train-points", 10_000, "trained on"),
        ("--validation-points", 2_000, "that decide between learning rates"),
        ("--test-points", 10_000, "that the reported error is measured on"),
    ):
        group.add_argument(
            option, type=cli.positive_integer, default=count, metavar="N", help=f"points {what} (default: %(default)s)"
        )


def add_training_options(parser):
    group = parser.add_argument_group("training")
    group.add_argument(
        "--epochs",
        type=cli.positive_integer,
        default=200,
        metavar="N",
        help="the paper does not say how many (default: %(default)s)",
    )
    group.add_argument(
        "--batch-size",
        type=cli.positive_integer,
        default=256,
        metavar="N",
        help="points per step; what is left over after the last full batch of an epoch waits for the next (default: "
        "%(default)s)",
    )
    group.add_argument(
        "--learning-rate",
        type=cli.positive,
        nargs="+",
        default=[1e-3],
        metavar="X",
        help="Adam's at its peak, one run for each; 1e-4 3e-4 1e-3 in the paper (default: 0.001)",
    )
    group.add_argument(
        "--warmup-steps",
        type=cli.natural,
        default=500,
        metavar="N",
        help="steps in which the learning rate grows linearly to its peak; then it falls to 0 along a cosine (default: "
        "%(default)s)",
    )
    group.add_argument(
        "--seed",
        type=cli.natural,
        nargs="+",
        default=[0],
        metavar="N",
        help="of the initial weights and the order of the points, one run for each; 3 in the paper (default: 0)",
    )


def complete(options):
    """Checks what belongs together."""
    for name in options.activation:
        nonlinearities.check_name(name)
    if options.batch_size > options.train_points:
        raise UserError(
            f"--batch-size {options.batch_size} is larger than --train-points {options.train_points}: give "
            f"{options.train_points} or less."
        )


class Fitting(comparison.Comparison):
    """One network for each nonlinearity, target, seed and learning rate."""

    weight_decay = False
    remedy = "lower --learning-rate, or raise --warmup-steps"

    def __init__(self, options, folder):
        self.choices = sweep.combinations(
            {
                "activation": (options.activation, "{}"),
                "target": (range(options.targets), "target{}"),
                "seed": (options.seed, "seed{}"),
                "learning_rate": (options.learning_rate, "lr{:g}"),
            }
        )
        counts = (options.train_points, options.validation_points, options.test_points)
        targets = [points.FourierTarget(options.dimensions, options.modes, n) for n in range(options.targets)]
        self.samples = [points.draw(target, counts, number) for number, target in enumerate(targets)]
        super().__init__(options, folder, self.choices)

    def seed(self, label):
        return self.choices[label]["seed"]

    def build(self, label):
        options, choice = self.options, self.choices[label]
        return mlp.build(options.dimensions, options.width, options.depth, choice["activation"], choice["seed"])

    def compile(self, label, model):
        options = self.options
        steps = options.epochs * (options.train_points // options.batch_size)
        schedule = training.warmup_cosine(self.choices[label]["learning_rate"], steps, options.warmup_steps)
        model.compile(keras.optimizers.Adam(schedule), loss="mean_squared_error")
        model.optimizer.build(model.trainable_variables)

    def batches(self, label):
        train, _, _ = self.samples[self.choices[label]["target"]]
        return points.PointBatches(train, self.options.batch_size, self.seed(label), training=True)

    def evaluate(self, label, model):
        return {"val_loss": self._error(label, model, 1)}

    def _error(self, label, model, which):
        samples = self.samples[self.choices[label]["target"]][which]
        size = batches.even_batch_size(len(samples), 1024)
        return training.evaluate(model, points.PointBatches(samples, size))["loss"]

    def record(self, label, model):
        return dict(self.choices[label])

    def result(self, label, model, history):
        return {
            "train_loss": history[-1]["loss"],
            "validation_error": history[-1]["val_loss"],
            "test_error": self._error(label, model, 2),
            **comparison.times(history),
        }


def summarise(runs):
    """For each nonlinearity its best learning rate and the test errors with it, over targets and seeds.

    The best one is that with the lowest mean validation error.
    """
    summary = {}
    for activation in dict.fromkeys(run["activation"] for run in runs.values()):
        by_rate = {}
        for run in runs.values():
            if run["activation"] == activation:
                by_rate.setdefault(run["learning_rate"], []).append(run)
        rate = min(by_rate, key=lambda rate: statistics.fmean(run["validation_error"] for run in by_rate[rate]))
        errors = [run["test_error"] for run in by_rate[rate]]
        summary[activation] = {
            "learning_rate": rate,
            "runs": len(errors),
            "test_error": statistics.fmean(errors),
            "standard_deviation": statistics.pstdev(errors),
        }
    return summary


def print_tables(folder, runs, summary):
    header = ("run", "parameters", "train error", "validation error", "test error", "ms per step")
    rows = [
        (
            label,
            f"{run['parameters']:,}",
            short(run["train_loss"]),
            short(run["validation_error"]),
            short(run["test_error"]),
            f"{run['ms_per_step']:.1f}",
        )
        for label, run in runs.items()
    ]
    print(f"\n{report.table(header, rows)}\n")
    header = ("nonlinearity", "learning rate", "runs", "mean test error", "standard deviation")
    rows = [
        (
            activation,
            f"{entry['learning_rate']:g}",
            entry["runs"],
            short(entry["test_error"]),
            short(entry["standard_deviation"]),
        )
        for activation, entry in summary.items()
    ]
    print(
        f"{report.table(header, rows)}\n\nWritten to {folder}. Errors are mean squared errors of standardised values."
    )


def draw(folder, options, runs):
    report.write_curves(
        folder / "curves.png",
        {label: run["history"] for label, run in runs.items()},
        f"random functions of {options.dimensions} variables, depth {options.depth}, width {options.width} "
        f"({keras.backend.backend()})",
        {"training loss": "loss", "validation loss": "val_loss"},
    )


def fit_functions(options):
    complete(options)
    output = options.output or f"runs/functions-{options.dimensions}d-{options.depth}l"
    folder = experiment.Experiment(output, comparison.settings_of(options), report.environment(), options.overwrite)
    print(
        f"Functions of {options.dimensions} variables with {options.modes} modes, networks of depth {options.depth} "
        f"and width {options.width}: {options.train_points:,} training, {options.validation_points:,} validation and "
        f"{options.test_points:,} test points; {keras.backend.backend()}."
    )
    Fitting(options, folder).run()
    summary = folder.facts["summary"] = summarise(folder.runs)
    folder.write()
    draw(folder.folder, options, folder.runs)
    print_tables(folder.folder, folder.runs, summary)


def main(arguments=None):
    """Returns the exit status: see `--help`."""
    options = make_parser().parse_args(arguments)
    return exit_status_of(fit_functions, options)


if __name__ == "__main__":
    run_as_script(main)
