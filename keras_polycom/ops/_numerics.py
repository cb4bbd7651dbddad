"""Precision and shape rules that every op follows."""

import keras

LARGEST_SCALE = {"float32": 2.0**126, "float64": 2.0**1022}


def as_tensor(x):
    """Returns numbers and lists as a tensor; tensors, variables and symbolic tensors as they are."""
    return x if hasattr(x, "dtype") and hasattr(x, "shape") else keras.ops.convert_to_tensor(x)


def at_least_float32(dtype):
    """The dtype to compute in: float64 for float64, else float32.

    Not `keras.backend.result_type`, whose answer never has 64 bits on JAX and PyTorch.
    """
    return "float64" if keras.backend.standardize_dtype(dtype) == "float64" else "float32"


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
    compute_dtype = at_least_float32(dtype)
    return keras.ops.cast(x, compute_dtype), dtype if "float" in dtype else compute_dtype


def normalize_axis(axis, rank):
    """Returns `axis` counted from the front.

    Raises:
        ValueError: `axis` is not an axis of a tensor of `rank` dimensions.
    """
    if not -rank <= axis < rank:
        raise ValueError(f"`axis` must lie in [{-rank}, {rank}) for an input of rank {rank}. Received: axis={axis}")
    return axis % rank


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


def check_count(count, name, at_least=1):
    """Raises `ValueError` unless `count`, the argument called `name`, is an integer of at least `at_least`."""
    if isinstance(count, bool) or not isinstance(count, int) or count < at_least:
        raise ValueError(f"`{name}` must be an integer of at least {at_least}. Received: {name}={count!r}")
    return count


def scale_into_range(largest, floor):
    """The scale `s` by which a row or block whose largest magnitude is `largest` is divided before powers are taken.

    `s = max(largest, floor)`, and 1 for zeros where `floor` is 0; at most a quarter of the largest number, the last
    whose reciprocal is not denormal: XLA divides by multiplying with the reciprocal, and flushes denormals to zero.
    What has been divided is then at most 4.
    """
    if floor == 0:
        largest = keras.ops.where(largest > 0, largest, 1.0)
    # clip: keras.ops.maximum turns float64 into float32 on torch
    return keras.ops.clip(largest, floor, LARGEST_SCALE[keras.backend.standardize_dtype(largest.dtype)])


def inverse_root(mean_square, epsilon, positive):
    """`1 / sqrt(mean_square + epsilon)`; with `positive` false, for epsilon 0: 0 for 0, with zero derivatives."""
    if positive:
        return 1 / keras.ops.sqrt(mean_square + epsilon)
    zero = mean_square == 0
    return keras.ops.where(zero, 0.0, 1 / keras.ops.sqrt(keras.ops.where(zero, 1.0, mean_square)))


def mean(x, axis):
    """Mean over one axis, which stays as an axis of size 1. Not `keras.ops.mean`: float32 inside on JAX and PyTorch."""
    count = x.shape[axis]
    if count is None:  # known at run time only
        count = keras.ops.shape(x)[axis]
        count = 1 if count is None else keras.ops.cast(count, x.dtype)  # None: x is symbolic, without values
    return keras.ops.sum(x, axis=axis, keepdims=True) / count
