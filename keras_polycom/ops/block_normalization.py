"""Normalizing blocks of a tensor: what the parallel-layer-normalization family has in common [PLN, def. 3.2]."""

import keras
import numpy as np

from keras_polycom.ops._numerics import (
    as_tensor,
    check_axis,
    check_count,
    check_epsilon,
    inverse_root,
    normalize_axis,
    raise_precision,
    scale_into_range,
)
from keras_polycom.ops.fused import dispatch

EPSILON = 1e-5


def block_normalization(x, axes, groups, gamma=None, beta=None, axis=-1, center=True, epsilon=EPSILON, mask=None):
    """Layer normalization inside every block of a tensor that is cut into blocks along some of its axes.

    Formula, mean and var taken over the block that an element lies in:

    ```
    y = gamma (x - mean(x)) / sqrt(var(x) + epsilon) + beta         center=True
    y = gamma  x            / sqrt(mean(x^2) + epsilon) + beta      center=False
    ```

    Each axis in `axes` is cut into consecutive parts whose sizes differ by at most one, the larger ones first: 13 into
    5 parts is 3, 3, 3, 2, 2. A block is one part of every such axis, at one position of all other axes.

    Every finite `x` has a finite, accurate `y`: blocks are shifted and scaled into range before the variance, which is
    that of the centred values, is taken. With `epsilon=0` a block of equal values (without centring: of zeros) gives
    exactly `beta` and zero gradients; so does a block of one element, if it is centred.

    Args:
        x: tensor of any shape with at least one dimension. float16 and bfloat16 are raised to float32 inside;
            integers become float32.
        axes: sequence of integers, the axes to cut.
        groups: sequence of integers, the number of parts of each of them; 1 normalizes over the whole axis. Where the
            size of an axis is only known when a compiled TensorFlow function runs, and turns out smaller than the
            number of parts, every position is a part of its own.
        gamma: tensor (channels,), or `None` for 1. Defaults to `None`.
        beta: tensor (channels,), or `None` for 0. Defaults to `None`.
        axis: integer. The axis of the channels of `gamma` and `beta`. Defaults to `-1`.
        center: bool. Whether the mean is subtracted. Defaults to `True`.
        epsilon: float, added to the variance or mean square. Defaults to `1e-5`.
        mask: boolean tensor with the shape of the leading axes of `x`, or `None`. Masked elements enter no mean, and
            come out as `beta`. Defaults to `None`.

    Returns:
        Tensor of the shape and float dtype of `x`.

    Raises:
        ValueError: an axis that `x` does not have or that is named twice, more parts than elements, a `gamma` or `beta`
            that does not fit the channels, a mask that does not fit, or a negative `epsilon`.
        TypeError: `x` is complex.

    Example:

    >>> from keras_polycom import ops
    >>> y = ops.block_normalization([[1.0, 3.0, 5.0, 4.0, 2.0]], axes=[-1], groups=[2], epsilon=0.0)
    >>> [round(float(v), 4) for v in y[0]]
    [-1.2247, 0.0, 1.2247, 1.0, -1.0]

    Reference: Ni et al., Parallel Layer Normalization for Universal Approximation, arXiv 2505.13142, definition 3.2.
    """
    x, gamma, beta, mask = (None if tensor is None else as_tensor(tensor) for tensor in (x, gamma, beta, mask))
    rank = len(x.shape)
    axis = normalize_axis(check_axis(axis), rank)
    axes = tuple(normalize_axis(check_axis(a), rank) for a in axes)
    groups = tuple(check_count(count, "groups") for count in groups)
    _check_partition(tuple(x.shape), axes, groups)
    _check_affine(gamma, beta, x.shape[axis])
    _check_mask(mask, tuple(x.shape))
    arguments = {"axes": axes, "groups": groups, "axis": axis, "center": center, "epsilon": check_epsilon(epsilon)}
    if any(keras.utils.is_keras_tensor(tensor) for tensor in (x, gamma, beta, mask)):
        return BlockNormalization(**arguments).symbolic_call(x, gamma, beta, mask)
    return dispatch(_block_normalization, x, gamma=gamma, beta=beta, mask=mask, **arguments)


@keras.saving.register_keras_serializable(package="keras_polycom")
class BlockNormalization(keras.Operation):
    """The node that `block_normalization` is in a functional model: sizes that are `None` stay open until it runs."""

    def __init__(self, axes, groups, axis, center, epsilon):
        super().__init__()
        self.arguments = {
            "axes": list(axes),
            "groups": list(groups),
            "axis": axis,
            "center": center,
            "epsilon": epsilon,
        }

    def call(self, x, gamma=None, beta=None, mask=None):
        return block_normalization(x, gamma=gamma, beta=beta, mask=mask, **self.arguments)

    def compute_output_spec(self, x, gamma=None, beta=None, mask=None):
        dtype = keras.backend.standardize_dtype(x.dtype)
        return keras.KerasTensor(x.shape, dtype=dtype if "float" in dtype else "float32")

    def get_config(self):
        return dict(self.arguments)


def _block_normalization(x, axes, groups, gamma=None, beta=None, axis=-1, center=True, epsilon=EPSILON, mask=None):
    x, dtype = raise_precision(x)
    if 0 not in tuple(x.shape):  # the maximum of nothing is not defined; there is nothing to compute either
        if mask is not None:
            mask = _expand(keras.ops.cast(mask, "bool"), len(x.shape), axis=0)
            mask = keras.ops.logical_and(mask, keras.ops.ones_like(x, dtype="bool"))
        x = _normalize_parts(x, mask, list(zip(axes, groups, strict=True)), [], center, epsilon)
    for tensor, combine in ((gamma, keras.ops.multiply), (beta, keras.ops.add)):
        if tensor is not None:
            x = combine(x, _expand(keras.ops.cast(tensor, x.dtype), len(x.shape), axis))
    return keras.ops.cast(x, dtype)


def _normalize_parts(x, mask, cuts, equal, center, epsilon):
    """Cuts unequal partitions into stretches of equal ones and normalizes those.

    `cuts` holds (axis, number of parts) still to be done, `equal` holds (axis, number, size) of those that are.
    """
    if not cuts:
        return _normalize_equal_parts(x, mask, equal, center, epsilon)
    (axis, count), *rest = cuts
    done = []
    for start, number, size in _stretches(keras.ops.shape(x)[axis], count):
        whole = (slice(None),) * axis
        part = (*whole, slice(start, start + number * size))
        part_mask = None if mask is None else mask[part]
        done.append(_normalize_parts(x[part], part_mask, rest, [*equal, (axis, number, size)], center, epsilon))
    return done[0] if len(done) == 1 else keras.ops.concatenate(done, axis=axis)


def _stretches(length, count):
    """(start, number of parts, size of each) such that `count` parts fill `length`, the larger ones first."""
    if count == 1 or (isinstance(length, int) and length % count == 0):
        return [(0, count, length // count)]
    size, larger = length // count, length % count
    return [(0, larger, size + 1), (larger * (size + 1), count - larger, size)]


def _normalize_equal_parts(x, mask, parts, center, epsilon):
    """Splits each cut axis in two, (number of parts, size of each), and normalizes over the sizes."""
    shape = keras.ops.shape(x)
    sizes = {axis: (number, size) for axis, number, size in parts}
    split, within = [], []
    for axis, length in enumerate(shape):
        split.extend(sizes.get(axis, (length,)))
        if axis in sizes:
            within.append(len(split) - 1)
    x = keras.ops.reshape(x, split)
    mask = None if mask is None else keras.ops.reshape(mask, split)
    if len(parts) < 3:
        return keras.ops.reshape(_normalize(x, mask, tuple(within), center, epsilon), shape)
    # TensorFlow does not broadcast over so many stretches of axes in turn: the blocks' own axes go last, and back.
    order = [axis for axis in range(len(split)) if axis not in within] + within
    x = keras.ops.transpose(x, order)
    mask = None if mask is None else keras.ops.transpose(mask, order)
    x = _normalize(x, mask, tuple(range(-len(within), 0)), center, epsilon)
    return keras.ops.reshape(keras.ops.transpose(x, [order.index(axis) for axis in range(len(split))]), shape)


def _normalize(x, mask, axes, center, epsilon):
    """`(x - mean) / sqrt(var + epsilon)` over `axes`, or without the mean.

    With y = (x - c) / s for any c and s > 0 the result is the same for y and epsilon / s^2. The shift c, the middle of
    the range, leaves values that are exact next to a large mean; the scale s = max(max|x - c|, sqrt(epsilon)), short of
    the largest numbers, keeps squares from overflowing. Neither changes the result, so both are constants in the
    derivative, of every order.
    """
    if mask is not None:
        x = keras.ops.where(mask, x, 0.0)
    shift, largest = _range(keras.ops.stop_gradient(x), mask, axes, center)
    floor = epsilon**0.5
    scale = scale_into_range(largest, floor)
    y = (x - shift if center else x) / scale
    if center:
        y = y - _mean(y, mask, axes)
    variance = _mean(keras.ops.square(y), mask, axes)
    y = y * inverse_root(variance, keras.ops.square(floor / scale), epsilon > 0)
    return y if mask is None else keras.ops.where(mask, y, 0.0)


def _range(x, mask, axes, center):
    """The middle of the range of `x` and the largest distance from it; without centring from 0.

    keras.ops.max and min break the graph of torch.compile, amax and amin do not.
    """
    if not center:
        return 0.0, keras.ops.amax(keras.ops.abs(x), axis=axes, keepdims=True)
    high = low = x
    if mask is not None:  # a block of masked elements only gets the middle 0 and a negative distance
        largest = float(np.finfo(keras.backend.standardize_dtype(x.dtype)).max)
        high, low = keras.ops.where(mask, x, -largest), keras.ops.where(mask, x, largest)
    high = 0.5 * keras.ops.amax(high, axis=axes, keepdims=True)
    low = 0.5 * keras.ops.amin(low, axis=axes, keepdims=True)
    return high + low, high - low


def _mean(x, mask, axes):
    """The mean of what is not masked. (keras.ops.mean turns float64 into float32 on JAX and torch.)"""
    if mask is None:
        count = 1
        for axis in axes:
            count = count * keras.ops.shape(x)[axis]
        return keras.ops.sum(x, axis=axes, keepdims=True) / keras.ops.cast(count, x.dtype)
    total = keras.ops.sum(keras.ops.where(mask, x, 0.0), axis=axes, keepdims=True)
    count = keras.ops.sum(keras.ops.cast(mask, x.dtype), axis=axes, keepdims=True)
    return total / keras.ops.where(count > 0, count, 1.0)


def _expand(tensor, rank, axis):
    """Appends axes of size 1 to `tensor`, and prepends them, until it starts at `axis` of a tensor of `rank`."""
    before, after = (1,) * axis, (1,) * (rank - axis - len(tensor.shape))
    return keras.ops.reshape(tensor, (*before, *keras.ops.shape(tensor), *after))


def _check_partition(shape, axes, groups):
    if len(axes) != len(groups) or not axes or len(set(axes)) < len(axes):
        raise ValueError(
            "`axes` and `groups` must be of one length of at least 1, and name an axis once. Received: "
            f"axes={axes}, groups={groups}"
        )
    for axis, count in zip(axes, groups, strict=True):
        if isinstance(shape[axis], int) and shape[axis] < count:
            raise ValueError(
                f"Axis {axis} can't be cut into more groups than it has elements. Received: groups={count}, input of "
                f"shape {shape}"
            )


def _check_affine(gamma, beta, channels):
    for name, tensor in (("gamma", gamma), ("beta", beta)):
        if tensor is None:
            continue
        shape = tuple(tensor.shape)
        if len(shape) != 1 or (channels is not None and shape[0] != channels):
            raise ValueError(f"`{name}` must have shape (channels,) = ({channels},). Received: shape={shape}")


def _check_mask(mask, shape):
    if mask is None:
        return
    mask_shape = tuple(mask.shape)
    fits = len(mask_shape) <= len(shape)
    if not fits or any(None not in (m, n) and m != n for m, n in zip(mask_shape, shape, strict=False)):
        raise ValueError(
            "`mask` must have the shape of the leading axes of `x`. Received: mask of shape "
            f"{mask_shape}, x of shape {shape}"
        )
