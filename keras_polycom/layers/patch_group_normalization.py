"""Normalization of blocks of neighbouring pixels and channels [PLN]."""

import keras

from keras_polycom import activations, normalizations, ops
from keras_polycom.layers.affine_normalization import AffineNormalization, channel_axis, check_data_format
from keras_polycom.ops._numerics import check_count
from keras_polycom.ops.block_normalization import EPSILON


@keras.saving.register_keras_serializable(package="keras_polycom")
class PatchGroupNormalization(AffineNormalization):
    """Layer normalization inside blocks of neighbouring pixels and channels.

    Formula, mean and var taken over the block that an element lies in:

    ```
    y = gamma (x - mean(x)) / sqrt(var(x) + epsilon) + beta
    ```

    The channels are cut into `channel_groups` consecutive groups and every spatial axis into `patches` consecutive
    parts, whose sizes differ by at most one, the larger ones first. `patches=1` is `keras.layers.GroupNormalization`;
    as many patches as pixels along an axis is parallel layer normalization at every position. A block of a single
    element gives exactly `beta`.

    Input shape: (batch, height, width, channels) or, channels first, (batch, channels, height, width), or the same with
    another number of spatial axes. Spatial sizes may be `None`. Output shape: the same. Weights: `gamma` (channels,)
    and `beta` (channels,), made by `build`.

    Args:
        channel_groups: integer, at least 1, at most the number of channels.
        patches: integer, at least 1, at most the size of the smallest spatial axis. Parts of each spatial axis, so that
            an image has `patches^2` patches.
        data_format: `"channels_last"`, `"channels_first"`, or `None` for `keras.config.image_data_format()`. Defaults
            to `None`.
        epsilon: float, added to the variance; 0 is legal: a block of equal values then gives exactly `beta` and zero
            gradients. Defaults to `1e-5`.
        **kwargs: `center`, `scale` and the initializer, regularizer and constraint arguments of
            `ParallelLayerNormalization`, and `name`, `dtype`, `trainable`.

    Raises:
        ValueError: counts that are no positive integers or exceed the channels or a spatial axis; fewer than three
            dimensions; an unknown number of channels; an unknown data format; a negative `epsilon`. Spatial sizes that
            are unknown while a TensorFlow function is traced are not checked; if one turns out smaller than `patches`,
            every position is a part.

    Example:

    >>> import keras, keras_polycom
    >>> layer = keras_polycom.PatchGroupNormalization(channel_groups=4, patches=2, data_format="channels_last")
    >>> layer(keras.ops.ones((2, 8, 8, 16))).shape == (2, 8, 8, 16)
    True

    Reference: Ni et al., Parallel Layer Normalization for Universal Approximation, arXiv 2505.13142, table 2.
    """

    def __init__(self, channel_groups, patches, data_format=None, epsilon=EPSILON, **kwargs):
        super().__init__(epsilon=epsilon, **kwargs)
        self.channel_groups = check_count(channel_groups, "channel_groups")
        self.patches = check_count(patches, "patches")
        self.data_format = check_data_format(data_format)

    def build(self, input_shape):
        axis = channel_axis(self.data_format)
        if len(input_shape) < 3:
            raise ValueError(
                f"Expected an input with a batch axis, spatial axes and channels. Received: shape={tuple(input_shape)}"
            )
        channels = input_shape[axis]
        if channels is not None and channels < self.channel_groups:
            raise ValueError(
                "`channel_groups` can't exceed the number of channels. Received: "
                f"channel_groups={self.channel_groups}, channels={channels}"
            )
        spatial = [size for a, size in enumerate(input_shape) if a not in (0, axis % len(input_shape))]
        if any(size is not None and size < self.patches for size in spatial):
            raise ValueError(
                "`patches` can't exceed the size of a spatial axis. Received: "
                f"patches={self.patches}, input of shape {tuple(input_shape)}"
            )
        self._build_affine(input_shape, axis)

    def call(self, inputs):
        outputs = ops.patch_group_norm(
            inputs,
            self.channel_groups,
            self.patches,
            self.gamma,
            self.beta,
            axis=channel_axis(self.data_format),
            epsilon=self.epsilon,
        )
        return self._lower(outputs)

    def get_config(self):
        return {
            **super().get_config(),
            "channel_groups": self.channel_groups,
            "patches": self.patches,
            "data_format": self.data_format,
        }


@activations.register("patch_group_norm", bracket=("channel_groups", "patches"))
@normalizations.register("patch_group_norm", bracket=("channel_groups", "patches"))
def patch_group_norm(channel_groups=4, patches=2, **kwargs):
    """`PatchGroupNormalization` with 4 groups of channels and 2 x 2 patches unless told otherwise."""
    return PatchGroupNormalization(channel_groups, patches, **kwargs)
