"""Times the ops of this package, or training steps with them, beside ReLU, GELU and LayerNorm, on any backend.

    python examples/benchmark.py
    KERAS_BACKEND=torch python examples/benchmark.py --backend-mode compile --op poly_norm pln[8] --shape 50176 64
    python examples/benchmark.py --steps --activation gelu poly_relu poly_norm --feed-forward mlp qd_moa

All that is compared is timed in one process, in turns, so that a busy or slowing machine spoils no ratio.
"""

import datetime
import os
import sys
import textwrap

from support import startup  # noqa: F401  isort: skip  (chooses the backend, so it comes before Keras)

from support import cli, files, report
from support.benchmark import cases, inputs, modes, op_table, runners, step_table, stopwatch
from support.errors import Interrupted, UserError, exit_status_of

EPILOG = f"""\
ops, with what a number in brackets behind the name stands for, and its default:
  relu, silu, gelu, layer_norm             as Keras has them: the yardsticks; relu is in every table
  poly_relu, poly_norm, poly_relu_norm     order [3]
  grouped_poly_norm                        number of groups [8], each row in a random one
  pln                                      norm size [8]
  mix_activations, mix_one_sided, mix_bi_sided, mix_quadratic
                                           of gelu, silu and relu2, with weights of their own for every row
  liger_poly_norm                          Liger-Kernel's, where it is installed and there is a CUDA device

versions of an op:
  stock      the one there is
  auto       as the package is installed: the backend's faster version, where there is one that takes these inputs;
             KERAS_POLYCOM_COMPILE=0 in the environment keeps eager PyTorch from compiling it
  formula    keras_polycom.config.set_fast_roads("off")

what is timed, on an x of --dtype, with weights in float32 at least (layer_norm's in the dtype of x, as in Keras):
  forward    the op alone, with nothing kept for gradients
  backward   the gradients of x (mixtures: of y and z), and of all coefficients, gains and weights, alone
  both       forward and backward in one go; "first call" is the first of these, compilation included (torch.compile
             keeps compiled code on disk, so that it is slow once only)
  saved      what the forward pass keeps for the backward pass, x included, in units of the bytes of x
  step       train_on_batch of a ViT with AdamW: forward, backward and update; KERAS_POLYCOM_FAST_ROADS=off in the
             environment gives the formulas; with torch.compile the first step takes minutes

Times are medians in milliseconds with the first and third quartile, after {stopwatch.WARM_UP} calls that do not count.
The yardstick of a mixture in a ViT is swiglu, or gelu-mlp if the mixture is not a gated unit, at the same hidden
width; it is added where it is not named.

exit status: 0 all was measured; 2 something in the command is wrong; 130 interrupted with Ctrl-C.
"""

OP_DEFAULTS = {"shape": [1576, 3072]}
STEP_DEFAULTS = {
    "activation": ["gelu", "poly_relu", "poly_norm"],
    "feed_forward": ["mlp"],
    "image_size": 32,
    "patch_size": 4,
    "width": 128,
    "depth": 4,
    "heads": 4,
    "mlp_dim": None,
    "batch_size": 64,
}


def make_parser():
    parser = cli.Parser(prog="benchmark.py", description=__doc__, epilog=EPILOG)
    parser.add_argument(
        "--backend-mode",
        choices=modes.NAMES,
        help="jit: jax.jit, or tf.function(jit_compile=True); graph: tf.function; eager: TensorFlow or PyTorch, op by "
        "op; compile: torch.compile (default: jit on JAX, graph on TensorFlow, eager on PyTorch)",
    )
    parser.add_argument(
        "--dtype",
        choices=inputs.DTYPES,
        default="float32",
        help="of x and the gradient from above; with --steps bfloat16 and float16 are Keras's mixed policies (default: "
        "%(default)s)",
    )
    parser.add_argument(
        "--repeats", type=cli.positive_integer, default=25, metavar="N", help="rounds (default: %(default)s)"
    )
    parser.add_argument("--json", metavar="FILE", help="write all of it to FILE too (default: print it only)")
    _add_op_options(parser)
    _add_step_options(parser)
    return parser


def _add_op_options(parser):
    group = parser.add_argument_group("ops")
    group.add_argument("--op", nargs="+", metavar="NAME", help="see below (default: all)")
    group.add_argument(
        "--shape",
        nargs="+",
        type=cli.positive_integer,
        metavar="N",
        help="of x, of any rank, the channels last (default: 1576 3072, one hidden layer of a ViT-B for 8 images)",
    )


def _add_step_options(parser):
    group = parser.add_argument_group("training steps")
    group.add_argument(
        "--steps", action="store_true", help="time the training steps of a ViT instead of ops (default: ops)"
    )
    group.add_argument(
        "--activation",
        nargs="+",
        metavar="NAME",
        help="one model for each, with each feed-forward layer that takes an activation (default: gelu poly_relu "
        "poly_norm)",
    )
    group.add_argument(
        "--feed-forward",
        nargs="+",
        metavar="NAME",
        help="mlp, glu, swiglu, poly_norm_glu, la, moa, one_moa, bi_moa, qd_moa, ... (default: mlp)",
    )
    sizes = {
        "image-size": "side of the square images (default: 32)",
        "patch-size": "side of a patch (default: 4)",
        "width": "width of the tokens (default: 128)",
        "depth": "number of blocks (default: 4)",
        "heads": "attention heads (default: 4)",
        "mlp-dim": "hidden width of the feed-forward layers (default: 4 times the width, 8/3 of it in gated ones)",
        "batch-size": "images per step (default: 64)",
    }
    for name, text in sizes.items():
        group.add_argument(f"--{name}", type=cli.positive_integer, metavar="N", help=text)


def complete(options):
    """Fills in defaults, and refuses options of the other benchmark."""
    other = ("op", *OP_DEFAULTS) if options.steps else tuple(STEP_DEFAULTS)
    for name in other:
        if getattr(options, name) is not None:
            remedy = "leave one of the two out" if options.steps else "add --steps, or leave it out"
            of = "ops, not of --steps" if options.steps else "--steps"
            raise UserError(f"--{name.replace('_', '-')} is an option of {of}: {remedy}.")
    options.backend_mode = modes.resolve(options.backend_mode)
    cli.default(options, **(STEP_DEFAULTS if options.steps else OP_DEFAULTS))
    if not options.steps:
        cli.default(options, op=cases.default_names(options.backend_mode))


def benchmark_ops(options, runner):
    drawn = inputs.Inputs(options.shape, options.dtype)
    rows = op_table.measure(options.op, drawn, runner, options.repeats, options.backend_mode)
    return rows, op_table.table(rows), op_table.remarks(rows, runner)


def benchmark_steps(options, runner):
    chosen = step_table.choices(options.activation, options.feed_forward)
    rows = step_table.measure(chosen, options, runner)
    return rows, step_table.table(rows), []


def facts():
    """Where, when, and with which of the package's switches set: JSON values."""
    return {
        **report.environment(),
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "environment": {name: value for name, value in sorted(os.environ.items()) if name.startswith("KERAS_POLYCOM_")},
    }


def introduction(options, environment):
    what = f"training steps of {options.batch_size} images" if options.steps else f"ops on {tuple(options.shape)}"
    switches = "".join(f", {name}={value}" for name, value in environment["environment"].items())
    versions = ", ".join(f"{name} {version}" for name, version in environment["versions"].items())
    return (
        f"{what[0].upper()}{what[1:]}, {options.dtype}, {environment['backend']} {options.backend_mode}{switches}, "
        f"{options.repeats} rounds; {environment['date']}.\n{environment['device']}; {versions}."
    )


def settings_of(options):
    settings = {name: value for name, value in vars(options).items() if name != "json"}
    unused = ("op", *OP_DEFAULTS) if options.steps else STEP_DEFAULTS
    return {name: value for name, value in settings.items() if name not in unused}


def benchmark(options):
    complete(options)
    inputs.allow(options.dtype)
    runner = runners.load(options.backend_mode)
    environment = facts()
    print(introduction(options, environment), flush=True)
    try:
        rows, table, remarks = (benchmark_steps if options.steps else benchmark_ops)(options, runner)
    except KeyboardInterrupt as error:
        raise Interrupted("; nothing was measured to its end, and nothing is written.", error) from error
    print(f"\n{table}")
    if remarks:
        print("\n" + "\n".join(textwrap.fill(remark, 120, subsequent_indent="  ") for remark in remarks))
    if options.json is not None:
        result = {"settings": settings_of(options), **environment, "rows": rows, "remarks": remarks}
        files.write_json(options.json, result, option="--json")
        print(f"\nWritten to {options.json}.")


def main(arguments=None):
    """Returns the exit status: see `--help`."""
    return exit_status_of(benchmark, make_parser().parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
