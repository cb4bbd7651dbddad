"""Trains masked autoencoders on pictures without labels, once for each feed-forward layer, and compares them.

    python examples/pretrain_mae.py
    python examples/pretrain_mae.py --dataset FOLDER --feed-forward swiglu qd_moa --learning-rate 5e-4 1.5e-3 5e-3
    python examples/train_classifier.py --dataset FOLDER --init-from runs/photos-mae/qd_moa.keras

There is one run for each combination of --feed-forward, --activation and --learning-rate. All have the same seed, the
same initial weights as far as they have them in common, the same crops, and the same masks in validation.

The recipe is that of He et al., arXiv 2111.06377, appendix A.1, with the betas of Wang et al., arXiv 2605.26647, who
replace the SwiGLU of a ViT by the quadratic mixture of activations (swiglu, qd_moa).
"""

from support import startup  # noqa: F401  isort: skip  (chooses the backend, so it comes before Keras)

import keras
from support import (
    autoencoders,
    cli,
    comparison,
    data,
    distribute,
    experiment,
    picture_batches,
    pictures,
    report,
    training,
)
from support import reconstructions as pictured
from support.batches import even_batch_size
from support.errors import exit_status_of, run_as_script

# Data set -> epochs, batch size.
RECIPES = {"photos": (50, 32), "digits": (50, 64)}
OTHER_RECIPE = (200, 64)
LEARNING_RATE = 6e-3
REFERENCE_BATCH = 256
SHOWN = 6
EPILOG = f"""\
defaults that depend on the data (side: of the images):
             epochs  batch size
  photos         {RECIPES["photos"][0]}          {RECIPES["photos"][1]}
  digits         {RECIPES["digits"][0]}          {RECIPES["digits"][1]}
  others        {OTHER_RECIPE[0]}          {OTHER_RECIPE[1]}

                patch  width  depth  heads  decoder: width  depth  heads
  side <= 16        2     64      3      4              32      2      4
  side <= 64        8     96      4      4              64      2      4
  side <= 128       8    192      6      6              96      2      6
  larger           16    768     12     12             512      8     16

what is written to DIR:
  results.json         settings, versions, device, and for each run its history and results
  history.csv          one row per run and epoch, from the first epoch on
  curves.png           training and validation loss against the epoch, a line per run
  reconstructions.png  validation pictures, what the models see of them, and what each run makes of that
  NAME.keras           the trained model, for keras.saving.load_model after import keras_polycom; its input is
                       (pixel from 0 to 255 - mean) / std with the numbers under "data" in results.json;
                       train_classifier.py --init-from NAME.keras continues from its encoder
{cli.epilog_ending(23, "the command or the data")}
"""


def make_parser():
    parser = cli.Parser(prog="pretrain_mae.py", description=__doc__, epilog=EPILOG)
    autoencoders.add_model_options(parser)
    add_data_options(parser)
    group = cli.add_training_options(
        parser,
        learning_rate={
            "nargs": "+",
            "default": [LEARNING_RATE],
            "help": f"base of the learning rate, one run for each: the peak of the schedule is this number times "
            f"--batch-size over {REFERENCE_BATCH} (default: {LEARNING_RATE:g})",
        },
    )
    group.add_argument(
        "--beta-2",
        type=cli.rate,
        default=0.999,
        metavar="X",
        help="AdamW's second beta; 0.95 in the paper on masked autoencoders (default: %(default)s)",
    )
    distribute.add_option(group)
    cli.add_output_options(parser, "runs/<dataset>-mae")
    return parser


def add_data_options(parser):
    group = parser.add_argument_group("data")
    group.add_argument(
        "--dataset",
        default="photos",
        metavar="{" + ",".join(pictures.NAMES) + ",PATH}",
        help="photos: windows of six photographs in scikit-image and scikit-learn, the right quarter of each held out; "
        "digits, mnist-subset, cifar10: as in train_classifier.py; PATH: a folder with images below train/ and val/ or "
        "test/, or anywhere, of which a tenth is then held out; or an .npz with x_train and x_test or x_val "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--train-limit", type=cli.positive_integer, metavar="N", help="use the first N training pictures (default: all)"
    )
    group.add_argument(
        "--image-size",
        type=cli.positive_integer,
        metavar="N",
        help="side of the squares the model sees (default: 64 for photos, 96 for a folder, else as they are)",
    )
    group.add_argument(
        "--memory",
        type=cli.non_negative,
        default=1024,
        metavar="MB",
        help="read a folder once and keep it in memory if its pixels take at most this many MB, else read in threads "
        "while training (default: %(default)s)",
    )
    group.add_argument(
        "--no-mirror",
        action="store_true",
        help="never mirror pictures; digits and mnist-subset never are (default: mirror)",
    )


def complete(options, picture_set, devices):
    """Fills in the defaults that depend on the data, and checks what belongs together."""
    epochs, batch_size = RECIPES.get(options.dataset, OTHER_RECIPE)
    cli.default(options, epochs=epochs, batch_size=batch_size)
    cli.default(options, warmup=options.epochs / 20)  # 40 of 800 in the paper
    autoencoders.complete(options, picture_set.image_shape)
    picture_set.check_batch_size(options.batch_size)
    devices.check_batch_size(options.batch_size)


class Pretraining(comparison.Comparison):
    """One masked autoencoder for each combination of feed-forward layer, activation and learning rate."""

    def __init__(self, options, picture_set, folder, devices):
        self.choices = autoencoders.labels(options)
        self.image_shape = picture_set.image_shape
        train = picture_batches.RandomCrops(
            picture_set, options.batch_size, options.seed, picture_set.mirrored and not options.no_mirror
        )
        patches = (self.image_shape[0] // options.patch_size) * (self.image_shape[1] // options.patch_size)
        size = even_batch_size(len(picture_set.validation), options.batch_size)
        validation = picture_batches.CentreCrops(picture_set, size, patches)
        super().__init__(options, folder, self.choices, train, validation, devices)

    def build(self, label):
        feed_forward, activation, _ = self.choices[label]
        return autoencoders.build_model(self.options, self.image_shape, feed_forward, activation)

    def compile(self, label, model):
        options, steps_per_epoch = self.options, len(self.train_batches)
        schedule = training.warmup_cosine(
            self.peak(label), options.epochs * steps_per_epoch, round(options.warmup * steps_per_epoch)
        )
        model.compile(
            training.adamw(
                model,
                schedule,
                options.weight_decay,
                beta_2=options.beta_2,
                clip_norm=options.clip_norm,
                ema=options.ema,
            )
        )
        model.optimizer.build(model.trainable_variables)

    def peak(self, label):
        """The highest learning rate of a run."""
        return self.choices[label][2] * self.options.batch_size / REFERENCE_BATCH

    def record(self, label, model):
        feed_forward, activation, base = self.choices[label]
        return {
            "feed_forward": feed_forward,
            "activation": activation,
            "base_learning_rate": base,
            "peak_learning_rate": self.peak(label),
            "encoder_parameters": training.count(model.make_encoder().trainable_variables),
        }

    def result(self, label, model, history):
        best = min(history, key=lambda row: row["val_loss"])
        return {
            "train_loss": history[-1]["loss"],
            "validation_loss": history[-1]["val_loss"],
            "best_validation_loss": best["val_loss"],
            "best_epoch": best["epoch"],
            **comparison.times(history),
        }


def draw(folder, options, runs, validation, picture_set):
    title = f"masked autoencoders on {experiment.short_name(options.dataset)} ({keras.backend.backend()})"
    histories = {label: run["history"] for label, run in runs.items()}
    report.write_curves(
        folder.folder / "curves.png", histories, title, {"training loss": "loss", "validation loss": "val_loss"}
    )
    part = validation.part(slice(None, None, max(1, len(validation.pixels) // SHOWN)))
    part = {name: values[:SHOWN] for name, values in part.items()}
    numbers = picture_set.mean, picture_set.std
    painted = {}
    for label in runs:
        model = keras.saving.load_model(folder.model_path(label), compile=False)
        masked, painted[label] = pictured.paint(model, part, *numbers)
    pixels = (
        "pixels" if options.raw_pixels else "pixels, normalized per patch, with the mean and contrast of the original"
    )
    pictured.write_reconstructions(
        folder.folder / "reconstructions.png",
        pictured.pixels(part["images"], *numbers),
        masked,
        painted,
        f"validation pictures of {experiment.short_name(options.dataset)}, {options.mask_ratio:.0%} hidden; "
        f"predicted: {pixels}",
    )


def print_table(folder, runs):
    header = ("run", "parameters", "train loss", "validation loss", "best epoch", "peak learning rate", "ms per step")
    rows = [
        (
            label,
            f"{run['parameters']:,}",
            f"{run['train_loss']:.4f}",
            f"{run['validation_loss']:.4f}",
            f"{run['best_epoch']} ({run['best_validation_loss']:.4f})",
            f"{run['peak_learning_rate']:.3g}",
            f"{run['ms_per_step']:.1f}",
        )
        for label, run in runs.items()
    ]
    print(f"\n{report.table(header, rows)}\n\nWritten to {folder}. The loss is that of the hidden patches.")


def pretrain_mae(options, devices):
    autoencoders.check_names(options)
    picture_set = pictures.load(options.dataset, options.image_size, options.memory)
    if options.train_limit is not None:
        picture_set = picture_set.limited(options.train_limit)
    complete(options, picture_set, devices)
    facts = {
        **report.environment(),
        "devices": devices.names,
        "data": {
            "train_images": len(picture_set.train),
            "validation_images": len(picture_set.validation),
            **data.facts(picture_set),
        },
    }
    output = options.output or f"runs/{experiment.short_name(options.dataset)}-mae"
    folder = distribute.experiment(devices, output, comparison.settings_of(options), facts, options.overwrite)
    print(
        f"masked autoencoders on {options.dataset}: {len(picture_set.train):,} training and "
        f"{len(picture_set.validation):,} validation pictures, seen as {'x'.join(map(str, picture_set.image_shape))}; "
        f"{keras.backend.backend()}, {options.mixed_precision}."
    )
    with comparison.dtype_policy(options.mixed_precision):
        pretraining = Pretraining(options, picture_set, folder, devices)
        pretraining.run()
        if devices.leads:
            runs = {label: folder.runs[label] for label in pretraining.labels}
            draw(folder, options, runs, pretraining.test_batches, picture_set)
            print_table(folder.folder, runs)


def main(arguments=None):
    """Returns the exit status: see `--help`."""
    options = make_parser().parse_args(arguments)
    return exit_status_of(distribute.run, pretrain_mae, options)


if __name__ == "__main__":
    run_as_script(main)
