"""Normalization of blocks of neighbouring tokens and channels [PLN]."""

import keras

from keras_polycom import activations, normalizations, ops
from keras_polycom.layers.affine_normalization import AffineNormalization
from keras_polycom.ops._numerics import check_count
from keras_polycom.ops.block_normalization import EPSILON


@keras.saving.register_keras_serializable(package="keras_polycom")
class MixNormalization(AffineNormalization):
    """Layer normalization inside blocks of neighbouring tokens and channels.

    Formula, mean and var taken over the block that an element lies in:

    ```
    y = gamma (x - mean(x)) / sqrt(var(x) + epsilon) + beta
    ```

    Tokens and channels are cut into consecutive groups whose sizes differ by at most one, the larger ones first: 197
    tokens into 4 groups of 50, 49, 49, 49. A block is a group of tokens times a group of channels of one sample.

    Where a mask is given, masked tokens keep their place in the cut but enter no mean, and come out as `beta`; the mask
    is passed on.

    Input shape: (batch, tokens, channels); with more axes in the middle (an image), those are tokens in row-major
    order. Sizes other than that of the channels may be `None`. Output shape: the same. Weights: `gamma` (channels,) and
    `beta` (channels,), made by `build`.

    Args:
        token_groups: integer, at least 1, at most the number of tokens.
        channel_groups: integer, at least 1, at most the number of channels.
        epsilon: float, added to the variance; 0 is legal: a block of equal values then gives exactly `beta` and zero
            gradients. Defaults to `1e-5`.
        **kwargs: `center`, `scale` and the initializer, regularizer and constraint arguments of
            `ParallelLayerNormalization`, and `name`, `dtype`, `trainable`.

    Raises:
        ValueError: group counts that are no positive integers or exceed the tokens or channels; fewer than three
            dimensions; an unknown number of channels; a negative `epsilon`. A number of tokens that is unknown while a
            TensorFlow function is traced is not checked; if it turns out smaller than `token_groups`, every token is a
            group.

    Example:

    >>> import keras, keras_polycom
    >>> layer = keras_polycom.MixNormalization(token_groups=4, channel_groups=8)
    >>> layer(keras.ops.ones((2, 197, 192))).shape == (2, 197, 192)
    True

    Reference: Ni et al., Parallel Layer Normalization for Universal Approximation, arXiv 2505.13142, table 3.
    """

    def __init__(self, token_groups, channel_groups, epsilon=EPSILON, **kwargs):
        super().__init__(epsilon=epsilon, **kwargs)
        self.token_groups = check_count(token_groups, "token_groups")
        self.channel_groups = check_count(channel_groups, "channel_groups")

    def build(self, input_shape):
        if len(input_shape) < 3:
            raise ValueError(f"Expected an input (batch, tokens, channels). Received: shape={tuple(input_shape)}")
        channels, tokens = input_shape[-1], input_shape[1:-1]
        if channels is not None and channels < self.channel_groups:
            raise ValueError(
                "`channel_groups` can't exceed the number of channels. Received: "
                f"channel_groups={self.channel_groups}, channels={channels}"
            )
        if None not in tokens and _product(tokens) < self.token_groups:
            raise ValueError(
                "`token_groups` can't exceed the number of tokens. Received: "
                f"token_groups={self.token_groups}, tokens={_product(tokens)}"
            )
        self._build_affine(input_shape, -1)

    def call(self, inputs, mask=None):
        shape = keras.ops.shape(inputs)
        if len(shape) > 3:
            inputs = keras.ops.reshape(inputs, (shape[0], _product(shape[1:-1]), shape[-1]))
            mask = None if mask is None else keras.ops.reshape(mask, (shape[0], _product(shape[1:-1])))
        groups = (self.token_groups, self.channel_groups)
        outputs = ops.mix_norm(inputs, *groups, self.gamma, self.beta, epsilon=self.epsilon, mask=mask)
        return self._lower(keras.ops.reshape(outputs, shape) if len(shape) > 3 else outputs)

    def get_config(self):
        return {
            **super().get_config(),
            "token_groups": self.token_groups,
            "channel_groups": self.channel_groups,
        }


@activations.register("mix_norm", bracket=("token_groups", "channel_groups"))
@normalizations.register("mix_norm", bracket=("token_groups", "channel_groups"))
def mix_norm(token_groups=4, channel_groups=4, **kwargs):
    """`MixNormalization` with 4 groups of tokens and 4 of channels unless told otherwise."""
    return MixNormalization(token_groups, channel_groups, **kwargs)


def _product(sizes):
    product = 1
    for size in sizes:
        product = product * size
    return product
