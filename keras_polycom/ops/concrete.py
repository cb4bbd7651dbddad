"""Checks on values, made only where values can be seen without leaving a compiled function."""

import keras
import numpy as np


def _visible(x):
    """Returns `x` as a NumPy array, or `None` inside a trace or where reading would stall an accelerator."""
    if isinstance(x, (np.ndarray, int, list, tuple)):
        return np.asarray(x)
    if keras.utils.is_keras_tensor(x):
        return None
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        seen = not isinstance(x, jax.core.Tracer) and all(device.platform == "cpu" for device in x.devices())
    elif backend == "torch":
        import torch

        plain = type(x) in (torch.Tensor, torch.nn.Parameter)  # not a fake tensor
        seen = plain and x.device.type == "cpu" and not torch.compiler.is_compiling()
    else:
        seen = hasattr(x, "numpy") and "CPU" in (getattr(x, "device", "") or "")
    try:
        return keras.ops.convert_to_numpy(x) if seen else None
    except RuntimeError:  # torch refuses to show the values of a vmapped tensor
        return None


def check_index_range(index, size, name):
    """Raises `ValueError` if `index` can be seen and holds a value outside `[0, size)`."""
    values = _visible(index)
    if values is None or values.size == 0 or not np.issubdtype(values.dtype, np.integer):
        return
    low, high = int(values.min()), int(values.max())
    if low < 0 or high >= size:
        wrong = low if low < 0 else high
        raise ValueError(f"`{name}` must lie in [0, {size}). Received: {wrong} among {values.size} values")
