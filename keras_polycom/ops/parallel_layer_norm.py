"""Parallel layer normalization and parallel layer scaling [PLN, def. 3.2]."""

from keras_polycom.ops._numerics import as_tensor, check_axis, check_count, normalize_axis
from keras_polycom.ops.block_normalization import EPSILON, block_normalization


def parallel_layer_norm(x, norm_size, gamma=None, beta=None, axis=-1, center=True, epsilon=EPSILON):
    """Layer normalization inside each run of `norm_size` consecutive channels.

    Formula, mean and var taken over the run that an element lies in:

    ```
    y = gamma (x - mean(x)) / sqrt(var(x) + epsilon) + beta
    ```

    With `epsilon=0` a run of equal values gives exactly `beta`, and zero gradients. A `norm_size` of 2 gives only plus
    or minus 1 (as far as epsilon lets it), that is, the sign of the difference of the two channels.

    Args:
        x: tensor of any shape with at least one dimension. float16 and bfloat16 are raised to float32 inside;
            integers become float32.
        norm_size: integer, at least 2, or 1 without centring. Divides the number of channels.
        gamma: tensor (channels,), or `None` for 1. Defaults to `None`.
        beta: tensor (channels,), or `None` for 0. Defaults to `None`.
        axis: integer, the axis of the channels. Defaults to `-1`.
        center: bool. Whether the mean is subtracted; without it this is `parallel_layer_scaling`. (In the layers, as in
            Keras, `center` says instead whether there is a `beta`.) Defaults to `True`.
        epsilon: float, added to the variance. Defaults to `1e-5`.

    Returns:
        Tensor of the shape and float dtype of `x`.

    Raises:
        ValueError: `norm_size` does not divide the number of channels, or is 1 with centring (every output would be
            0); shapes that do not fit; a negative `epsilon`.
        TypeError: `x` is complex.

    Example:

    >>> from keras_polycom import ops
    >>> y = ops.parallel_layer_norm([[1.0, 3.0, 5.0, 7.0, 9.0, 8.0]], norm_size=3)
    >>> [round(float(v), 4) for v in y[0]]
    [-1.2247, 0.0, 1.2247, -1.2247, 1.2247, 0.0]

    Reference: Ni et al., Parallel Layer Normalization for Universal Approximation, arXiv 2505.13142, definition 3.2.
    """
    x = as_tensor(x)
    axis = normalize_axis(check_axis(axis), len(x.shape))
    groups = count_runs(x.shape[axis], norm_size, center)
    return block_normalization(x, (axis,), (groups,), gamma, beta, axis=axis, center=center, epsilon=epsilon)


def parallel_layer_scaling(x, norm_size, gamma=None, beta=None, axis=-1, epsilon=EPSILON):
    """Division of each run of `norm_size` consecutive channels by its root mean square.

    Formula, mean taken over the run that an element lies in:

    ```
    y = gamma x / sqrt(mean(x^2) + epsilon) + beta
    ```

    With `epsilon=0` a run of zeros gives exactly `beta`, and zero gradients. Arguments, returns and errors are those of
    `parallel_layer_norm`; a `norm_size` of 1 is legal and gives the sign of `x` (as far as epsilon lets it).

    Example:

    >>> from keras_polycom import ops
    >>> y = ops.parallel_layer_scaling([[3.0, -3.0, 1.0, 7.0]], norm_size=2)
    >>> [round(float(v), 4) for v in y[0]]
    [1.0, -1.0, 0.2, 1.4]

    Reference: Ni et al., Parallel Layer Normalization for Universal Approximation, arXiv 2505.13142, definition 3.2.
    """
    return parallel_layer_norm(x, norm_size, gamma, beta, axis=axis, center=False, epsilon=epsilon)


def check_norm_size(norm_size, center=True):
    """Raises `ValueError` unless `norm_size` is an integer of at least 1, or with centring 2."""
    if check_count(norm_size, "norm_size") == 1 and center:
        raise ValueError(
            "`norm_size` must be at least 2: a single channel minus its own mean is always 0. Received: norm_size=1. "
            "Without centring (parallel layer scaling) 1 is legal."
        )
    return norm_size


def count_runs(channels, norm_size, center=True):
    """Number of runs of `norm_size` channels.

    Raises:
        ValueError: `norm_size` is no legal size or does not divide `channels`, or `channels` is not known.
    """
    check_norm_size(norm_size, center)
    if channels is None:
        raise ValueError(
            "The number of channels must be known to be cut into runs of `norm_size`. Received: channels=None, "
            f"norm_size={norm_size}. Give the input a fixed size along the channel axis."
        )
    if channels % norm_size or channels < 1:
        raise ValueError(
            f"`norm_size` must divide the number of channels. Received: norm_size={norm_size}, channels={channels}"
        )
    return channels // norm_size
