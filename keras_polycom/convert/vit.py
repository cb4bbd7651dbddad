"""Vision transformers of timm and torchvision, and the encoder of the published MAE, into `models.ViT`."""

import keras

from keras_polycom.convert.positions import square_grid
from keras_polycom.convert.state_dicts import read_state_dict
from keras_polycom.convert.transfer import beginnings, check_layers, epsilon_problems, named_weights, transfer
from keras_polycom.convert.transformer_names import (
    HEADS,
    TIMM,
    block_count,
    naming,
    vit_rows,
    with_attention_biases,
)
from keras_polycom.models.configured import check_data_format, image_sizes
from keras_polycom.models.vit import VARIANTS, ViT, patch_grid

EPSILON = 1e-6  # of the layer norms, in timm, torchvision and MAE
TORCHVISION_HIDDEN = tuple(f"encoder.layers.encoder_layer_0.mlp.{name}.weight" for name in ("0", "linear_1"))
PUBLISHED_HEADS = {width: heads for _, _, width, heads in VARIANTS.values()}


def load_vit(model, state, *, head=True, grid=None, epsilon=EPSILON, ignore=()):
    """Loads a vision transformer of timm or torchvision, or the encoder of a published MAE, into a `ViT`.

    | timm, MAE | torchvision | ours |
    |---|---|---|
    | `patch_embed.proj` | `conv_proj` | `patch_embedding` |
    | `cls_token` | `class_token` | `class_token/token` |
    | `pos_embed` | `encoder.pos_embedding` | `position_embedding/table`, resized if need be |
    | `norm`; `fc_norm` for `pooling="mean_before_norm"` | `encoder.ln` | `final_norm` |
    | `head` | `heads.head` | `head` |
    | in `blocks.0.` | in `encoder.layers.encoder_layer_0.` | behind `block_0_` |
    | `norm1`, `norm2` | `ln_1`, `ln_2` | `attention_norm`, `feed_forward_norm` |
    | `attn.qkv.weight`, `bias` | `self_attention.in_proj_weight`, `_bias` | `attention/query`, `key`, `value` |
    | `attn.proj` | `self_attention.out_proj` | `attention/attention_output` |
    | `mlp.fc1`, `mlp.fc2` | `mlp.0`, `mlp.3` or `mlp.linear_1`, `linear_2` | `feed_forward/up_proj`, `down_proj` |

    Everything is compared before anything is written: a call that fails leaves the model as it was. Weights of learned
    activations, which no such state dict has, keep their values: a model with `activation="poly_norm"` can start from
    one trained with GELU. `load_weights(skip_mismatch=True)` is no substitute: it silently leaves a position table of
    another size, or a head of another number of classes, at random.

    A position table for another grid of patches is resized (`resize_position_table`), with a warning that names both.
    Three things no state dict tells, and the model must have right: the number of heads, the activation, and for
    `norm` whether the class token or the mean of the patches is classified.

    Args:
        model: `keras_polycom.models.ViT`, or a model with its layers.
        state: mapping or path, as for `read_state_dict`.
        head: bool. `False` leaves the classifier out, on both sides: the model's keeps its values, and so does the
            final norm of `pooling="mean_before_norm"`. Defaults to `True`.
        grid: pair of integers (rows, columns) of the position table's patches. Defaults to the model's grid if the
            numbers are equal, else to a square.
        epsilon: float. That of the layer norms the weights were trained with; the model's must have the same. Defaults
            to `1e-6`, as in timm's, torchvision's and MAE's vision transformers.
        ignore: names, or beginnings of names, of tensors to leave out, such as `["decoder_", "mask_token"]` of a whole
            MAE. Defaults to none.

    Returns:
        A `Summary` of what was loaded, kept and left out.

    Raises:
        ValueError: names of neither timm nor torchvision; or any tensor missing, unused or misshapen, any weight
            without a tensor, any layer norm with another epsilon: all of them in one message. Register tokens,
            distillation tokens, layer scale, and position tables without a row for the class token are not supported.
        ImportError, FileNotFoundError, TypeError: as `read_state_dict`.

    Example:

    >>> import keras_polycom
    >>> from keras_polycom import convert
    >>> sizes = {"patch_size": 4, "num_layers": 1, "hidden_dim": 6, "num_heads": 2, "num_classes": 5}
    >>> model = keras_polycom.models.ViT(image_shape=(8, 8, 3), **sizes)
    >>> convert.load_vit(model, {"patch_embed.proj.weight": model.get_weights()[0]})
    Traceback (most recent call last):
        ...
    ValueError: The state dict does not fit 'vi...' (19 missing, 0 unused, 1 misshapen). Nothing was written...

    Source of the names: timm, `vision_transformer.py`; torchvision, `vision_transformer.py`; MAE, `models_vit.py`.
    """
    state = read_state_dict(state)
    check_layers(model, "ViT", "patch_embedding", "position_embedding", "final_norm")
    weights, activations = named_weights(model)
    pools_first = len(model.get_layer("final_norm").output.shape) == 2
    new_grid = tuple(model.get_layer("patch_embedding").output.shape[1:3])
    blocks = sum(path.endswith("_attention/query/kernel") for path in weights)
    has_biases = any(path.endswith("_attention/query/bias") for path in weights)
    state, notes = with_attention_biases(state, has_biases)
    rows = vit_rows(state, blocks, new_grid, "class_token/token" in weights, pools_first, grid)

    kept, left_out = list(activations), beginnings(ignore)
    if not head:
        behind = ("head/", "final_norm/") if pools_first else ("head/",)
        kept += [path for path in weights if path.startswith(behind)]
        rows = [row for row in rows if not row.weight.startswith(behind)]
        weights = {path: variable for path, variable in weights.items() if not path.startswith(behind)}
        left_out += [f"{HEADS[naming(state)]}.", "fc_norm."]
    summary = transfer(
        model.name,
        weights,
        rows,
        state,
        kept=kept,
        left_out=left_out,
        problems=epsilon_problems(model, keras.layers.LayerNormalization, epsilon),
        hints=_hints(state, head, pools_first),
    )
    return summary._replace(notes=(*notes, *summary.notes))


def make_vit(state, *, num_heads=None, image_shape=None, head=True, grid=None, epsilon=EPSILON, ignore=(), **arguments):
    """Builds the `ViT` a state dict of timm, torchvision or MAE belongs to, and loads it: see `load_vit`.

    Read off the state dict: patch size, channels, width, number of blocks, hidden width of the feed-forward layers,
    number of classes, whether there is a class token, and `pooling="mean_before_norm"` if there is an `fc_norm`.

    Args:
        state: mapping or path, as for `read_state_dict`.
        num_heads: integer, which a fused projection does not tell. `None` for that of the published model of that
            width: 192: 3, 384: 6, 768: 12, 1024: 16, 1280: 16; needed for every other width. Defaults to `None`.
        image_shape: triple of integers in the order of the data format. Defaults to the square the position table is
            for.
        head: bool. `False` leaves the state dict's classifier out; with `num_classes=...` the model then has a fresh
            one. Defaults to `True`.
        grid, epsilon, ignore: as for `load_vit`.
        **arguments: the arguments of `ViT` that are not read off: `activation`, `pooling`, `dropout`, `drop_path`,
            `data_format`, `dtype`, `name`, ...

    Returns:
        A `ViT`.

    Raises:
        ValueError: as `load_vit`; an argument that is read off; no `num_heads` for an unpublished width; no
            `image_shape` for a position table that is not square.

    Example:

    >>> import numpy as np
    >>> from keras_polycom import convert
    >>> shapes = {
    ...     "cls_token": (1, 1, 6), "pos_embed": (1, 5, 6), "patch_embed.proj.weight": (6, 3, 4, 4),
    ...     "patch_embed.proj.bias": 6, "blocks.0.norm1.weight": 6, "blocks.0.norm1.bias": 6,
    ...     "blocks.0.attn.qkv.weight": (18, 6), "blocks.0.attn.qkv.bias": 18, "blocks.0.attn.proj.weight": (6, 6),
    ...     "blocks.0.attn.proj.bias": 6, "blocks.0.norm2.weight": 6, "blocks.0.norm2.bias": 6,
    ...     "blocks.0.mlp.fc1.weight": (9, 6), "blocks.0.mlp.fc1.bias": 9, "blocks.0.mlp.fc2.weight": (6, 9),
    ...     "blocks.0.mlp.fc2.bias": 6, "norm.weight": 6, "norm.bias": 6, "head.weight": (10, 6), "head.bias": 10,
    ... }
    >>> state = {name: np.zeros(shape, "float32") for name, shape in shapes.items()}
    >>> model = convert.make_vit(state, num_heads=2, activation="poly_norm")
    >>> model.image_shape, model.num_layers, model.mlp_dim, model.num_classes
    ((8, 8, 3), 1, 9, 10)
    """
    state = read_state_dict(state)
    data_format = check_data_format(arguments.get("data_format"))
    sizes = vit_sizes(state, image_shape, grid, data_format)
    own = "cls_token" in state or "class_token" in state
    sizes["class_token"] = own
    sizes["qkv_bias"] = any(name.endswith(("attn.proj.bias", "out_proj.bias")) for name in state)
    sizes["num_heads"] = heads("num_heads", num_heads, sizes["hidden_dim"], PUBLISHED_HEADS)
    refuse_read_off(arguments, {"variant", *sizes})
    if head:
        classifier = state.get(f"{HEADS[naming(state)]}.weight")
        arguments.setdefault("num_classes", None if classifier is None else len(classifier))
    else:
        arguments.setdefault("num_classes", None)
    pooling = "mean_before_norm" if "fc_norm.weight" in state else "token" if own else "mean"
    model = ViT(
        **{"pooling": pooling, "normalization": layer_norm(epsilon), **sizes, **arguments, "data_format": data_format}
    )
    load_vit(model, state, head=head, grid=grid, epsilon=epsilon, ignore=ignore)
    return model


def vit_sizes(state, image_shape, grid, data_format):
    """Image, patch size, width, depth and hidden width of a vision transformer, read off a state dict."""
    timm = naming(state) == TIMM
    kernel = state[naming(state)]
    if kernel.ndim != 4:
        raise ValueError(f"{naming(state)} must be a convolution's weight of rank 4. Received: {kernel.shape}")
    width, channels, *patch = kernel.shape
    names = ("pos_embed", "blocks.0.mlp.fc1.weight") if timm else ("encoder.pos_embedding", *TORCHVISION_HIDDEN)
    table, *hidden = (state.get(name) for name in names)
    hidden = next((weight for weight in hidden if weight is not None), None)
    if hidden is None or table is None or table.ndim != 3:
        raise ValueError(
            "The sizes of the model are read off the position table (1, tokens, width) and the first linear layer, "
            f"{', '.join(names)}. Among the names of the state dict: "
            f"{', '.join(f'{name} {state[name].shape}' for name in names if name in state) or 'none of them'}"
        )
    if image_shape is None:
        patches = table.shape[1] - ("cls_token" in state or "class_token" in state)
        rows = square_grid(patches) if grid is None else grid
        if rows is None:
            raise ValueError(
                f"The position table has {patches} rows for patches, which is no square. Give image_shape=..., and "
                "grid=(rows, columns) if the table is for images of another shape."
            )
        sides = (rows[0] * patch[0], rows[1] * patch[1])
        image_shape = (*sides, channels) if data_format == "channels_last" else (channels, *sides)
    elif image_sizes(image_shape, data_format)[2] != channels:
        raise ValueError(
            f"The weights are for images of {channels} channels. Received: image_shape={tuple(image_shape)} "
            f"({data_format})"
        )
    patch_grid(image_shape, tuple(patch), data_format)
    return {
        "image_shape": tuple(image_shape),
        "patch_size": tuple(patch),
        "num_layers": block_count(state),
        "hidden_dim": width,
        "mlp_dim": len(hidden),
    }


def heads(name, given, width, published):
    """The number of attention heads: the one given, or that of the published model of this width."""
    if given is None and width not in published:
        known = ", ".join(f"{w}: {h}" for w, h in sorted(published.items()))
        raise ValueError(
            f"`{name}` cannot be told from the weights and no published model has the width {width} (width: heads "
            f"{known}). Give {name}=..."
        )
    return published[width] if given is None else given


def layer_norm(epsilon):
    """What gives a model layer norms of that epsilon."""
    return "layer_norm" if epsilon == EPSILON else keras.layers.LayerNormalization(epsilon=epsilon)


def refuse_read_off(arguments, names):
    """Raises `ValueError` for arguments that the state dict decides."""
    given = sorted(set(arguments) & set(names))
    if given:
        raise ValueError(f"Read off the state dict, not to be given: {', '.join(given)}")


def _hints(state, head, pools_first):
    if head:
        yield r"\bhead[./]", "To leave the classifier out, on both sides: head=False."
    if "decoder_embed.weight" in state:
        yield (
            r"decoder_",
            "This is a whole masked autoencoder. make_mae(state).to_classifier(...) makes a ViT of its encoder; here, "
            "leave the decoder out: ignore=['decoder_', 'mask_token'].",
        )
    if pools_first:
        yield (
            r"Unused: norm\.",
            "The model normalizes after pooling, the state dict before (norm): use another `pooling`, or begin "
            "fine-tuning as MAE does, with head=False, ignore=['norm.'].",
        )
    else:
        yield (
            r"Unused: fc_norm\.",
            "The state dict normalizes after pooling (fc_norm): it needs a ViT with pooling='mean_before_norm'.",
        )
