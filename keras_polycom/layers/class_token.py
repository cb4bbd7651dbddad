"""The learned token in front of the patches."""

import keras

from keras_polycom.layers.initial_values import get_initializer


@keras.saving.register_keras_serializable(package="keras_polycom")
class ClassToken(keras.layers.Layer):
    """Puts one learned token in front of a sequence.

    Input shape: (batch, tokens, width). Output shape: (batch, 1 + tokens, width). Weight: `token` (1, 1, width).

    Args:
        token_initializer: initializer of the token. Defaults to a truncated normal of standard deviation 0.02.
        token_regularizer: optional regularizer. Defaults to `None`.
        token_constraint: optional constraint. Defaults to `None`.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Raises:
        ValueError: the input is not of rank 3 or its width is unknown.

    Example:

    >>> import keras
    >>> from keras_polycom import layers
    >>> layers.ClassToken()(keras.ops.ones((2, 16, 8))).shape == (2, 17, 8)
    True

    Reference: Dosovitskiy et al., An Image is Worth 16x16 Words, arXiv 2010.11929, equation 1.
    """

    def __init__(self, *, token_initializer=None, token_regularizer=None, token_constraint=None, **kwargs):
        super().__init__(**kwargs)
        if token_initializer is None:
            token_initializer = keras.initializers.TruncatedNormal(stddev=0.02)
        self.token_initializer = get_initializer(token_initializer, "token_initializer")
        self.token_regularizer = keras.regularizers.get(token_regularizer)
        self.token_constraint = keras.constraints.get(token_constraint)
        self.supports_masking = True

    def build(self, input_shape):
        if len(input_shape) != 3 or input_shape[-1] is None:
            raise ValueError(
                f"Expected an input of shape (batch, tokens, width) of known width. Received: {tuple(input_shape)}"
            )
        self.token = self.add_weight(
            name="token",
            shape=(1, 1, input_shape[-1]),
            initializer=self.token_initializer,
            regularizer=self.token_regularizer,
            constraint=self.token_constraint,
        )
        self.built = True

    def call(self, inputs):
        token = keras.ops.cast(self.token, inputs.dtype)
        token = keras.ops.broadcast_to(token, (keras.ops.shape(inputs)[0], 1, inputs.shape[-1]))
        return keras.ops.concatenate([token, inputs], axis=1)

    def compute_mask(self, inputs, mask=None):
        if mask is None:
            return None
        return keras.ops.concatenate([keras.ops.ones_like(mask[:, :1]), mask], axis=1)  # the token is never masked

    def compute_output_shape(self, input_shape):
        batch, tokens, width = input_shape
        return (batch, None if tokens is None else tokens + 1, width)

    def get_config(self):
        return {
            **super().get_config(),
            "token_initializer": keras.initializers.serialize(self.token_initializer),
            "token_regularizer": keras.regularizers.serialize(self.token_regularizer),
            "token_constraint": keras.constraints.serialize(self.token_constraint),
        }
