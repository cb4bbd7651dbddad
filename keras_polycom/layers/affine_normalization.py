"""What the layers of the parallel-layer-normalization family share: gamma, beta and their configuration."""

import keras

from keras_polycom.layers.initial_values import get_initializer
from keras_polycom.ops._numerics import check_epsilon
from keras_polycom.ops.block_normalization import EPSILON


class AffineNormalization(keras.layers.Layer):
    """Base of the block normalizations.

    `gamma` and `beta` have the shape (channels,), which only `build` knows. So these layers are used as layers of
    their own, behind a `Dense` or convolution, and not as its `activation=`, which never builds them.

    Args:
        epsilon: float, added to the variance or mean square; 0 is legal: a block that has none then gives exactly
            `beta` and zero gradients.
        center: bool. Whether there is a `beta`, as in `keras.layers.LayerNormalization`.
        scale: bool. Whether there is a `gamma`.
        beta_initializer, gamma_initializer: initializers.
        beta_regularizer, gamma_regularizer: optional regularizers.
        beta_constraint, gamma_constraint: optional constraints.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.
    """

    def __init__(
        self,
        *,
        epsilon=EPSILON,
        center=True,
        scale=True,
        beta_initializer="zeros",
        gamma_initializer="ones",
        beta_regularizer=None,
        gamma_regularizer=None,
        beta_constraint=None,
        gamma_constraint=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.epsilon = check_epsilon(epsilon)
        self.center = bool(center)
        self.scale = bool(scale)
        self.beta_initializer = get_initializer(beta_initializer, "beta_initializer")
        self.gamma_initializer = get_initializer(gamma_initializer, "gamma_initializer")
        self.beta_regularizer = keras.regularizers.get(beta_regularizer)
        self.gamma_regularizer = keras.regularizers.get(gamma_regularizer)
        self.beta_constraint = keras.constraints.get(beta_constraint)
        self.gamma_constraint = keras.constraints.get(gamma_constraint)
        self.gamma = None
        self.beta = None
        self.supports_masking = True

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {
            **super().get_config(),
            "epsilon": self.epsilon,
            "center": self.center,
            "scale": self.scale,
            "beta_initializer": keras.initializers.serialize(self.beta_initializer),
            "gamma_initializer": keras.initializers.serialize(self.gamma_initializer),
            "beta_regularizer": keras.regularizers.serialize(self.beta_regularizer),
            "gamma_regularizer": keras.regularizers.serialize(self.gamma_regularizer),
            "beta_constraint": keras.constraints.serialize(self.beta_constraint),
            "gamma_constraint": keras.constraints.serialize(self.gamma_constraint),
        }

    def _build_affine(self, input_shape, axis):
        """Makes `gamma` and `beta` for the channels of `axis`, and has later inputs checked for their number."""
        channels = input_shape[axis]
        if channels is None:
            raise ValueError(
                f"The channel axis {axis} of the input of {self.name!r} must have a known size. Received: input of "
                f"shape {tuple(input_shape)}"
            )
        self.input_spec = keras.layers.InputSpec(min_ndim=len(input_shape), axes={axis: channels})
        if self.scale:
            self.gamma = self._add_vector("gamma", channels)
        if self.center:
            self.beta = self._add_vector("beta", channels)
        self.built = True

    def _add_vector(self, name, channels):
        # autocast=False: under a mixed policy the ops use the float32 values.
        return self.add_weight(
            name=name,
            shape=(channels,),
            initializer=getattr(self, f"{name}_initializer"),
            regularizer=getattr(self, f"{name}_regularizer"),
            constraint=getattr(self, f"{name}_constraint"),
            autocast=False,
        )

    def _lower(self, outputs):
        return keras.ops.cast(outputs, self.compute_dtype)


def check_data_format(data_format):
    """Returns the data format, that of the Keras configuration for `None`; raises `ValueError` if there is no such."""
    data_format = keras.config.image_data_format() if data_format is None else data_format
    if data_format not in ("channels_last", "channels_first"):
        raise ValueError(f"`data_format` must be 'channels_last', 'channels_first' or None. Received: {data_format!r}")
    return data_format


def channel_axis(data_format):
    """The axis of the channels."""
    return 1 if data_format == "channels_first" else -1
