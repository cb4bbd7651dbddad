"""Position tables that are added to a sequence of tokens: a learned one and a fixed one."""

import keras

from keras_polycom import ops
from keras_polycom.layers.initial_values import get_initializer


class PositionTable(keras.layers.Layer):
    """Base of the layers that add a table (1, tokens, width) to their input."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs):
        return inputs + keras.ops.cast(self.table, inputs.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape

    def _known_sizes(self, input_shape):
        if len(input_shape) != 3 or None in input_shape[1:]:
            raise ValueError(
                "Expected an input of shape (batch, tokens, width) with known tokens and width. Received: "
                f"{tuple(input_shape)}"
            )
        return input_shape[1], input_shape[2]


@keras.saving.register_keras_serializable(package="keras_polycom")
class PositionEmbedding(PositionTable):
    """Adds a learned vector to every token, one per position.

    Input shape: (batch, tokens, width). Output shape: the same. Weight: `table` (1, tokens, width).

    Args:
        table_initializer: initializer. Defaults to a truncated normal of standard deviation 0.02.
        table_regularizer: optional regularizer. Defaults to `None`.
        table_constraint: optional constraint. Defaults to `None`.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Raises:
        ValueError: the number of tokens or the width is unknown.

    Example:

    >>> import keras
    >>> from keras_polycom import layers
    >>> layer = layers.PositionEmbedding(table_initializer="ones")
    >>> float(keras.ops.max(layer(keras.ops.zeros((2, 16, 8)))))
    1.0

    Reference: Dosovitskiy et al., An Image is Worth 16x16 Words, arXiv 2010.11929, equation 1.
    """

    def __init__(self, *, table_initializer=None, table_regularizer=None, table_constraint=None, **kwargs):
        super().__init__(**kwargs)
        if table_initializer is None:
            table_initializer = keras.initializers.TruncatedNormal(stddev=0.02)
        self.table_initializer = get_initializer(table_initializer, "table_initializer")
        self.table_regularizer = keras.regularizers.get(table_regularizer)
        self.table_constraint = keras.constraints.get(table_constraint)

    def build(self, input_shape):
        self.table = self.add_weight(
            name="table",
            shape=(1, *self._known_sizes(input_shape)),
            initializer=self.table_initializer,
            regularizer=self.table_regularizer,
            constraint=self.table_constraint,
        )
        self.built = True

    def get_config(self):
        return {
            **super().get_config(),
            "table_initializer": keras.initializers.serialize(self.table_initializer),
            "table_regularizer": keras.regularizers.serialize(self.table_regularizer),
            "table_constraint": keras.constraints.serialize(self.table_constraint),
        }


@keras.saving.register_keras_serializable(package="keras_polycom")
class SinCosPositionEmbedding(PositionTable):
    """Adds the fixed two-dimensional sine-cosine table of `keras_polycom.ops.sincos_position_table`.

    Input shape: (batch, tokens, width), where tokens is the product of `grid`, plus one with a class token. Output
    shape: the same. Weight: `table` (1, tokens, width), never trained but saved with the model.

    Args:
        grid: pair of integers (rows, columns) of patches.
        class_token: bool. Whether the first token is a class token, to which zeros are added. Defaults to `False`.
        **kwargs: `name`, `dtype` of `keras.layers.Layer`.

    Raises:
        ValueError: the tokens are not those of the grid, or the width is not a multiple of 4.

    Example:

    >>> import keras
    >>> from keras_polycom import layers
    >>> y = layers.SinCosPositionEmbedding(grid=(2, 3))(keras.ops.zeros((1, 6, 4)))
    >>> [round(float(v), 4) for v in y[0, 1]]
    [0.8415, 0.5403, 0.0, 1.0]

    Reference: He et al., Masked Autoencoders Are Scalable Vision Learners, arXiv 2111.06377, appendix A.1.
    """

    def __init__(self, grid, class_token=False, **kwargs):
        super().__init__(**kwargs)
        self.grid = tuple(grid)
        self.class_token = class_token

    def build(self, input_shape):
        tokens, width = self._known_sizes(input_shape)
        table = ops.sincos_position_table(self.grid, width, self.class_token)
        if tokens != len(table):
            raise ValueError(
                f"A grid of {self.grid} patches {'with' if self.class_token else 'without'} class token has "
                f"{len(table)} tokens. Received: an input of {tokens} tokens"
            )
        self.table = self.add_weight(
            name="table",
            shape=(1, tokens, width),
            initializer=lambda shape, dtype: keras.ops.convert_to_tensor(table[None], dtype),
            trainable=False,
        )
        self.built = True

    def get_config(self):
        return {**super().get_config(), "grid": self.grid, "class_token": self.class_token}
