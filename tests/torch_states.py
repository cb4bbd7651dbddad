"""State dicts of PyTorch implementations, for the tests of the conversion.

Those under tests/reference/ are of the real implementations with random weights, `NAME.npz` holding inputs (channels
first) and outputs. The others are made here, of names and shapes alone.
"""

import functools

import numpy as np
import pytest
from reference_values import FOLDER
from safetensors.numpy import load_file


@functools.cache
def _reference(name):
    with np.load(FOLDER / f"{name}.npz") as case:
        return load_file(FOLDER / f"{name}.safetensors"), dict(case)


def reference(name):
    """The state dict and the inputs and outputs of a reference, both as dicts that may be changed."""
    state, case = _reference(name)
    return dict(state), dict(case)


def channels_last(images):
    return images.transpose(0, 2, 3, 1)


def as_torchvision_vit(state, mlp=("0", "3")):
    """timm's state dict of a vision transformer under torchvision's names."""
    fixed = {"cls_token": "class_token", "pos_embed": "encoder.pos_embedding"}
    modules = {"patch_embed.proj": "conv_proj", "norm": "encoder.ln", "head": "heads.head"}
    inside = {
        "norm1.": "ln_1.",
        "norm2.": "ln_2.",
        "attn.qkv.": "self_attention.in_proj_",
        "attn.proj.": "self_attention.out_proj.",
        "mlp.fc1.": f"mlp.{mlp[0]}.",
        "mlp.fc2.": f"mlp.{mlp[1]}.",
    }

    def renamed(name):
        if name in fixed:
            return fixed[name]
        if not name.startswith("blocks."):
            module, _, kind = name.rpartition(".")
            return f"{modules[module]}.{kind}"
        _, index, rest = name.split(".", 2)
        old = next(beginning for beginning in inside if rest.startswith(beginning))
        return f"encoder.layers.encoder_layer_{index}.{inside[old]}{rest[len(old) :]}"

    return {renamed(name): array for name, array in state.items()}


def vit_forward(state, images, heads, pool=None):
    """timm's vision transformer in NumPy, float64, from its state dict; without an `fc_norm` the tokens after `norm`.

    Returns:
        The last tokens, or the logits for `pool="mean"` (the mean of the patches, then `fc_norm`, then `head`); and
        the tokens behind every block.
    """
    state = {name: array.astype("float64") for name, array in state.items()}

    def linear(name, x):
        return x @ state[f"{name}.weight"].T + state.get(f"{name}.bias", 0.0)

    def norm(name, x):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
        return x * state[f"{name}.weight"] + state[f"{name}.bias"]

    def attention(name, x):
        batch, tokens, width = x.shape
        fused = linear(f"{name}.qkv", x).reshape(batch, tokens, 3, heads, width // heads)
        query, key, value = fused.transpose(2, 0, 3, 1, 4)
        scores = np.exp(query @ key.swapaxes(-1, -2) / np.sqrt(width // heads))
        mixed = scores / scores.sum(-1, keepdims=True) @ value
        return linear(f"{name}.proj", mixed.swapaxes(1, 2).reshape(batch, tokens, width))

    kernel = state["patch_embed.proj.weight"]
    batch, channels, height, width = images.shape
    rows, columns = height // kernel.shape[2], width // kernel.shape[3]
    patches = images.reshape(batch, channels, rows, kernel.shape[2], columns, kernel.shape[3])
    x = np.einsum("bcihjw,ochw->bijo", patches, kernel).reshape(batch, rows * columns, -1)
    x = x + state["patch_embed.proj.bias"]
    if "cls_token" in state:
        x = np.concatenate([np.broadcast_to(state["cls_token"], (batch, 1, x.shape[-1])), x], axis=1)
    x = x + state["pos_embed"]
    behind = []
    for index in range(sum(name.endswith("norm1.weight") for name in state)):
        block = f"blocks.{index}"
        x = x + attention(f"{block}.attn", norm(f"{block}.norm1", x))
        x = x + linear(f"{block}.mlp.fc2", gelu(linear(f"{block}.mlp.fc1", norm(f"{block}.norm2", x))))
        behind.append(x)
    if pool == "mean":
        return linear("head", norm("fc_norm", x[:, int("cls_token" in state) :].mean(1))), behind
    return norm("norm", x), behind


def gelu(x):
    from math import erf, sqrt

    return x * 0.5 * (1 + np.vectorize(erf)(x / sqrt(2)))


def resnet_shapes(depths, widths, stem=64, classes=None):
    """Names and shapes of a bottleneck ResNet's state dict, from the definition in torchvision."""
    shapes = {"conv1.weight": (stem, 3, 7, 7)}

    def batch_norm(name, channels):
        shapes.update({f"{name}.{kind}": (channels,) for kind in ("weight", "bias", "running_mean", "running_var")})
        shapes[f"{name}.num_batches_tracked"] = ()

    batch_norm("bn1", stem)
    channels = stem
    for stage, (depth, width) in enumerate(zip(depths, widths, strict=True), 1):
        for block in range(depth):
            name = f"layer{stage}.{block}"
            sizes = [(width, channels, 1), (width, width, 3), (4 * width, width, 1)]
            for part, (filters, inputs, side) in enumerate(sizes, 1):
                shapes[f"{name}.conv{part}.weight"] = (filters, inputs, side, side)
                batch_norm(f"{name}.bn{part}", filters)
            if block == 0:
                shapes[f"{name}.downsample.0.weight"] = (4 * width, channels, 1, 1)
                batch_norm(f"{name}.downsample.1", 4 * width)
            channels = 4 * width
    if classes:
        shapes.update({"fc.weight": (classes, channels), "fc.bias": (classes,)})
    return shapes


def refused(call, *lines, model=None):
    """The call raises one ValueError with all these lines, and leaves the model as it was."""
    before = [] if model is None else model.get_weights()
    with pytest.raises(ValueError) as error:
        call()
    for line in lines:
        assert line in str(error.value), str(error.value)
    for old, new in zip(before, [] if model is None else model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    return str(error.value)
