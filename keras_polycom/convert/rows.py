"""Rows of the tables of names: a tensor of PyTorch, the weight of ours it becomes, and how."""

from typing import NamedTuple

from keras_polycom.convert import transforms


class Row(NamedTuple):
    """One line of a table of names.

    Attributes:
        tensor: string, the name in the state dict.
        weight: string, the path of our weight: the layer's name, then the weight's path inside the layer.
        transform: how the one becomes the other.
    """

    tensor: str
    weight: str
    transform: object = transforms.SAME


def linear(module, layer):
    """`torch.nn.Linear` into `keras.layers.Dense`."""
    return [Row(f"{module}.weight", f"{layer}/kernel", transforms.LINEAR), Row(f"{module}.bias", f"{layer}/bias")]


def convolution(module, layer, bias=True):
    """`torch.nn.Conv2d` into `keras.layers.Conv2D`."""
    rows = [Row(f"{module}.weight", f"{layer}/kernel", transforms.CONVOLUTION)]
    return [*rows, Row(f"{module}.bias", f"{layer}/bias")] if bias else rows


def norm(module, layer):
    """`torch.nn.LayerNorm` into `keras.layers.LayerNormalization`."""
    return [Row(f"{module}.weight", f"{layer}/gamma"), Row(f"{module}.bias", f"{layer}/beta")]


def batch_norm(module, layer):
    """`torch.nn.BatchNorm2d` into `keras.layers.BatchNormalization`, statistics included."""
    return [
        *norm(module, layer),
        Row(f"{module}.running_mean", f"{layer}/moving_mean"),
        Row(f"{module}.running_var", f"{layer}/moving_variance"),
    ]


def attention(fused_weight, fused_bias, projection, layer):
    """Self-attention with one fused projection to queries, keys and values into `keras.layers.MultiHeadAttention`."""
    rows = []
    for part, name in enumerate(("query", "key", "value")):
        rows.append(Row(fused_weight, f"{layer}/{name}/kernel", transforms.attention_kernel(part)))
        rows.append(Row(fused_bias, f"{layer}/{name}/bias", transforms.attention_bias(part)))
    rows.append(Row(f"{projection}.weight", f"{layer}/attention_output/kernel", transforms.ATTENTION_OUTPUT))
    rows.append(Row(f"{projection}.bias", f"{layer}/attention_output/bias"))
    return rows
