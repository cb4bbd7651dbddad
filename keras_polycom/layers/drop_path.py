"""Stochastic depth."""

import keras


@keras.saving.register_keras_serializable(package="keras_polycom")
class DropPath(keras.layers.Layer):
    """Stochastic depth: drops the whole branch for some samples of the batch, in training.

    Formula, with one draw per sample:

    ```
    training:   y = x / (1 - rate) with probability 1 - rate, else 0
    inference:  y = x
    ```

    Input shape: (batch, ...), of any rank. Output shape: the same.

    Args:
        rate: float in [0, 1). The probability that a sample's branch is dropped. 0 draws nothing.
        seed: optional integer. Layers without one draw independently of each other. Defaults to `None`.
        **kwargs: `name`, `dtype` of `keras.layers.Layer`.

    Raises:
        ValueError: `rate` outside [0, 1).

    Example:

    >>> import keras, keras_polycom
    >>> layer = keras_polycom.DropPath(0.5, seed=0)
    >>> y = layer(keras.ops.ones((100, 2, 3)), training=True)
    >>> sorted({float(v) for v in keras.ops.reshape(y, (-1,))})
    [0.0, 2.0]

    Reference: Huang et al., Deep Networks with Stochastic Depth, arXiv 1603.09382, rescaled in training, not inference.
    """

    def __init__(self, rate, seed=None, **kwargs):
        super().__init__(**kwargs)
        if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 <= rate < 1:
            raise ValueError(f"`rate` must lie in [0, 1). Received: rate={rate!r}")
        self.rate = rate
        self.seed = seed
        if rate > 0:
            self.seed_generator = keras.random.SeedGenerator(seed)
        self.supports_masking = True
        self.built = True

    def call(self, inputs, training=False):
        if not training or self.rate == 0:
            return inputs
        one_per_sample = (keras.ops.shape(inputs)[0],) + (1,) * (len(inputs.shape) - 1)
        return keras.random.dropout(inputs, self.rate, noise_shape=one_per_sample, seed=self.seed_generator)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "rate": self.rate, "seed": self.seed}
