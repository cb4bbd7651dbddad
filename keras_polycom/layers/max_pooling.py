"""Max pooling for activations that can be negative."""

import keras

from keras_polycom.ops._numerics import check_count


@keras.saving.register_keras_serializable(package="keras_polycom")
class PaddedMaxPooling2D(keras.layers.Layer):
    """Max pooling with the same padding on both sides, by minus infinity.

    PyTorch's convention. Zeros, as from `keras.layers.ZeroPadding2D`, would win against the negative values that
    PolyNorm and most smooth activations have; `keras.layers.MaxPooling2D(padding="same")` pads with minus infinity, but
    only at the far side for even sizes, and so looks at other pixels.

    Input shape: (batch, height, width, channels), or (batch, channels, height, width) for `"channels_first"`. Output
    size along an axis of size n: `(n + 2 padding - pool_size) // strides + 1`.

    Args:
        pool_size: integer, at least 1. Defaults to `3`.
        strides: integer, at least 1. Defaults to `2`.
        padding: integer from 0 to `pool_size // 2`, on every side. Defaults to `1`.
        data_format: `"channels_last"` or `"channels_first"`; `None` for `keras.config.image_data_format()`. Defaults to
            `None`.
        **kwargs: `name`, `dtype` of `keras.layers.Layer`.

    Raises:
        ValueError: an argument out of range, or an image smaller than the pool with its padding.

    Example:

    >>> import keras
    >>> from keras_polycom import layers
    >>> y = layers.PaddedMaxPooling2D(data_format="channels_last")(-keras.ops.ones((1, 8, 8, 3)))
    >>> y.shape == (1, 4, 4, 3), float(keras.ops.max(y))
    (True, -1.0)
    """

    def __init__(self, pool_size=3, strides=2, padding=1, data_format=None, **kwargs):
        super().__init__(**kwargs)
        check_count(pool_size, "pool_size")
        check_count(strides, "strides")
        if not isinstance(padding, int) or not 0 <= padding <= pool_size // 2:
            raise ValueError(
                f"`padding` must be an integer from 0 to pool_size // 2 = {pool_size // 2}, or some windows would hold "
                f"nothing but padding. Received: padding={padding!r}"
            )
        self.pool_size = pool_size
        self.strides = strides
        self.padding = padding
        self.data_format = keras.config.image_data_format() if data_format is None else data_format
        if self.data_format not in ("channels_last", "channels_first"):
            raise ValueError(
                f"`data_format` must be 'channels_last' or 'channels_first'. Received: data_format={data_format!r}"
            )
        self.input_spec = keras.layers.InputSpec(ndim=4)
        self.built = True

    def call(self, inputs):
        border = [[0, 0] if axis not in self._spatial_axes else [self.padding] * 2 for axis in range(4)]
        padded = keras.ops.pad(inputs, border, mode="constant", constant_values=float("-inf"))
        return keras.ops.max_pool(padded, self.pool_size, self.strides, padding="valid", data_format=self.data_format)

    def compute_output_shape(self, input_shape):
        return tuple(self._pooled(n) if axis in self._spatial_axes else n for axis, n in enumerate(input_shape))

    def get_config(self):
        return {
            **super().get_config(),
            "pool_size": self.pool_size,
            "strides": self.strides,
            "padding": self.padding,
            "data_format": self.data_format,
        }

    @property
    def _spatial_axes(self):
        return (1, 2) if self.data_format == "channels_last" else (2, 3)

    def _pooled(self, size):
        if size is None:
            return None
        if size + 2 * self.padding < self.pool_size:
            raise ValueError(
                f"The image must be at least {self.pool_size - 2 * self.padding} high and wide for "
                f"pool_size={self.pool_size}, padding={self.padding}. Received: a side of {size}"
            )
        return (size + 2 * self.padding - self.pool_size) // self.strides + 1
