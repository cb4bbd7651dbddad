"""Feed-forward layers whose activation is a mixture that every token weighs for itself [MoA, eq. 7 to 10]."""

import keras

from keras_polycom import feed_forwards, ops
from keras_polycom.layers.initial_values import get_initializer
from keras_polycom.layers.mixture import FULL, Mixture
from keras_polycom.layers.projections import draw_of_its_own
from keras_polycom.ops.mixing_gate import check_gate


class InputDependentMixture(Mixture):
    """Base of the Mixture-of-Activations layers: weights computed from the input by `ops.mixing_gate`."""

    def __init__(
        self,
        hidden_dim,
        activations,
        *,
        gate="sigmoid",
        gate_bias=False,
        mixing_initializer="glorot_uniform",
        mixing_bias_initializer="zeros",
        mixing_bias_regularizer=None,
        mixing_bias_constraint=None,
        **kwargs,
    ):
        super().__init__(hidden_dim, activations, mixing_initializer=mixing_initializer, **kwargs)
        self.gate = check_gate(gate)
        self.gate_bias = bool(gate_bias)
        self.mixing_bias_initializer = get_initializer(mixing_bias_initializer, "mixing_bias_initializer")
        self.mixing_bias_regularizer = keras.regularizers.get(mixing_bias_regularizer)
        self.mixing_bias_constraint = keras.constraints.get(mixing_bias_constraint)

    def build(self, input_shape):
        super().build(input_shape)
        for index, (name, size) in enumerate(self._mixing_sizes().items()):
            kernel = self.add_weight(
                name=f"{name}_kernel",
                shape=(input_shape[-1], size),
                initializer=draw_of_its_own(self.mixing_initializer, index),
                regularizer=self.mixing_regularizer,
                constraint=self.mixing_constraint,
                autocast=False,
            )
            setattr(self, f"{name}_kernel", kernel)
            if self.gate_bias:
                setattr(self, f"{name}_bias", self._mixing_bias(f"{name}_bias", size, index))

    def get_config(self):
        return {
            **super().get_config(),
            "gate": self.gate,
            "gate_bias": self.gate_bias,
            "mixing_bias_initializer": keras.initializers.serialize(self.mixing_bias_initializer),
            "mixing_bias_regularizer": keras.regularizers.serialize(self.mixing_bias_regularizer),
            "mixing_bias_constraint": keras.constraints.serialize(self.mixing_bias_constraint),
        }

    def _mixing_weights(self, inputs):
        return [
            ops.mixing_gate(inputs, getattr(self, f"{name}_kernel"), self.gate, getattr(self, f"{name}_bias", None))
            for name in self._mixing_sizes()
        ]

    def _mixing_bias(self, name, size, index):
        return self.add_weight(
            name=name,
            shape=(size,),
            initializer=draw_of_its_own(self.mixing_bias_initializer, index),
            regularizer=self.mixing_bias_regularizer,
            constraint=self.mixing_bias_constraint,
            autocast=False,
        )


@feed_forwards.register("moa")
@keras.saving.register_keras_serializable(package="keras_polycom")
class MoAFeedForward(InputDependentMixture):
    """Feed-forward layer with a Mixture of Activations: every token weighs the activations for itself.

    Formula:

    ```
    out = W2 sum_k p_k(x) s_k(W1 x),    p(x) = gate(x U + b)
    ```

    Input shape: (..., width). Output shape: the same. Weights: `mixing_kernel` (width, K), `U`, and with `gate_bias`
    also `mixing_bias` (K,), `b`; those of the activations that are layers. The gate is computed in float32 at least,
    whatever the dtype policy. Children: `up_proj` (W1), `down_proj` (W2), both `keras.layers.Dense`, so that LoRA and
    quantization reach them; they leave the gate as it is.

    Args:
        hidden_dim: integer, at least 1. Number of hidden units; usually 4 times the width.
        activations: sequence of K activation names, functions, layer classes, makers, configs or layer instances;
            each layer is made afresh, an instance cloned with its weights. One entry is legal, and so is the same
            entry twice. Defaults to the paper's full dictionary, `("relu", "relu2", "leaky_relu", "gelu", "silu",
            "tanh")`, where `gelu` is exact and `leaky_relu` has slope 0.01. In the paper `tanh` hurts this layer in
            language models: leave it out there.
        gate: string, `"sigmoid"`, `"tanh"` or `"softmax"` (over the K activations). Defaults to `"sigmoid"`, the best
            in the paper.
        gate_bias: bool. Whether the gate has a bias, the constant coordinate of the paper's theory. Defaults to
            `False`.
        mixing_initializer: initializer of `mixing_kernel`. Defaults to `"glorot_uniform"`, as for the projections: the
            paper gives none, and zeros would start the tanh gate at a layer that is zero everywhere. A sigmoid gate
            starts around 1/2, so the mixture around half the SUM of its activations.
        mixing_regularizer: optional regularizer. Defaults to `None`.
        mixing_constraint: optional constraint. Defaults to `None`.
        mixing_bias_initializer: initializer of `mixing_bias`. Defaults to `"zeros"`; with the sigmoid gate
            `keras.initializers.Constant(-math.log(K - 1))` starts around the mean of the activations instead.
        mixing_bias_regularizer: optional regularizer. Defaults to `None`.
        mixing_bias_constraint: optional constraint. Defaults to `None`.
        **kwargs: the other arguments of `FeedForward`: `use_bias`, `dropout`, `seed`, and the initializers,
            regularizers and constraints of the projections; `name`, `dtype`, `trainable`.

    Raises:
        ValueError: an empty dictionary, an entry `None`, an unknown name or gate, a size or rate out of range, or an
            input of unknown width.

    Example:

    >>> import keras, keras_polycom
    >>> layer = keras_polycom.MoAFeedForward(hidden_dim=32, activations=["gelu", keras_polycom.PolyNorm()])
    >>> layer(keras.ops.ones((2, 5, 8))).shape == (2, 5, 8), layer.mixing_kernel.shape == (8, 2)
    (True, True)

    Reference: Wang et al., arXiv 2605.26647, equation 7.
    """

    def __init__(self, hidden_dim, activations=FULL, **kwargs):
        super().__init__(hidden_dim, activations, **kwargs)


@keras.saving.register_keras_serializable(package="keras_polycom")
class GatedMoAFeedForward(InputDependentMixture):
    """Gated feed-forward layer with a Mixture of Activations on one branch, on both, or on their products.

    Formula, with `y = W1 x`, `z = W2 x`, and all `p` and `r` of the form `gate(x U + b)`:

    ```
    "one_sided":  out = W3 (silu(y) * sum_k p_k(x) s_k(z))
    "bi_sided":   out = W3 (sum_k r_k(x) s_k(y) * sum_l p_l(x) s_l(z))
    "quadratic":  out = W3 sum_{k<=l} p_kl(x) s_k(y) s_l(z)
    ```

    Input shape: (..., width). Output shape: the same. Weights: `mixing_kernel`, (width, K) or for the quadratic
    variant (width, K (K + 1) / 2), pairs in lexicographic order; for the bi-sided one `gate_mixing_kernel` (of r) and
    `up_mixing_kernel` (of p), (width, K) each; with `gate_bias` as many `..._bias`; those of the activations that are
    layers. Children: `gate_proj` (W1), `up_proj` (W2), `down_proj` (W3), all `keras.layers.Dense`, so that LoRA and
    quantization reach them; they leave the gate as it is.

    Args:
        hidden_dim: integer, at least 1. Number of hidden units; usually 8/3 of the width.
        variant: string, `"one_sided"`, `"bi_sided"` or `"quadratic"`. Defaults to `"quadratic"`, the one the paper
            takes from language models to images.
        activations: sequence of K activations, as in `MoAFeedForward`. A layer acts on one branch: the bi-sided and
            the quadratic variant hold one for `y` (in `activations`) and another for `z` (in `up_activations`).
            `None` for the best of the paper: `("identity", "relu", "relu2", "leaky_relu", "gelu", "silu", "tanh")`, its
            largest dictionary, on one or both sides, and `("gelu", "silu", "relu2")` for the quadratic variant.
            Defaults to `None`.
        gate: string, `"sigmoid"`, `"tanh"` or `"softmax"` (over the K activations, or over all pairs). Defaults to
            `"sigmoid"`, the best in the paper.
        **kwargs: the other arguments of `MoAFeedForward`.

    Raises:
        ValueError: an unknown variant, and as for `MoAFeedForward`.

    Example:

    >>> import keras, keras_polycom
    >>> layer = keras_polycom.GatedMoAFeedForward(hidden_dim=21)
    >>> layer(keras.ops.ones((2, 5, 8))).shape == (2, 5, 8), layer.mixing_kernel.shape == (8, 6)
    (True, True)

    Reference: Wang et al., arXiv 2605.26647, equations 8 to 10.
    """

    gated = True

    def __init__(self, hidden_dim, variant="quadratic", activations=None, **kwargs):
        super().__init__(hidden_dim, activations, _variant=variant, **kwargs)


@feed_forwards.register("one_moa")
def one_moa(hidden_dim, activation=None, **kwargs):
    """`GatedMoAFeedForward`, one-sided, whatever activation the model has elsewhere."""
    return GatedMoAFeedForward(hidden_dim, "one_sided", **kwargs)


@feed_forwards.register("bi_moa")
def bi_moa(hidden_dim, activation=None, **kwargs):
    """`GatedMoAFeedForward`, bi-sided, whatever activation the model has elsewhere."""
    return GatedMoAFeedForward(hidden_dim, "bi_sided", **kwargs)


@feed_forwards.register("qd_moa")
def qd_moa(hidden_dim, activation=None, **kwargs):
    """`GatedMoAFeedForward`, quadratic, whatever activation the model has elsewhere."""
    return GatedMoAFeedForward(hidden_dim, "quadratic", **kwargs)
