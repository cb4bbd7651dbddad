"""Normalization of blocks that mix tokens and channels, or pixels and channels [PLN]."""

from keras_polycom.ops._numerics import as_tensor, check_count
from keras_polycom.ops.block_normalization import EPSILON, block_normalization


def mix_norm(x, token_groups, channel_groups, gamma=None, beta=None, epsilon=EPSILON, mask=None):
    """Layer normalization inside blocks of neighbouring tokens and channels.

    Formula, mean and var taken over the block that an element lies in:

    ```
    y = gamma (x - mean(x)) / sqrt(var(x) + epsilon) + beta
    ```

    Tokens and channels are cut into consecutive groups whose sizes differ by at most one, the larger ones first: 197
    tokens into 4 groups of 50, 49, 49, 49. A block is a group of tokens times a group of channels of one sample.
    `token_groups=1, channel_groups=1` normalizes whole samples; as many token groups as tokens is parallel layer
    normalization. A block of a single element gives exactly `beta`.

    Args:
        x: tensor (batch, tokens, channels).
        token_groups: integer, at least 1, at most the number of tokens.
        channel_groups: integer, at least 1, at most the number of channels.
        gamma: tensor (channels,), or `None` for 1. Defaults to `None`.
        beta: tensor (channels,), or `None` for 0. Defaults to `None`.
        epsilon: float, added to the variance. Defaults to `1e-5`.
        mask: boolean tensor (batch, tokens), or `None`. Masked tokens (False) keep their place in
            the cut but enter no mean, and come out as `beta`. Defaults to `None`.

    Returns:
        Tensor of the shape and float dtype of `x`.

    Raises:
        ValueError: not three dimensions, more groups than tokens or channels, shapes that do not fit, or a
            negative `epsilon`. A number of tokens that is unknown while a TensorFlow function is traced is not
            checked; if it turns out smaller than `token_groups`, every token is a group.
        TypeError: `x` is complex.

    Example:

    >>> from keras_polycom import ops
    >>> y = ops.mix_norm([[[1.0, 5.0], [3.0, 5.0], [8.0, 9.0]]], token_groups=2, channel_groups=1, epsilon=0.0)
    >>> [[round(float(v), 4) for v in token] for token in y[0]]
    [[-1.5076, 0.9045], [-0.3015, 0.9045], [-1.0, 1.0]]

    Reference: Ni et al., Parallel Layer Normalization for Universal Approximation, arXiv 2505.13142, table 3.
    """
    x = as_tensor(x)
    check_count(token_groups, "token_groups")
    check_count(channel_groups, "channel_groups")
    if len(x.shape) != 3:
        raise ValueError(f"`x` must have shape (batch, tokens, channels). Received: shape={tuple(x.shape)}")
    return block_normalization(x, (1, 2), (token_groups, channel_groups), gamma, beta, epsilon=epsilon, mask=mask)


def patch_group_norm(x, channel_groups, patches, gamma=None, beta=None, axis=-1, epsilon=EPSILON):
    """Layer normalization inside blocks of neighbouring pixels and channels.

    Formula, mean and var taken over the block that an element lies in:

    ```
    y = gamma (x - mean(x)) / sqrt(var(x) + epsilon) + beta
    ```

    The channels are cut into `channel_groups` consecutive groups and every spatial axis into `patches` consecutive
    parts, whose sizes differ by at most one, the larger ones first. `patches=1` is group normalization; as many patches
    as pixels normalizes each position by itself. A block of a single element gives exactly `beta`.

    Args:
        x: tensor (batch, ..., channels), or (batch, channels, ...) with `axis=1`; usually of rank 4.
        channel_groups: integer, at least 1, at most the number of channels.
        patches: integer, at least 1, at most the size of the smallest spatial axis. Parts of each spatial axis, so that
            an image has `patches^2` patches.
        gamma: tensor (channels,), or `None` for 1. Defaults to `None`.
        beta: tensor (channels,), or `None` for 0. Defaults to `None`.
        axis: integer, the axis of the channels, 1 or the last. Defaults to `-1`.
        epsilon: float, added to the variance. Defaults to `1e-5`.

    Returns:
        Tensor of the shape and float dtype of `x`.

    Raises:
        ValueError: fewer than three dimensions, more groups or patches than elements, shapes that do not fit, or a
            negative `epsilon`. Spatial sizes that are unknown while a TensorFlow function is traced are not checked; if
            one turns out smaller than `patches`, every position is a part.
        TypeError: `x` is complex.

    Example:

    >>> import keras
    >>> from keras_polycom import ops
    >>> x = keras.ops.reshape(keras.ops.arange(16.0), (1, 4, 4, 1))
    >>> y = ops.patch_group_norm(x, channel_groups=1, patches=2, epsilon=0.0)
    >>> [round(float(v), 4) for v in y[0, 0, :, 0]]
    [-1.2127, -0.7276, -1.2127, -0.7276]

    Reference: Ni et al., Parallel Layer Normalization for Universal Approximation, arXiv 2505.13142, table 2.
    """
    x = as_tensor(x)
    check_count(channel_groups, "channel_groups")
    check_count(patches, "patches")
    rank = len(x.shape)
    if rank < 3 or axis not in (1, -1, rank - 1):
        raise ValueError(
            "`x` must have a batch axis, at least one spatial axis, and the channels at axis 1 or last. Received: "
            f"shape={tuple(x.shape)}, axis={axis}"
        )
    axis = axis % rank
    spatial = tuple(a for a in range(1, rank) if a != axis)
    groups = (*(patches for _ in spatial), channel_groups)
    return block_normalization(x, (*spatial, axis), groups, gamma, beta, axis=axis, epsilon=epsilon)
