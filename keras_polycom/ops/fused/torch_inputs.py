"""Tensors and weights as every faster version on PyTorch takes them."""

import keras
import numpy as np
import torch


def as_tensor(x):
    return keras.ops.convert_to_tensor(x)


def as_weight(value, x):
    """A weight in the dtype to compute in, on the device of `x`."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    if isinstance(value, np.ndarray):
        return torch.as_tensor(value, dtype=dtype, device=x.device)
    return keras.ops.convert_to_tensor(value).to(dtype)


def as_index(group_index, groups):
    """Numbers of groups; those outside become the nearest."""
    return keras.ops.convert_to_tensor(group_index).long().clamp(0, groups - 1)
