"""The models of train_classifier.py: their options, the sizes they have by default, and how they are built."""

import functools
import zipfile

import keras

from keras_polycom import activations, feed_forwards, models, normalizations
from support import cli, sweep
from support.errors import UserError, building, sentence_of

# Largest image side -> patch, width, depth, heads, dropout.
VIT_SIZES = {16: (2, 64, 3, 4, 0.1), 64: (4, 128, 6, 4, 0.0), None: (16, 384, 12, 6, 0.0)}
# Largest image side -> stem, depths, widths.
RESNET_SIZES = {
    16: ("cifar", (1, 1, 1), (16, 32, 64)),
    64: ("cifar", (3, 4, 6, 3), (16, 32, 64, 128)),
    None: ("imagenet", (3, 4, 6, 3), (64, 128, 256, 512)),
}


def add_model_options(parser):
    group = parser.add_argument_group("model")
    group.add_argument("--model", choices=("vit", "resnet50"), default="vit", help="(default: %(default)s)")
    group.add_argument(
        "--activation",
        nargs="+",
        metavar="NAME",
        help="one run for each: poly_relu, poly_norm, poly_prelu, poly_relu_norm, gelu, relu, silu, ...; an unknown "
        "name lists all (default: poly_norm)",
    )
    group.add_argument(
        "--feed-forward",
        nargs="+",
        metavar="NAME",
        help="feed-forward layer of the ViT, one run for each with each activation: mlp, glu, ...; an unknown name "
        "lists all (default: mlp)",
    )
    group.add_argument(
        "--normalization",
        metavar="NAME",
        help="layer_norm, rms_norm, batch_norm, ... (default: layer_norm in the ViT, batch_norm in the ResNet)",
    )
    group.add_argument(
        "--init-from",
        metavar="FILE",
        help="start the ViT as the encoder of a masked autoencoder that pretrain_mae.py wrote; activation, "
        "feed-forward layer, normalization and sizes are then the encoder's (default: start afresh)",
    )
    vit = parser.add_argument_group("sizes of the ViT")
    vit.add_argument(
        "--patch-size", type=cli.positive_integer, metavar="N", help="side of a patch in pixels (default: see below)"
    )
    vit.add_argument("--width", type=cli.positive_integer, metavar="N", help="width of the tokens (default: see below)")
    vit.add_argument("--depth", type=cli.positive_integer, metavar="N", help="number of blocks (default: see below)")
    vit.add_argument("--heads", type=cli.positive_integer, metavar="N", help="attention heads (default: see below)")
    vit.add_argument(
        "--mlp-dim",
        type=cli.positive_integer,
        metavar="N",
        help="hidden width of the feed-forward layers (default: 4 times the width, 8/3 of it in gated ones)",
    )
    vit.add_argument(
        "--dropout",
        type=cli.rate,
        metavar="X",
        help="rate of dropout everywhere, attention weights included (default: see below)",
    )
    vit.add_argument(
        "--drop-path",
        type=cli.rate,
        metavar="X",
        help="rate of stochastic depth in the last block, growing linearly from 0 in the first (default: 0)",
    )
    resnet = parser.add_argument_group("sizes of the ResNet")
    resnet.add_argument(
        "--stem",
        choices=("imagenet", "cifar"),
        help="imagenet: 7x7 and pooling, both of stride 2; cifar: 3x3 of stride 1 (default: see below)",
    )
    resnet.add_argument(
        "--depths", type=cli.positive_integer, nargs="+", metavar="N", help="blocks per stage (default: see below)"
    )
    resnet.add_argument(
        "--widths",
        type=cli.positive_integer,
        nargs="+",
        metavar="N",
        help="bottleneck width per stage; its output is 4 times as wide (default: see below)",
    )


VIT_OPTIONS = ("patch_size", "width", "depth", "heads", "mlp_dim", "dropout", "drop_path")
RESNET_OPTIONS = ("stem", "depths", "widths")


# Option of the script -> argument of the model, which an encoder has already.
ENCODER_OPTIONS = {
    "normalization": "normalization",
    "width": "hidden_dim",
    "depth": "num_layers",
    "heads": "num_heads",
    "mlp_dim": "mlp_dim",
}


def take_encoder(options):
    """Fills in activation and feed-forward layer, and with `--init-from` all that the encoder decides."""
    if options.init_from is None:
        cli.default(options, activation=["poly_norm"], feed_forward=["mlp"])
        return
    given = [name for name in ("activation", "feed_forward", "patch_size", *ENCODER_OPTIONS) if getattr(options, name)]
    if given or options.model != "vit":
        option = f"--{given[0].replace('_', '-')}" if given else "--model resnet50"
        raise UserError(f"{option} does not go with --init-from, which brings a ViT with its sizes: leave one out.")
    encoder = load_encoder(options.init_from)
    options.activation, options.feed_forward = [encoder.activation], [encoder.feed_forward]
    options.patch_size = encoder.patch_size[0]
    for name, argument in ENCODER_OPTIONS.items():
        setattr(options, name, getattr(encoder, argument))
    if not all(isinstance(name, str) for name in (encoder.activation, encoder.feed_forward, encoder.normalization)):
        raise UserError(
            f"{options.init_from} has layers without a name of their own: make the classifier in Python, with its "
            "method to_classifier."
        )


@functools.cache
def load_encoder(path):
    """Loads a masked autoencoder."""
    try:
        model = keras.saving.load_model(path, compile=False)
    except (OSError, ValueError, TypeError, KeyError, zipfile.BadZipFile) as error:
        sentence = sentence_of(error)
        raise UserError(f"--init-from {path} cannot be loaded ({sentence}): give a .keras file of a run.") from error
    if not isinstance(model, models.MAE):
        raise UserError(
            f"--init-from {path} is a {type(model).__name__}, not a masked autoencoder: give one that pretrain_mae.py "
            "wrote."
        )
    return model


def complete(options, image_shape):
    """Fills in the sizes that were left out, and refuses those of the other model."""
    side = max(image_shape[:2])
    if options.model == "vit":
        _refuse(options, RESNET_OPTIONS, "the ViT")
        names, sizes = ("patch_size", "width", "depth", "heads", "dropout"), by_side(VIT_SIZES, side)
        cli.default(options, normalization="layer_norm", drop_path=0.0)
    else:
        _refuse(options, VIT_OPTIONS, "the ResNet")
        names, sizes = ("stem", "depths", "widths"), by_side(RESNET_SIZES, side)
        cli.default(options, normalization="batch_norm")
    cli.default(options, **dict(zip(names, sizes, strict=True)))


def _refuse(options, names, model):
    for name in names:
        if getattr(options, name) is not None:
            option = f"--{name.replace('_', '-')}"
            raise UserError(f"{option} is not an option of {model}: leave it out, or choose the other --model.")


def by_side(sizes, side):
    return next(value for limit, value in sizes.items() if limit is None or side <= limit)


def check_names(options):
    if options.model == "resnet50" and options.feed_forward != ["mlp"]:
        raise UserError(
            "--feed-forward is not an option of the ResNet, which has none: leave it out, or use --model vit."
        )
    for name in options.activation:
        check_name("--activation", name, activations)
    for name in options.feed_forward:
        check_name("--feed-forward", name, feed_forwards, hidden_dim=8)
    if options.normalization is not None:
        check_name("--normalization", options.normalization, normalizations)


def check_name(option, name, registry, **arguments):
    try:
        registry.get(name, **arguments)
    except ValueError as error:
        known = ", ".join(registry.names())
        raise UserError(f"{option} {name} is not a known name: choose from {known}.") from error


def labels(options):
    """Label -> (activation, feed-forward) of every run. The feed-forward layer is named if there are several."""
    runs = sweep.combinations({"activation": (options.activation, "{}"), "feed_forward": (options.feed_forward, "{}")})
    return {label: tuple(choice.values()) for label, choice in runs.items()}


def build_model(options, image_set, activation, feed_forward):
    """Returns a fresh model; two calls differ in nothing but the activation and feed-forward layers."""
    keras.utils.set_random_seed(options.seed)
    common = {
        "image_shape": image_set.image_shape,
        "num_classes": len(image_set.classes),
        "activation": activation,
        "normalization": options.normalization,
        "data_format": "channels_last",
        "name": options.model,  # the same variable paths in every run
    }
    with building(f"with {activation}"):
        if options.init_from is not None:
            return load_encoder(options.init_from).to_classifier(
                common["num_classes"],
                image_shape=common["image_shape"],
                dropout=options.dropout,
                attention_dropout=options.dropout,
                drop_path=options.drop_path,
                data_format="channels_last",
                name=options.model,
                dtype=None,
            )
        if options.model == "resnet50":
            return models.ResNet50(depths=options.depths, widths=options.widths, stem=options.stem, **common)
        return models.ViT(
            patch_size=options.patch_size,
            num_layers=options.depth,
            hidden_dim=options.width,
            num_heads=options.heads,
            mlp_dim=options.mlp_dim,
            feed_forward=feed_forward,
            dropout=options.dropout,
            attention_dropout=options.dropout,
            drop_path=options.drop_path,
            **common,
        )
