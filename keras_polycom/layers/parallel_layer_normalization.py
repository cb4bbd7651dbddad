"""Parallel layer normalization, its form without centring and its convolutional form [PLN, def. 3.2]."""

import keras

from keras_polycom import activations, normalizations, ops
from keras_polycom.layers.affine_normalization import AffineNormalization, channel_axis, check_data_format
from keras_polycom.ops._numerics import check_axis, normalize_axis
from keras_polycom.ops.block_normalization import EPSILON
from keras_polycom.ops.parallel_layer_norm import check_norm_size, count_runs


class RunNormalization(AffineNormalization):
    """Base of the layers that normalize runs of `norm_size` consecutive channels."""

    subtracts_mean = True

    def __init__(self, norm_size, _axis, epsilon, **kwargs):
        super().__init__(epsilon=epsilon, **kwargs)
        self.norm_size = check_norm_size(norm_size, self.subtracts_mean)
        self.axis = check_axis(_axis)

    def build(self, input_shape):
        axis = normalize_axis(self.axis, len(input_shape))
        count_runs(input_shape[axis], self.norm_size, self.subtracts_mean)
        self._build_affine(input_shape, self.axis)

    def call(self, inputs):
        formula = ops.parallel_layer_norm if self.subtracts_mean else ops.parallel_layer_scaling
        outputs = formula(inputs, self.norm_size, self.gamma, self.beta, axis=self.axis, epsilon=self.epsilon)
        return self._lower(outputs)

    def get_config(self):
        return {**super().get_config(), "norm_size": self.norm_size}


@activations.register("pln", bracket="norm_size")
@normalizations.register("pln", bracket="norm_size")
@keras.saving.register_keras_serializable(package="keras_polycom")
class ParallelLayerNormalization(RunNormalization):
    """Layer normalization inside each run of `norm_size` consecutive channels. Alias: `PLN`.

    Formula, mean and var taken over the run that an element lies in:

    ```
    y = gamma (x - mean(x)) / sqrt(var(x) + epsilon) + beta
    ```

    It serves as a normalization and as the nonlinearity of a network: small runs are the more nonlinear ones. With
    `norm_size` equal to the number of channels it is `keras.layers.LayerNormalization`. With `norm_size=2` the output
    is only plus or minus `gamma` (as far as epsilon lets it), that is, the sign of the difference of two channels: its
    derivative is zero or nearly so almost everywhere.

    Input shape: any of rank at least 1; the number of channels must be known. Output shape: the same. Weights: `gamma`
    (channels,) and `beta` (channels,). They are made by `build`: use the layer behind a `Dense` or convolution rather
    than as its `activation=`.

    Args:
        norm_size: integer, at least 2. Divides the number of channels. Defaults to `8`.
        axis: integer, the axis of the channels. Defaults to `-1`.
        epsilon: float, added to the variance; 0 is legal: a run of equal values then gives exactly `beta` and zero
            gradients. Defaults to `1e-5`.
        center: bool. Whether there is a `beta`, as in `keras.layers.LayerNormalization`. Defaults to `True`.
        scale: bool. Whether there is a `gamma`. Defaults to `True`.
        beta_initializer: initializer. Defaults to `"zeros"`.
        gamma_initializer: initializer. Defaults to `"ones"`.
        beta_regularizer, gamma_regularizer: optional regularizers. Default to `None`.
        beta_constraint, gamma_constraint: optional constraints. Default to `None`.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Raises:
        ValueError: `norm_size` is no integer of at least 2 or does not divide the channels, whose number must be known;
            an `axis` that the input does not have; a negative `epsilon`.

    Example:

    >>> import keras, keras_polycom
    >>> layer = keras_polycom.ParallelLayerNormalization(norm_size=3)
    >>> y = layer(keras.ops.array([[1.0, 3.0, 5.0, 7.0, 9.0, 8.0]]))
    >>> [round(float(v), 4) for v in y[0]]
    [-1.2247, 0.0, 1.2247, -1.2247, 1.2247, 0.0]

    Reference: Ni et al., Parallel Layer Normalization for Universal Approximation, arXiv 2505.13142, definition 3.2.
    """

    def __init__(self, norm_size=8, axis=-1, epsilon=EPSILON, **kwargs):
        super().__init__(norm_size, axis, epsilon, **kwargs)

    def get_config(self):
        return {**super().get_config(), "axis": self.axis}


@activations.register("pls", bracket="norm_size")
@normalizations.register("pls", bracket="norm_size")
@keras.saving.register_keras_serializable(package="keras_polycom")
class ParallelLayerScaling(RunNormalization):
    """Division of each run of `norm_size` consecutive channels by its root mean square. Alias: `PLS`.

    Formula, mean taken over the run that an element lies in:

    ```
    y = gamma x / sqrt(mean(x^2) + epsilon) + beta
    ```

    Shapes, weights, arguments and errors are those of `ParallelLayerNormalization` (`center` still says whether there
    is a `beta`), but a `norm_size` of 1 is legal and gives the sign of `x`, as far as epsilon lets it.

    Example:

    >>> import keras, keras_polycom
    >>> layer = keras_polycom.ParallelLayerScaling(norm_size=2)
    >>> y = layer(keras.ops.array([[3.0, -3.0, 1.0, 7.0]]))
    >>> [round(float(v), 4) for v in y[0]]
    [1.0, -1.0, 0.2, 1.4]

    Reference: Ni et al., Parallel Layer Normalization for Universal Approximation, arXiv 2505.13142, definition 3.2.
    """

    subtracts_mean = False

    def __init__(self, norm_size=8, axis=-1, epsilon=EPSILON, **kwargs):
        super().__init__(norm_size, axis, epsilon, **kwargs)

    def get_config(self):
        return {**super().get_config(), "axis": self.axis}


@keras.saving.register_keras_serializable(package="keras_polycom")
class ConvParallelLayerNormalization(RunNormalization):
    """Parallel layer normalization over the channels at every spatial position of a feature map. Alias: `CPLN`.

    Formula, mean and var taken over the run of channels that an element lies in:

    ```
    y = gamma (x - mean(x)) / sqrt(var(x) + epsilon) + beta
    ```

    It is `ParallelLayerNormalization` on the channel axis of the data format.

    Input shape: (batch, ..., channels) or, channels first, (batch, channels, ...). Output shape: the same.

    Args:
        norm_size: integer, at least 2. Divides the number of channels. Defaults to `8`.
        data_format: `"channels_last"`, `"channels_first"`, or `None` for `keras.config.image_data_format()`. Defaults
            to `None`.
        epsilon: float, added to the variance; 0 is legal. Defaults to `1e-5`.
        **kwargs: `center`, `scale` and the initializer, regularizer and constraint arguments of
            `ParallelLayerNormalization`, and `name`, `dtype`, `trainable`.

    Raises:
        ValueError: as `ParallelLayerNormalization`, and an unknown data format.

    Example:

    >>> import keras, keras_polycom
    >>> layer = keras_polycom.ConvParallelLayerNormalization(norm_size=4, data_format="channels_first")
    >>> layer(keras.ops.ones((2, 12, 5, 6))).shape == (2, 12, 5, 6)
    True

    Reference: Ni et al., Parallel Layer Normalization for Universal Approximation, arXiv 2505.13142, section 5.
    """

    def __init__(self, norm_size=8, data_format=None, epsilon=EPSILON, **kwargs):
        data_format = check_data_format(data_format)
        super().__init__(norm_size, channel_axis(data_format), epsilon, **kwargs)
        self.data_format = data_format

    def get_config(self):
        return {**super().get_config(), "data_format": self.data_format}


PLN = ParallelLayerNormalization
PLS = ParallelLayerScaling
CPLN = ConvParallelLayerNormalization
