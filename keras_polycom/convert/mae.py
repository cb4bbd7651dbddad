"""The published masked autoencoder into `models.MAE`."""

import keras

from keras_polycom import ops
from keras_polycom.convert import rows
from keras_polycom.convert.positions import FixedPositions
from keras_polycom.convert.state_dicts import read_state_dict
from keras_polycom.convert.transfer import beginnings, check_layers, epsilon_problems, named_weights, transfer
from keras_polycom.convert.transformer_names import TIMM, block_count, timm_block, with_attention_biases
from keras_polycom.convert.vit import EPSILON, PUBLISHED_HEADS, heads, layer_norm, refuse_read_off, vit_sizes
from keras_polycom.models.configured import check_data_format
from keras_polycom.models.mae import MAE

PUBLISHED_DECODER_HEADS = {512: 16}
NEEDED = (TIMM, "pos_embed", "decoder_embed.weight", "decoder_blocks.0.mlp.fc1.weight")


def load_mae(model, state, *, epsilon=EPSILON, ignore=()):
    """Loads a masked autoencoder of the published implementation, encoder and decoder, into a `MAE`.

    | published | ours |
    |---|---|
    | `patch_embed.proj` | `patch_embedding` |
    | `cls_token`, `mask_token` | `class_token/token`, `mask_tokens/token` |
    | `pos_embed`, without its first row, zeros | `patch_positions/table` |
    | `decoder_pos_embed` | `decoder_positions/table` |
    | `blocks.0...`, `decoder_blocks.0...` | `block_0_...`, `decoder_block_0_...`, as in `load_vit` |
    | `norm`, `decoder_norm` | `final_norm`, `decoder_norm` |
    | `decoder_embed`, `decoder_pred` | `decoder_embedding`, `decoder_prediction` |

    Everything is compared before anything is written: a call that fails leaves the model as it was. Weights of learned
    activations keep their values. The position tables are fixed, and must be the published sines and cosines for the
    model's images; for images of another size use `make_mae(state).to_classifier(image_shape=...)`, or the encoder in a
    `ViT`. Whether the loss was of normalized pixels, and the numbers of heads, no state dict tells.

    The published files for fine-tuning hold the encoder only: see `load_vit` and `make_vit`.

    Args:
        model: `keras_polycom.models.MAE`, or a model with its layers.
        state: mapping or path, as for `read_state_dict`.
        epsilon: float. That of the layer norms; the model's must have the same. Defaults to `1e-6`.
        ignore: names, or beginnings of names, of tensors to leave out. Defaults to none.

    Returns:
        A `Summary` of what was loaded, kept and left out.

    Raises:
        ValueError: any tensor missing, unused or misshapen, any weight without a tensor, any layer norm with another
            epsilon, positions of other images or learned ones: all of them in one message.
        ImportError, FileNotFoundError, TypeError: as `read_state_dict`.

    Example:

    >>> import numpy as np, keras_polycom
    >>> from keras_polycom import convert
    >>> model = keras_polycom.models.MAE(
    ...     image_shape=(8, 8, 3), patch_size=4, num_layers=1, hidden_dim=8, num_heads=2, decoder_num_layers=1,
    ...     decoder_hidden_dim=4, decoder_num_heads=2,
    ... )
    >>> convert.load_mae(model, {"cls_token": np.zeros((1, 1, 6))})
    Traceback (most recent call last):
        ...
    ValueError: The state dict does not fit 'mae...' (37 missing, 0 unused, 1 misshapen). Nothing was written...

    Reference: He et al., arXiv 2111.06377; the names are those of its published `models_mae.py`.
    """
    state = read_state_dict(state)
    check_layers(model, "MAE", "patch_embedding", "patch_positions", "class_token", "mask_tokens")
    weights, activations = named_weights(model)
    state, notes = with_attention_biases(state, any(path.endswith("_attention/query/bias") for path in weights))
    problems = epsilon_problems(model, keras.layers.LayerNormalization, epsilon)
    hints = [(r"Missing: decoder_embed", "Encoders without a decoder go into a ViT: load_vit, make_vit.")]
    summary = transfer(
        model.name,
        weights,
        _rows(model, weights),
        state,
        kept=activations,
        left_out=beginnings(ignore),
        problems=problems,
        hints=hints,
    )
    return summary._replace(notes=(*notes, *summary.notes))


def make_mae(
    state, *, num_heads=None, decoder_num_heads=None, image_shape=None, epsilon=EPSILON, ignore=(), **arguments
):
    """Builds the `MAE` a state dict of the published implementation belongs to, and loads it: see `load_mae`.

    Read off the state dict: patch size, channels, and width, depth and hidden width of encoder and decoder.

    Args:
        state: mapping or path, as for `read_state_dict`.
        num_heads: integer. `None` for that of the published model of that width (768: 12, 1024: 16, 1280: 16, ...);
            needed for every other width. Defaults to `None`.
        decoder_num_heads: integer. `None` for 16 in a decoder that is 512 wide; needed for every other width. Defaults
            to `None`.
        image_shape: triple of integers in the order of the data format. Defaults to the square the position table is
            for.
        epsilon, ignore: as for `load_mae`.
        **arguments: the arguments of `MAE` that are not read off: `normalize_pixels`, which no state dict tells,
            `activation`, `mask_ratio`, `dropout`, `data_format`, `dtype`, `name`, ...

    Returns:
        A `MAE`.

    Raises:
        ValueError: as `load_mae`; an argument that is read off; no number of heads for an unpublished width.

    Example:

    >>> import numpy as np
    >>> from keras_polycom import convert
    >>> convert.make_mae({"cls_token": np.zeros((1, 1, 768)), "pos_embed": np.zeros((1, 197, 768))})
    Traceback (most recent call last):
        ...
    ValueError: The sizes of a masked autoencoder are read off tensors that the state dict does not have: patch_embed...
    """
    state = read_state_dict(state)
    absent = [name for name in NEEDED if name not in state]
    if absent:
        raise ValueError(
            "The sizes of a masked autoencoder are read off tensors that the state dict does not have: "
            f"{', '.join(absent)}. Encoders without a decoder go into a ViT: make_vit. Its names: {', '.join(state)}"
        )
    data_format = check_data_format(arguments.get("data_format"))
    sizes = vit_sizes(state, image_shape, None, data_format)
    width = len(state["decoder_embed.weight"])
    sizes["num_heads"] = heads("num_heads", num_heads, sizes["hidden_dim"], PUBLISHED_HEADS)
    sizes["decoder_num_heads"] = heads("decoder_num_heads", decoder_num_heads, width, PUBLISHED_DECODER_HEADS)
    sizes["decoder_hidden_dim"] = width
    sizes["decoder_num_layers"] = block_count(state, "decoder_blocks")
    sizes["decoder_mlp_dim"] = len(state["decoder_blocks.0.mlp.fc1.weight"])
    sizes["qkv_bias"] = any(name.endswith("attn.proj.bias") for name in state)
    refuse_read_off(arguments, {"variant", *sizes})
    model = MAE(**{"normalization": layer_norm(epsilon), **sizes, **arguments, "data_format": data_format})
    load_mae(model, state, epsilon=epsilon, ignore=ignore)
    return model


def _rows(model, weights):
    grid = tuple(model.get_layer("patch_embedding").output.shape[1:3])
    width, decoder_width = (weights[f"{name}/token"].shape[-1] for name in ("class_token", "mask_tokens"))
    table = [
        *rows.convolution("patch_embed.proj", "patch_embedding"),
        rows.Row("cls_token", "class_token/token"),
        rows.Row("mask_token", "mask_tokens/token"),
        rows.Row("pos_embed", "patch_positions/table", _positions(grid, width, 1)),
        rows.Row("decoder_pos_embed", "decoder_positions/table", _positions(grid, decoder_width, 0)),
        *rows.norm("norm", "final_norm"),
        *rows.norm("decoder_norm", "decoder_norm"),
        *rows.linear("decoder_embed", "decoder_embedding"),
        *rows.linear("decoder_pred", "decoder_prediction"),
    ]
    for prefix, module in (("block", "blocks"), ("decoder_block", "decoder_blocks")):
        count = sum(path.startswith(f"{prefix}_") and path.endswith("_attention/query/kernel") for path in weights)
        for index in range(count):
            table += timm_block(f"{module}.{index}", f"{prefix}_{index}")
    return table


def _positions(grid, width, prefix):
    return FixedPositions(ops.sincos_position_table(grid, width, class_token=True), prefix)
