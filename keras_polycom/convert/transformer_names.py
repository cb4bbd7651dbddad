"""The names of vision transformers: timm's, which the published MAE has too, and torchvision's."""

from keras_polycom.convert import rows
from keras_polycom.convert.positions import LearnedPositions

# What a state dict must have to be taken for one of these, and the module of its head.
TIMM = "patch_embed.proj.weight"
TORCHVISION = "conv_proj.weight"
HEADS = {TIMM: "head", TORCHVISION: "heads.head"}


def naming(state):
    """Which of the two a state dict follows: `TIMM` or `TORCHVISION`.

    Raises:
        ValueError: neither.
    """
    for name in (TIMM, TORCHVISION):
        if name in state:
            return name
    raise ValueError(
        f"Neither {TIMM!r} (timm, MAE) nor {TORCHVISION!r} (torchvision) is in the state dict. If its names begin with "
        f"something else, take that off: read_state_dict(source, prefix=...). Its names: {', '.join(state)}"
    )


def block_count(state, prefix="blocks"):
    """The number of transformer blocks in a state dict, under the names of timm or torchvision."""
    beginnings = (f"{prefix}.", "encoder.layers.encoder_layer_")
    numbers = {name[len(b) :].split(".")[0] for name in state for b in beginnings if name.startswith(b)}
    return len(numbers)


def timm_block(module, layer):
    """The rows of one block: `blocks.0` into `block_0_...`."""
    return [
        *rows.norm(f"{module}.norm1", f"{layer}_attention_norm"),
        *rows.attention(
            f"{module}.attn.qkv.weight", f"{module}.attn.qkv.bias", f"{module}.attn.proj", f"{layer}_attention"
        ),
        *rows.norm(f"{module}.norm2", f"{layer}_feed_forward_norm"),
        *rows.linear(f"{module}.mlp.fc1", f"{layer}_feed_forward/up_proj"),
        *rows.linear(f"{module}.mlp.fc2", f"{layer}_feed_forward/down_proj"),
    ]


def torchvision_block(module, layer, state):
    """The rows of one block: `encoder.layers.encoder_layer_0` into `block_0_...`."""
    fused = f"{module}.self_attention.in_proj"
    # The published files have the older names of the two linear layers.
    first, second = ("linear_1", "linear_2") if f"{module}.mlp.linear_1.weight" in state else ("0", "3")
    return [
        *rows.norm(f"{module}.ln_1", f"{layer}_attention_norm"),
        *rows.attention(f"{fused}_weight", f"{fused}_bias", f"{module}.self_attention.out_proj", f"{layer}_attention"),
        *rows.norm(f"{module}.ln_2", f"{layer}_feed_forward_norm"),
        *rows.linear(f"{module}.mlp.{first}", f"{layer}_feed_forward/up_proj"),
        *rows.linear(f"{module}.mlp.{second}", f"{layer}_feed_forward/down_proj"),
    ]


def vit_rows(state, blocks, grid, class_token, pools_first=False, old_grid=None):
    """The whole table of names of a vision transformer.

    Args:
        state: dict of arrays by name, which tells whose names they are.
        blocks: integer, of the model.
        grid: pair of integers, of the model's patches.
        class_token: bool. Whether the model has one.
        pools_first: bool. Whether its final norm follows the pooling.
        old_grid: pair of integers or `None`, the grid of the state dict's position table.
    """
    positions = LearnedPositions(grid, int(class_token), old_grid)
    if naming(state) == TIMM:
        table = [
            *rows.convolution("patch_embed.proj", "patch_embedding"),
            rows.Row("cls_token", "class_token/token"),
            rows.Row("pos_embed", "position_embedding/table", positions),
            *rows.norm("fc_norm" if pools_first else "norm", "final_norm"),
            *rows.linear("head", "head"),
        ]
        return table + [row for i in range(blocks) for row in timm_block(f"blocks.{i}", f"block_{i}")]
    table = [
        *rows.convolution("conv_proj", "patch_embedding"),
        rows.Row("class_token", "class_token/token"),
        rows.Row("encoder.pos_embedding", "position_embedding/table", positions),
        *rows.norm("encoder.ln", "final_norm"),
        *rows.linear("heads.head", "head"),
    ]
    for index in range(blocks):
        table += torchvision_block(f"encoder.layers.encoder_layer_{index}", f"block_{index}", state)
    return table


def with_attention_biases(state, model_has_them):
    """The state dict with zeros for the biases of queries, keys and values, if it has none of them at all.

    timm's `qkv_bias=False` leaves the projection's bias; a `MultiHeadAttention` has biases everywhere or nowhere.

    Returns:
        The state dict and a tuple of notes.
    """
    fused = [name for name in state if name.endswith("attn.qkv.weight")]
    if not model_has_them or not fused or any(name.endswith("attn.qkv.bias") for name in state):
        return state, ()
    zeros = {name.replace(".weight", ".bias"): 0 * state[name][:, 0] for name in fused}
    note = "The state dict has no biases of queries, keys and values (qkv_bias=False): the model's are zero."
    return {**state, **zeros}, (note,)
