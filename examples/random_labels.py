"""Fits random labels with convolutional networks whose only nonlinearity is the normalization, and compares these.

    python examples/random_labels.py
    python examples/random_labels.py --dataset cifar10 --normalization ln gn pln[8] pln[4] patch_group_norm[16,8]
    KERAS_BACKEND=torch python examples/random_labels.py --dataset FILE.npz --width 128 --stride 1 --train-limit 50000

Labels that have nothing to do with the images can only be learned by heart: the training accuracy says how expressive a
network is. This one has no activations: [3x3 convolution, normalization] four times, average pooling, a linear layer.

The setting is that of Ni et al., arXiv 2505.13142, table 2, made smaller for CPUs; the paper's own is --width 128
--stride 1 on CIFAR-10.
"""

import copy

from support import startup  # noqa: F401  isort: skip  (chooses the backend, so it comes before Keras)

import keras
import numpy as np
from support import batches, cli, comparison, conv_net, data, experiment, report, training
from support.errors import exit_status_of, run_as_script

IMAGES = 1000
NORMALIZATIONS = ("ln", "gn", "pln[8]", "pln[4]")
EPILOG = f"""\
normalizations, all without gamma and beta unless --affine is given:
  ln                     over all channels and positions of an image
  gn[N]                  over N groups of channels and all positions; gn: 8 channels to a group
  pln[N], pls[N]         over N consecutive channels at every position, all of them where N is --width; pls does not
                         subtract the mean
  patch_group_norm[C,P]  mixed axes: C groups of channels times P x P patches of the feature map
  mix_norm[T,C]          mixed axes: T groups of neighbouring positions in row-major order times C groups of channels

"loss" and "accuracy" in history.csv are means over the steps of an epoch; "train_loss" and "train_accuracy" those of
all training images after it. The weights and biases of every layer start uniform between plus and minus
1 / sqrt(inputs of the layer).

what is written to DIR:
  results.json  settings, versions, device, and for each run its history and results
  history.csv   one row per run and epoch, from the first epoch on
  curves.png    training accuracy and loss against the epoch, a line per run
  NAME.keras    the trained model, for keras.saving.load_model after import keras_polycom; its input is
                (pixel from 0 to 255 - mean) / std with the numbers under "data" in results.json
{cli.epilog_ending(16, "the command or the data")}
"""


def make_parser():
    parser = cli.Parser(prog="random_labels.py", description=__doc__, epilog=EPILOG)
    add_model_options(parser)
    cli.add_data_options(parser, data.NAMES, train_limit=f"{IMAGES}, or all if there are fewer")
    add_training_options(parser)
    cli.add_output_options(parser, "runs/<dataset>-random-labels")
    return parser


def add_model_options(parser):
    group = parser.add_argument_group("model")
    group.add_argument(
        "--normalization",
        nargs="+",
        default=list(NORMALIZATIONS),
        metavar="NAME",
        help=f"one run for each, see below (default: {' '.join(NORMALIZATIONS)})",
    )
    group.add_argument(
        "--width", type=cli.positive_integer, default=32, metavar="N", help="channels (default: %(default)s)"
    )
    group.add_argument(
        "--depth", type=cli.positive_integer, default=4, metavar="N", help="convolutions (default: %(default)s)"
    )
    group.add_argument(
        "--stride",
        type=cli.positive_integer,
        metavar="N",
        help="stride of the first convolution (default: 1 for images of up to 16 pixels, else 2)",
    )
    group.add_argument(
        "--pool",
        type=cli.positive_integer,
        default=4,
        metavar="N",
        help="average the last feature map over squares of N x N pixels (default: %(default)s)",
    )
    group.add_argument("--affine", action="store_true", help="give the normalizations gamma and beta (default: none)")


def add_training_options(parser):
    group = parser.add_argument_group("training")
    group.add_argument("--epochs", type=cli.positive_integer, default=200, metavar="N", help="(default: %(default)s)")
    group.add_argument(
        "--batch-size",
        type=cli.positive_integer,
        default=128,
        metavar="N",
        help="images per step; what is left over after the last full batch of an epoch waits for the next (default: "
        "%(default)s)",
    )
    group.add_argument(
        "--learning-rate", type=cli.positive, default=0.01, metavar="X", help="SGD's, constant (default: %(default)g)"
    )
    group.add_argument("--momentum", type=cli.rate, default=0.9, metavar="X", help="SGD's (default: %(default)g)")
    group.add_argument(
        "--seed",
        type=cli.natural,
        default=0,
        metavar="N",
        help="of the labels, the initial weights and the data order (default: %(default)s)",
    )


def complete(options, image_set):
    cli.default(options, stride=1 if max(image_set.image_shape[:2]) <= 16 else 2)
    image_set.check_batch_size(options.batch_size)


def with_random_labels(image_set, seed):
    """The same images with training labels that are drawn evenly from all classes."""
    train = copy.copy(image_set.train)
    train.labels = np.random.default_rng([seed, len(train)]).integers(len(image_set.classes), size=len(train))
    return train


class Memorizing(comparison.Comparison):
    """One network for each normalization."""

    weight_decay = False
    remedy = "lower --learning-rate"

    def __init__(self, options, image_set, folder):
        self.image_set = image_set
        train = with_random_labels(image_set, options.seed)
        shared = {"mean": image_set.mean, "std": image_set.std, "num_classes": len(image_set.classes)}
        super().__init__(
            options,
            folder,
            dict.fromkeys(options.normalization),
            batches.ImageBatches(train, options.batch_size, training=True, seed=options.seed, **shared),
            batches.ImageBatches(train, batches.even_batch_size(len(train), 4 * options.batch_size), **shared),
        )

    def build(self, label):
        options = self.options
        return conv_net.build(
            self.image_set.image_shape,
            len(self.image_set.classes),
            label,
            width=options.width,
            depth=options.depth,
            stride=options.stride,
            pool=options.pool,
            affine=options.affine,
            seed=options.seed,
        )

    def compile(self, label, model):
        model.compile(
            keras.optimizers.SGD(self.options.learning_rate, momentum=self.options.momentum),
            loss=keras.losses.CategoricalCrossentropy(from_logits=True),
            metrics=[keras.metrics.CategoricalAccuracy(name="accuracy")],
        )
        model.optimizer.build(model.trainable_variables)

    def evaluate(self, label, model):
        return {f"train_{name}": value for name, value in training.evaluate(model, self.test_batches).items()}

    def record(self, label, model):
        return {"normalization": label}

    def result(self, label, model, history):
        best = max(history, key=lambda row: row["train_accuracy"])
        return {
            "train_loss": history[-1]["train_loss"],
            "train_accuracy": history[-1]["train_accuracy"],
            "best_train_accuracy": best["train_accuracy"],
            "best_epoch": best["epoch"],
            **comparison.times(history),
        }


def print_table(folder, runs):
    header = ("normalization", "parameters", "train loss", "train accuracy", "best epoch", "ms per step")
    rows = [
        (
            label,
            f"{run['parameters']:,}",
            f"{run['train_loss']:.4f}",
            f"{run['train_accuracy']:.4f}",
            f"{run['best_epoch']} ({run['best_train_accuracy']:.4f})",
            f"{run['ms_per_step']:.1f}",
        )
        for label, run in runs.items()
    ]
    print(
        f"\n{report.table(header, rows)}\n\nWritten to {folder}. Accuracy is on the training images and random labels."
    )


def draw(folder, options, runs):
    report.write_curves(
        folder / "curves.png",
        {label: run["history"] for label, run in runs.items()},
        f"random labels on {experiment.short_name(options.dataset)} ({keras.backend.backend()})",
        {"training accuracy": "train_accuracy", "training loss": "train_loss"},
    )


def random_labels(options):
    for name in options.normalization:
        conv_net.check_name(name)
    image_set = data.load(options.dataset, options.image_size, options.memory)
    cli.default(options, train_limit=min(IMAGES, len(image_set.train)))
    image_set = image_set.limited(options.train_limit)
    complete(options, image_set)
    facts = {
        **report.environment(),
        "data": {
            "train_images": len(image_set.train),
            **data.facts(image_set),
        },
    }
    output = options.output or f"runs/{experiment.short_name(options.dataset)}-random-labels"
    folder = experiment.Experiment(output, comparison.settings_of(options), facts, options.overwrite)
    print(
        f"{len(image_set.train):,} images of {'x'.join(map(str, image_set.image_shape))} from {options.dataset} with "
        f"random labels from {len(image_set.classes)} classes; {keras.backend.backend()}."
    )
    Memorizing(options, image_set, folder).run()
    draw(folder.folder, options, folder.runs)
    print_table(folder.folder, folder.runs)


def main(arguments=None):
    """Returns the exit status: see `--help`."""
    options = make_parser().parse_args(arguments)
    return exit_status_of(random_labels, options)


if __name__ == "__main__":
    run_as_script(main)
