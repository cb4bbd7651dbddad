"""Solves the Helmholtz equation with physics-informed networks, once for each nonlinearity and seed, and compares them.

    python examples/helmholtz_pinn.py
    python examples/helmholtz_pinn.py --activation pln[4] tanh relu --seed 0 1 2 --output runs/table2
    KERAS_BACKEND=tensorflow python examples/helmholtz_pinn.py --activation pln[8] sat --width 256 --loss-weights 1 1

The equation is u'' + k^2 u = f on [-1, 1] with u = 0 at both ends and the solution u(x) = sin(pi x). The network is
trained on the squared residual of the equation at points inside and on its squared value at the ends; u'' is its exact
second derivative. All in float32, every step sees all points.

The setting is that of Ni et al., arXiv 2505.13142, table II, which does not give the wave number k.
"""

from support import startup  # noqa: F401  isort: skip  (chooses the backend, so it comes before Keras)

import keras
from support import cli, comparison, experiment, mlp, nonlinearities, pde, report, sweep
from support.errors import UserError, exit_status_of, run_as_script
from support.pde import helmholtz
from support.progress import short

EPILOG = f"""\
The weights and biases of every layer start uniform between plus and minus 1 / sqrt(inputs of the layer). The relative
L2 error is that on 2,001 equidistant points, measured once per epoch; the best one is the smallest of these.

what is written to DIR:
  results.json  settings, versions, device, and for each run its wave number, history, final and best error
  history.csv   one row per run and epoch, from the first epoch on
  curves.png    relative L2 error and loss against the iteration, a line per run
  NAME.keras    the trained network, for keras.saving.load_model after import keras_polycom; from x to u(x)
{cli.epilog_ending(16)}
"""


def make_parser():
    parser = cli.Parser(prog="helmholtz_pinn.py", description=__doc__, epilog=EPILOG)
    group = parser.add_argument_group("equation")
    group.add_argument(
        "--wave-number", type=cli.non_negative, default=1.0, metavar="K", help="k (default: %(default)g)"
    )
    group.add_argument(
        "--interior-points",
        type=cli.positive_integer,
        default=5000,
        metavar="N",
        help="points at which the equation is demanded, drawn once per seed, evenly distributed (default: %(default)s)",
    )
    group.add_argument(
        "--boundary-points",
        type=cli.at_least_two,
        default=500,
        metavar="N",
        help="points at which u = 0 is demanded, the two ends in turn (default: %(default)s)",
    )
    group.add_argument(
        "--loss-weights",
        type=cli.non_negative,
        nargs=2,
        default=[1.0, 10.0],
        metavar=("INTERIOR", "BOUNDARY"),
        help="weights of the mean squared residual and of the mean squared boundary value (default: 1 10)",
    )
    group = parser.add_argument_group("network")
    group.add_argument(
        "--activation",
        nargs="+",
        default=["pln[4]", "tanh", "relu"],
        metavar="NAME",
        help="one run for each with each seed: pln[4] to pln[32], tanh, relu, ln, sat (taken as x / sqrt(1 + x^2)), "
        "...; an unknown name lists all (default: pln[4] tanh relu)",
    )
    group.add_argument(
        "--width", type=cli.positive_integer, default=128, metavar="N", help="of the layers (default: %(default)s)"
    )
    group.add_argument(
        "--depth", type=cli.positive_integer, default=6, metavar="N", help="hidden layers (default: %(default)s)"
    )
    group = parser.add_argument_group("training")
    group.add_argument(
        "--iterations", type=cli.positive_integer, default=6000, metavar="N", help="Adam's (default: %(default)s)"
    )
    group.add_argument(
        "--steps-per-epoch",
        type=cli.positive_integer,
        default=100,
        metavar="N",
        help="iterations from one row of history.csv, measured error and checkpoint to the next; divides --iterations "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--learning-rate", type=cli.positive, default=3e-4, metavar="X", help="constant (default: %(default)g)"
    )
    group.add_argument(
        "--seed",
        type=cli.natural,
        nargs="+",
        default=[0],
        metavar="N",
        help="of the initial weights and the interior points, one run for each (default: 0)",
    )
    cli.add_output_options(parser, "runs/helmholtz")
    return parser


def complete(options):
    """Checks what belongs together, and turns iterations into epochs."""
    for name in options.activation:
        nonlinearities.check_name(name)
    if options.iterations % options.steps_per_epoch:
        raise UserError(
            f"--steps-per-epoch {options.steps_per_epoch} does not divide --iterations {options.iterations}: change "
            "one of them."
        )
    options.epochs = options.iterations // options.steps_per_epoch


class Solving(comparison.Comparison):
    """One network for each nonlinearity and seed."""

    weight_decay = False
    remedy = "lower --learning-rate"

    def __init__(self, options, folder):
        self.choices = sweep.combinations(
            {"activation": (options.activation, "{}"), "seed": (options.seed, "seed{}")},
        )
        super().__init__(options, folder, self.choices)

    def seed(self, label):
        return self.choices[label]["seed"]

    def build(self, label):
        options, choice = self.options, self.choices[label]
        network = mlp.build(1, options.width, options.depth, choice["activation"], choice["seed"])
        return helmholtz.HelmholtzProblem(network, options.wave_number, options.loss_weights)

    def compile(self, label, model):
        model.compile(keras.optimizers.Adam(self.options.learning_rate), jit_compile=pde.JIT_COMPILE)
        model.optimizer.build(model.trainable_variables)

    def batches(self, label):
        options = self.options
        return helmholtz.CollocationPoints(
            options.interior_points, options.boundary_points, options.steps_per_epoch, self.seed(label)
        )

    def evaluate(self, label, model):
        iteration = int(keras.ops.convert_to_numpy(model.optimizer.iterations))
        return {"iteration": iteration, "error": helmholtz.relative_error(model.network)}

    def network(self, model):
        return model.network

    def record(self, label, model):
        return {**self.choices[label], "wave_number": self.options.wave_number}

    def result(self, label, model, history):
        best = min(history, key=lambda row: row["error"])
        return {
            "loss": history[-1]["loss"],
            "error": history[-1]["error"],
            "best_error": best["error"],
            "best_iteration": int(best["iteration"]),
            **comparison.times(history),
        }


def print_table(folder, options, runs):
    header = ("run", "parameters", "loss", "final error", "best error", "at iteration", "ms per step")
    rows = [
        (
            label,
            f"{run['parameters']:,}",
            short(run["loss"]),
            short(run["error"]),
            short(run["best_error"]),
            run["best_iteration"],
            f"{run['ms_per_step']:.1f}",
        )
        for label, run in runs.items()
    ]
    print(
        f"\n{report.table(header, rows)}\n\nWritten to {folder}. The error is the relative L2 error; wave number "
        f"{options.wave_number:g}."
    )


def draw(folder, options, runs):
    report.write_curves(
        folder / "curves.png",
        {label: run["history"] for label, run in runs.items()},
        f"Helmholtz equation, k = {options.wave_number:g} ({keras.backend.backend()})",
        {"relative L2 error": "error", "loss": "loss"},
        time="iteration",
    )


def helmholtz_pinn(options):
    complete(options)
    output = options.output or "runs/helmholtz"
    folder = experiment.Experiment(output, comparison.settings_of(options), report.environment(), options.overwrite)
    print(
        f"Helmholtz equation with wave number {options.wave_number:g}: {options.interior_points:,} interior and "
        f"{options.boundary_points:,} boundary points, loss weights {options.loss_weights[0]:g} and "
        f"{options.loss_weights[1]:g}, {options.iterations:,} iterations; {keras.backend.backend()}."
    )
    Solving(options, folder).run()
    draw(folder.folder, options, folder.runs)
    print_table(folder.folder, options, folder.runs)


def main(arguments=None):
    """Returns the exit status: see `--help`."""
    options = make_parser().parse_args(arguments)
    return exit_status_of(helmholtz_pinn, options)


if __name__ == "__main__":
    run_as_script(main)
