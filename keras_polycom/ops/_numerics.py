"""Precision and shape rules that every op follows."""

import keras


def as_tensor(x):
    """Returns numbers and lists as a tensor; tensors, variables and symbolic tensors as they are."""
    return x if hasattr(x, "dtype") and hasattr(x, "shape") else keras.ops.convert_to_tensor(x)


def raise_precision(x):
    """Returns `x` as a float tensor of at least float32, and the dtype the result is lowered to.

    float16 and bfloat16 are raised to float32 and lowered again; integers and booleans become float32; float64 stays.

    Raises:
        TypeError: `x` is complex.
    """
    x = as_tensor(x)
    dtype = keras.backend.standardize_dtype(x.dtype)
    if "complex" in dtype:
        raise TypeError(f"Expected a real tensor. Received: dtype={dtype}")
    compute_dtype = keras.backend.result_type(dtype, "float32")
    return keras.ops.cast(x, compute_dtype), dtype if "float" in dtype else compute_dtype


def normalize_axis(axis, rank):
    """Returns `axis` counted from the front.

    Raises:
        ValueError: `axis` is not an axis of a tensor of `rank` dimensions.
    """
    if not -rank <= axis < rank:
        raise ValueError(f"`axis` must lie in [{-rank}, {rank}) for an input of rank {rank}. Received: axis={axis}")
    return axis % rank


def check_order(order):
    """Raises `ValueError` unless `order` is an integer of at least 1."""
    if isinstance(order, bool) or not isinstance(order, int) or order < 1:
        raise ValueError(f"`order` must be an integer of at least 1. Received: order={order!r}")
    return order


def check_epsilon(epsilon):
    """Raises `ValueError` unless `epsilon` is a finite number of at least 0."""
    if isinstance(epsilon, bool) or not isinstance(epsilon, (int, float)) or not 0 <= epsilon < float("inf"):
        raise ValueError(f"`epsilon` must be a finite number of at least 0. Received: epsilon={epsilon!r}")
    return epsilon


def check_axis(axis):
    """Raises `ValueError` unless `axis` is an integer."""
    if isinstance(axis, bool) or not isinstance(axis, int):
        raise ValueError(f"`axis` must be an integer. Received: axis={axis!r}")
    return axis
