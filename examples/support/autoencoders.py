"""The models of pretrain_mae.py: their options, the sizes they have by default, and how they are built."""

import keras

from keras_polycom import activations, feed_forwards, models, normalizations
from support import classifiers, cli, sweep
from support.errors import building

# Largest image side -> patch, width, depth, heads; the same three of the decoder.
SIZES = {
    16: (2, 64, 3, 4, 32, 2, 4),
    64: (8, 96, 4, 4, 64, 2, 4),
    128: (8, 192, 6, 6, 96, 2, 6),
    None: (16, 768, 12, 12, 512, 8, 16),
}
NAMES = ("patch_size", "width", "depth", "heads", "decoder_width", "decoder_depth", "decoder_heads")


def add_model_options(parser):
    group = parser.add_argument_group("model")
    group.add_argument(
        "--feed-forward",
        nargs="+",
        default=["swiglu", "qd_moa"],
        metavar="NAME",
        help="feed-forward layer of encoder and decoder, one run for each: mlp, swiglu, qd_moa, poly_norm_glu, ...; an "
        "unknown name lists all (default: swiglu qd_moa)",
    )
    group.add_argument(
        "--activation",
        nargs="+",
        default=["gelu"],
        metavar="NAME",
        help="activation of the feed-forward layers that leave it open, such as mlp and glu, one run for each "
        "(default: gelu)",
    )
    group.add_argument("--normalization", default="layer_norm", metavar="NAME", help="(default: %(default)s)")
    group.add_argument(
        "--mask-ratio", type=cli.rate, default=0.75, metavar="X", help="share of hidden patches (default: %(default)s)"
    )
    group.add_argument(
        "--raw-pixels",
        action="store_true",
        help="predict the pixels themselves (default: those of each patch less their mean, over their deviation)",
    )
    sizes = parser.add_argument_group("sizes")
    for option, text in (
        ("--patch-size", "side of a patch in pixels"),
        ("--width", "width of the encoder, a multiple of 4"),
        ("--depth", "number of the encoder's blocks"),
        ("--heads", "attention heads of the encoder"),
        ("--decoder-width", "width of the decoder, a multiple of 4"),
        ("--decoder-depth", "number of the decoder's blocks"),
        ("--decoder-heads", "attention heads of the decoder"),
    ):
        sizes.add_argument(option, type=cli.positive_integer, metavar="N", help=f"{text} (default: see below)")
    sizes.add_argument(
        "--mlp-dim",
        type=cli.positive_integer,
        metavar="N",
        help="hidden width of the encoder's feed-forward layers (default: 4 times the width, 8/3 of it in gated ones)",
    )
    sizes.add_argument(
        "--drop-path",
        type=cli.rate,
        default=0.0,
        metavar="X",
        help="rate of stochastic depth in the encoder's last block (default: %(default)s)",
    )


def complete(options, image_shape):
    """Fills in the sizes that were left out."""
    cli.default(options, **dict(zip(NAMES, classifiers.by_side(SIZES, max(image_shape[:2])), strict=True)))


def check_names(options):
    for name in options.activation:
        classifiers.check_name("--activation", name, activations)
    for name in options.feed_forward:
        classifiers.check_name("--feed-forward", name, feed_forwards, hidden_dim=8)
    classifiers.check_name("--normalization", options.normalization, normalizations)


def labels(options):
    """Label -> (feed-forward, activation, learning rate) of every run, named by what differs between the runs."""
    choices = {
        "feed_forward": (options.feed_forward, "{}"),
        "activation": (options.activation, "{}"),
        "learning_rate": (options.learning_rate, "lr{:g}"),
    }
    runs = sweep.combinations(choices, always_first=False)
    return {label: tuple(choice.values()) for label, choice in runs.items()}


def build_model(options, image_shape, feed_forward, activation):
    """Returns a fresh model; two calls differ in nothing but the feed-forward layers and activations."""
    keras.utils.set_random_seed(options.seed)
    with building(f"with {feed_forward}"):
        return models.MAE(
            image_shape=image_shape,
            patch_size=options.patch_size,
            num_layers=options.depth,
            hidden_dim=options.width,
            num_heads=options.heads,
            mlp_dim=options.mlp_dim,
            decoder_num_layers=options.decoder_depth,
            decoder_hidden_dim=options.decoder_width,
            decoder_num_heads=options.decoder_heads,
            mask_ratio=options.mask_ratio,
            normalize_pixels=not options.raw_pixels,
            activation=activation,
            feed_forward=feed_forward,
            normalization=options.normalization,
            drop_path=options.drop_path,
            data_format="channels_last",
            name="mae",  # the same variable paths in every run
        )
