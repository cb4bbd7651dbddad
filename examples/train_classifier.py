"""Trains a vision transformer or a ResNet on images, once for each activation, and compares them.

    python examples/train_classifier.py
    python examples/train_classifier.py --activation gelu poly_relu poly_norm --output runs/demo
    KERAS_BACKEND=torch python examples/train_classifier.py --model resnet50 --activation relu --dataset cifar10
    python examples/train_classifier.py --dataset FOLDER --init-from runs/photos-mae/qd_moa.keras

All runs have the same seed, the same initial weights except the activations' own, and the same batches.
"""

from support import startup  # noqa: F401  isort: skip  (chooses the backend, so it comes before Keras)

import keras
from support import (
    augment,
    batches,
    classifiers,
    cli,
    comparison,
    curves,
    data,
    distribute,
    experiment,
    report,
    training,
)
from support.errors import exit_status_of, run_as_script

from keras_polycom import activations

# Data set -> epochs, batch size, learning rate, augmentation.
RECIPES = {"digits": (25, 32, 3e-3, "none"), "mnist-subset": (20, 64, 1e-3, "light")}
OTHER_RECIPE = (50, 128, 1e-3, "light")
EPILOG = f"""\
defaults that depend on the data (side: of the images):
                 epochs  batch size  learning rate  augment
  digits             25          32          0.003     none
  mnist-subset       20          64          0.001    light
  others             50         128          0.001    light

  ViT         patch  width  depth  heads  dropout     ResNet  stem      depths     widths
  side <= 16      2     64      3      4      0.1             cifar     1 1 1      16 32 64
  side <= 64      4    128      6      4      0               cifar     3 4 6 3    16 32 64 128
  larger         16    384     12      6      0               imagenet  3 4 6 3    64 128 256 512

what is written to DIR:
  results.json       settings, versions, device, and for each run its history and results
  history.csv        one row per run and epoch, from the first epoch on
  curves.png         loss and accuracy against the epoch
  activations.png    the learned curve of every activation layer beside the initial one
  NAME.keras         the trained model after the last epoch, for keras.saving.load_model after import keras_polycom;
                     its input is (pixel from 0 to 255 - mean) / std with the numbers under "data" in results.json
{cli.epilog_ending(21, "the command or the data")}
"""


def make_parser():
    parser = cli.Parser(prog="train_classifier.py", description=__doc__, epilog=EPILOG)
    classifiers.add_model_options(parser)
    cli.add_augmentation_options(cli.add_data_options(parser, data.NAMES))
    group = cli.add_training_options(parser)
    group.add_argument(
        "--label-smoothing",
        type=cli.rate,
        default=0.1,
        metavar="X",
        help="share of each label given to all classes alike (default: %(default)s)",
    )
    distribute.add_option(group)
    cli.add_output_options(parser, "runs/<dataset>-<model>")
    return parser


def complete(options, image_set, devices):
    """Fills in the defaults that depend on the data and the model, and checks what belongs together."""
    epochs, batch_size, learning_rate, level = RECIPES.get(options.dataset, OTHER_RECIPE)
    cli.default(options, epochs=epochs, batch_size=batch_size, learning_rate=learning_rate, augment=level)
    cli.default(options, warmup=options.epochs / 10)
    if options.augment != "none":
        cli.default(options, augment_with=augment.default_source(options.augment))
    classifiers.complete(options, image_set.image_shape)
    image_set.check_batch_size(options.batch_size)
    devices.check_batch_size(options.batch_size)
    devices.check_model(options.model, options.model == "vit")


def compile_model(model, options, steps_per_epoch):
    steps = options.epochs * steps_per_epoch
    schedule = training.warmup_cosine(options.learning_rate, steps, round(options.warmup * steps_per_epoch))
    optimizer = training.adamw(model, schedule, options.weight_decay, clip_norm=options.clip_norm, ema=options.ema)
    model.compile(
        optimizer=optimizer,
        loss=keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=options.label_smoothing),
        metrics=[keras.metrics.CategoricalAccuracy(name="accuracy")],
    )
    model.optimizer.build(model.trainable_variables)


def make_batches(options, image_set):
    shared = {"mean": image_set.mean, "std": image_set.std, "num_classes": len(image_set.classes), "seed": options.seed}
    augmenter = augment.make_augmenter(
        options.augment, image_set.image_shape, image_set.mirrored and not options.no_mirror, options.augment_with
    )
    size = batches.even_batch_size(len(image_set.test), options.batch_size)
    return (
        batches.ImageBatches(image_set.train, options.batch_size, training=True, augment=augmenter, **shared),
        batches.ImageBatches(image_set.test, size, **shared),
    )


class Classification(comparison.Comparison):
    """One classifier for each pair of activation and feed-forward layer."""

    def __init__(self, options, image_set, folder, devices):
        self.image_set = image_set
        self.choices = classifiers.labels(options)
        super().__init__(options, folder, self.choices, *make_batches(options, image_set), devices=devices)

    def build(self, label):
        return classifiers.build_model(self.options, self.image_set, *self.choices[label])

    def compile(self, label, model):
        compile_model(model, self.options, len(self.train_batches))

    def record(self, label, model):
        activation, feed_forward = self.choices[label]
        return {
            "activation": activation,
            "feed_forward": feed_forward if self.options.model == "vit" else None,
            "curves": initial_curves(activation, model),
        }

    def result(self, label, model, history):
        shown = self.experiment.runs[label]["curves"]
        if shown:
            shown["learned"] = [rounded(curves.response(layer)) for layer in curves.activation_layers(model)]
        best = max(history, key=lambda row: row["val_accuracy"])
        return {
            "train_loss": history[-1]["loss"],
            "accuracy": history[-1]["val_accuracy"],
            "best_accuracy": best["val_accuracy"],
            "best_epoch": best["epoch"],
            **comparison.times(history),
        }


def initial_curves(activation, model):
    """The curve all activation layers start with; `None` if the model has another activation of its own."""
    layers = curves.activation_layers(model)
    fixed = activations.get(activation)
    if not layers and isinstance(fixed, keras.layers.Layer) and fixed.weights:
        return None
    return {"initial": rounded(curves.response(layers[0] if layers else fixed)), "learned": []}


def rounded(curve):
    return [round(float(value), 5) for value in curve]


def print_table(experiment_folder, runs):
    header = ("activation", "parameters", "train loss", "accuracy", "best epoch", "ms per step")
    rows = [
        (
            label,
            f"{run['parameters']:,}",
            f"{run['train_loss']:.4f}",
            f"{run['accuracy']:.4f}",
            f"{run['best_epoch']} ({run['best_accuracy']:.4f})",
            f"{run['ms_per_step']:.1f}",
        )
        for label, run in runs.items()
    ]
    print(f"\n{report.table(header, rows)}\n\nWritten to {experiment_folder}. Accuracy is on the held-out images.")


def draw(folder, options, runs):
    histories = {label: run["history"] for label, run in runs.items()}
    panels = {"training loss": "loss", "held-out loss": "val_loss", "held-out accuracy": "val_accuracy"}
    title = f"{options.model} on {experiment.short_name(options.dataset)} ({keras.backend.backend()})"
    report.write_curves(folder / "curves.png", histories, title, panels)
    shown = {label: run["curves"] for label, run in runs.items() if run["curves"]}
    if shown:
        curves.write_activations(folder / "activations.png", shown)


def introduction(options, image_set):
    augmentation = options.augment + (f" with {options.augment_with}" if options.augment != "none" else "")
    return (
        f"{options.model} on {options.dataset}: {len(image_set.train):,} training and {len(image_set.test):,} test "
        f"images of {'x'.join(map(str, image_set.image_shape))}, {len(image_set.classes)} classes; "
        f"{keras.backend.backend()}, {options.mixed_precision}, augmentation {augmentation}."
    )


def train_classifier(options, devices):
    classifiers.take_encoder(options)
    classifiers.check_names(options)
    image_set = data.load(options.dataset, options.image_size, options.memory)
    if options.train_limit is not None:
        image_set = image_set.limited(options.train_limit)
    complete(options, image_set, devices)
    facts = {
        **report.environment(),
        "devices": devices.names,
        "data": {
            "train_images": len(image_set.train),
            "test_images": len(image_set.test),
            **data.facts(image_set),
        },
    }
    output = options.output or f"runs/{experiment.short_name(options.dataset)}-{options.model}"
    folder = distribute.experiment(devices, output, comparison.settings_of(options), facts, options.overwrite)
    print(introduction(options, image_set))
    with comparison.dtype_policy(options.mixed_precision):
        Classification(options, image_set, folder, devices).run()
    if devices.leads:
        draw(folder.folder, options, folder.runs)
        print_table(folder.folder, folder.runs)


def main(arguments=None):
    """Returns the exit status: see `--help`."""
    options = make_parser().parse_args(arguments)
    return exit_status_of(distribute.run, train_classifier, options)


if __name__ == "__main__":
    run_as_script(main)
