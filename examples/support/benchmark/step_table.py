"""The benchmark of whole training steps: one ViT per activation and feed-forward layer, and the table of them."""

import dataclasses

import keras
import numpy as np

from keras_polycom import activations, feed_forwards, models
from support import classifiers, report, training
from support.benchmark import stopwatch
from support.benchmark.numbers import ms, ratio, short, spread
from support.benchmark.op_table import print_warm
from support.errors import building

HEADER = ("model", "parameters", "step ms", "quartiles", "/ first", "/ yardstick", "yardstick", "first step s")
POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16", "float64": "float64"}
CLASSES = 10


@dataclasses.dataclass(frozen=True)
class Choice:
    """What a model is made with; `activation` is `None` if the feed-forward layer brings its own."""

    feed_forward: str
    activation: str | None = None

    @property
    def label(self):
        return self.feed_forward if self.activation is None else f"{self.activation}-{self.feed_forward}"


PLAIN, GATED = Choice("mlp", "gelu"), Choice("swiglu")


def choices(activation_names, feed_forward_names):
    """Returns the models to build, each with its yardstick or `None`: dict, `Choice` -> `Choice`.

    The yardstick of a mixture is the layer of its form with one fixed activation; it comes last if it is not among
    the models anyway.

    Raises:
        UserError: a name that is not known.
    """
    for name in activation_names:
        classifiers.check_name("--activation", name, activations)
    wanted = {}
    for name in dict.fromkeys(feed_forward_names):
        classifiers.check_name("--feed-forward", name, feed_forwards, hidden_dim=8)
        layer = feed_forwards.get(name, hidden_dim=8, activation="relu")
        if getattr(layer, "activation", None) is activations.get("relu"):
            wanted.update({Choice(name, activation): None for activation in dict.fromkeys(activation_names)})
        else:
            is_mixture = hasattr(layer, "activations")
            wanted[Choice(name)] = (GATED if layer.gated else PLAIN) if is_mixture else None
    yardsticks = dict.fromkeys(choice for choice in wanted.values() if choice not in (None, *wanted))
    return {**wanted, **yardsticks}


def measure(chosen, options, runner):
    """Returns the rows as dicts of JSON values."""
    images, labels = _batch(options)
    built = [_compiled(choice, options) for choice in chosen]
    subjects = [
        stopwatch.Subject(choice.label, {"step": _step(model, images, labels)})
        for choice, model in zip(chosen, built, strict=True)
    ]
    times = stopwatch.interleaved(subjects, options.repeats, runner.synchronise, print_warm)
    rows = [_row(*values) for values in zip(chosen.items(), built, times, strict=True)]
    medians = {row["model"]: row["step"]["median_ms"] for row in rows}
    for row in rows:
        row["ratio_to_first"] = row["step"]["median_ms"] / rows[0]["step"]["median_ms"]
        yardstick = row["yardstick"]
        row["ratio_to_yardstick"] = None if yardstick is None else row["step"]["median_ms"] / medians[yardstick]
    return rows


def _batch(options):
    random = np.random.default_rng(0)
    images = random.standard_normal((options.batch_size, options.image_size, options.image_size, 3), "float32")
    return (
        keras.ops.convert_to_tensor(images),
        keras.ops.convert_to_tensor(random.integers(0, CLASSES, options.batch_size, "int32")),
    )


def _compiled(choice, options):
    keras.utils.set_random_seed(0)
    with building(choice.label):
        model = models.ViT(
            image_shape=(options.image_size, options.image_size, 3),
            patch_size=options.patch_size,
            num_layers=options.depth,
            hidden_dim=options.width,
            num_heads=options.heads,
            mlp_dim=options.mlp_dim,
            num_classes=CLASSES,
            activation=choice.activation or "gelu",
            feed_forward=choice.feed_forward,
            data_format="channels_last",
            dtype=POLICIES[options.dtype],
        )
    model.compile(
        optimizer=training.adamw(model, learning_rate=1e-4, weight_decay=0.05),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=options.backend_mode in ("jit", "compile"),
        run_eagerly=options.backend_mode == "eager" and keras.backend.backend() == "tensorflow",
    )
    return model


def _step(model, images, labels):
    return stopwatch.Measurement(lambda _: model.train_on_batch(images, labels))  # waits for the loss


def _row(chosen, model, times):
    choice, yardstick = chosen
    return {
        "model": choice.label,
        "activation": choice.activation,
        "feed_forward": choice.feed_forward,
        "hidden_dim_of_feed_forward": model.mlp_dim,
        "parameters": training.count(model.trainable_variables),
        "step": times["step"].summary(),
        "first_call_s": times["step"].first,
        "yardstick": None if yardstick is None else yardstick.label,
    }


def table(rows):
    return report.table(HEADER, [_cells(row) for row in rows])


def _cells(row):
    return (
        row["model"],
        f"{row['parameters']:,}",
        ms(row["step"]),
        spread(row["step"]),
        ratio(row["ratio_to_first"]),
        "" if row["yardstick"] is None else ratio(row["ratio_to_yardstick"]),
        row["yardstick"] or "",
        short(row["first_call_s"]),
    )
