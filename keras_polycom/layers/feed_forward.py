"""The plain and the gated feed-forward layer, with any activation [MoA, eq. 1 and 2]."""

import keras

from keras_polycom import activations, feed_forwards
from keras_polycom.layers.projections import Projections


class ActivatedProjections(Projections):
    """Base of the feed-forward layers with one activation."""

    def __init__(self, hidden_dim, activation, **kwargs):
        super().__init__(hidden_dim, **kwargs)
        self.activation = activations.get(activation, name="activation", dtype=self.dtype_policy)

    def build(self, input_shape):
        super().build(input_shape)
        if not getattr(self.activation, "built", True):
            self.activation.build((*input_shape[:-1], self.hidden_dim))

    def get_config(self):
        return {**super().get_config(), "activation": activations.serialize(self.activation)}


@feed_forwards.register("mlp")
@keras.saving.register_keras_serializable(package="keras_polycom")
class FeedForward(ActivatedProjections):
    """Feed-forward layer of a transformer, with any activation.

    Formula:

    ```
    y = W2 s(W1 x)
    ```

    Input shape: (..., width). Output shape: the same. Children: `up_proj` (W1), `down_proj` (W2), both
    `keras.layers.Dense`, so that LoRA and quantization reach them.

    Args:
        hidden_dim: integer, at least 1. Number of hidden units; usually 4 times the width.
        activation: `s`: an activation name, function, layer class, maker, config, or a layer instance, which is cloned.
            Defaults to `"gelu"` (exact).
        use_bias: bool. Whether the projections have biases. Defaults to `True`.
        dropout: float in [0, 1), on the hidden units and on the output. Defaults to `0.0`.
        kernel_initializer: initializer of the kernels. Defaults to `"glorot_uniform"`.
        bias_initializer: initializer of the biases. Defaults to `"zeros"`.
        kernel_regularizer, bias_regularizer: optional regularizers. Default to `None`.
        kernel_constraint, bias_constraint: optional constraints. Default to `None`.
        seed: optional integer, for dropout. Defaults to `None`.
        **kwargs: `name`, `dtype`, `trainable`, `activity_regularizer` of `keras.layers.Layer`.

    Raises:
        ValueError: an unknown activation name, a size or rate out of range, or an input of unknown width.

    Example:

    >>> import keras, keras_polycom
    >>> layer = keras_polycom.FeedForward(hidden_dim=32, activation="poly_norm")
    >>> layer(keras.ops.ones((2, 5, 8))).shape == (2, 5, 8)
    True

    Reference: Wang et al., arXiv 2605.26647, equation 1; Zhuo et al., arXiv 2411.03884, equation 4.
    """

    def __init__(self, hidden_dim, activation="gelu", **kwargs):
        super().__init__(hidden_dim, activation, **kwargs)

    def call(self, inputs, training=None):
        return self._project_down(self.activation(self.up_proj(inputs)), training)


@feed_forwards.register("glu")
@keras.saving.register_keras_serializable(package="keras_polycom")
class GatedFeedForward(ActivatedProjections):
    """Gated feed-forward layer (gated linear unit), with any activation on the gate.

    Formula:

    ```
    y = W3 (s(W1 x) * W2 x)
    ```

    With SiLU this is SwiGLU; with `PolyNorm()` the polynomial GLU; with
    `PolyNorm(coefficient_transform="sigmoid", bias_limit=0.5, output_scale=0.5)` the gate branch of Motif 3.

    Input shape: (..., width). Output shape: the same. Children: `gate_proj` (W1), `up_proj` (W2), `down_proj` (W3), all
    `keras.layers.Dense`, so that LoRA and quantization reach them.

    Args:
        hidden_dim: integer, at least 1. Number of hidden units; usually 8/3 of the width.
        activation: `s`: an activation name, function, layer class, maker, config, or a layer instance, which is cloned.
            Defaults to `"silu"`.
        **kwargs: the other arguments of `FeedForward`.

    Raises:
        ValueError: an unknown activation name, a size or rate out of range, or an input of unknown width.

    Example:

    >>> import keras, keras_polycom
    >>> layer = keras_polycom.GatedFeedForward(hidden_dim=21, activation=keras_polycom.PolyNorm())
    >>> layer(keras.ops.ones((2, 5, 8))).shape == (2, 5, 8)
    True

    Reference: Wang et al., arXiv 2605.26647, equation 2.
    """

    gated = True

    def __init__(self, hidden_dim, activation="silu", **kwargs):
        super().__init__(hidden_dim, activation, **kwargs)

    def call(self, inputs, training=None):
        gate = self.activation(self.gate_proj(inputs))
        return self._project_down(keras.ops.multiply(gate, self.up_proj(inputs)), training)


@feed_forwards.register("swiglu")
def swiglu(hidden_dim, **kwargs):
    """`GatedFeedForward` with SiLU, whatever activation the model has elsewhere."""
    return GatedFeedForward(hidden_dim, **{**kwargs, "activation": "silu"})


@feed_forwards.register("geglu")
def geglu(hidden_dim, **kwargs):
    """`GatedFeedForward` with GELU."""
    return GatedFeedForward(hidden_dim, **{**kwargs, "activation": "gelu"})


@feed_forwards.register("poly_norm_glu")
def poly_norm_glu(hidden_dim, **kwargs):
    """`GatedFeedForward` with PolyNorm: the polynomial GLU."""
    return GatedFeedForward(hidden_dim, **{**kwargs, "activation": "poly_norm"})
