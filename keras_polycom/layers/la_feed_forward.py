"""Feed-forward layers whose activation is a learnable mixture, the same for every token [MoA, eq. 3 to 6]."""

import keras

from keras_polycom import feed_forwards
from keras_polycom.layers.mixture import FULL, Mixture
from keras_polycom.layers.projections import draw_of_its_own


class LearnableMixture(Mixture):
    """Base of the feed-forward layers with learnable activations: weights that no input enters, made in `__init__`."""

    def __init__(self, hidden_dim, activations, **kwargs):
        super().__init__(hidden_dim, activations, **kwargs)
        sizes = self._mixing_sizes()
        if self.mixing_initializer is None:
            self.mixing_initializer = keras.initializers.Constant(1 / next(iter(sizes.values())))
        for index, (name, size) in enumerate(sizes.items()):
            weights = self.add_weight(
                name=f"{name}_weights",
                shape=(size,),
                initializer=draw_of_its_own(self.mixing_initializer, index),
                regularizer=self.mixing_regularizer,
                constraint=self.mixing_constraint,
                autocast=False,
            )
            setattr(self, f"{name}_weights", weights)

    def _mixing_weights(self, inputs):
        return [getattr(self, f"{name}_weights") for name in self._mixing_sizes()]


@feed_forwards.register("la")
@keras.saving.register_keras_serializable(package="keras_polycom")
class LAFeedForward(LearnableMixture):
    """Feed-forward layer with a learnable activation: a mixture with one weight per activation.

    Formula:

    ```
    out = W2 sum_k alpha_k s_k(W1 x)
    ```

    Input shape: (..., width). Output shape: the same. Weights: `mixing_weights` (K,), `alpha`, in float32 at least;
    those of the activations that are layers. Children: `up_proj` (W1), `down_proj` (W2), both `keras.layers.Dense`, so
    that LoRA and quantization reach them.

    Args:
        hidden_dim: integer, at least 1. Number of hidden units; usually 4 times the width.
        activations: sequence of K activation names, functions, layer classes, makers, configs or layer instances;
            each layer is made afresh, an instance cloned with its weights. One entry is legal, and so is the same
            entry twice. Defaults to the paper's full dictionary, `("relu", "relu2", "leaky_relu", "gelu", "silu",
            "tanh")`, where `gelu` is exact and `leaky_relu` has slope 0.01. In the paper `tanh` hurts this layer in
            language models: leave it out there.
        mixing_initializer: initializer of `mixing_weights`; `None` for `1 / K` each, the mean of the activations, as
            the paper gives none. `keras.initializers.Constant([1, 0, ...])` starts as the plain layer of the first
            activation. Defaults to `None`.
        mixing_regularizer: optional regularizer. Defaults to `None`.
        mixing_constraint: optional constraint. Defaults to `None`.
        **kwargs: the other arguments of `FeedForward`: `use_bias`, `dropout`, `seed`, and the initializers,
            regularizers and constraints of the projections; `name`, `dtype`, `trainable`.

    Raises:
        ValueError: an empty dictionary, an entry `None`, an unknown name, a size or rate out of range, or an input of
            unknown width.

    Example:

    >>> import keras, keras_polycom
    >>> layer = keras_polycom.LAFeedForward(hidden_dim=32, activations=["gelu", "relu2", keras_polycom.PolyNorm()])
    >>> layer(keras.ops.ones((2, 5, 8))).shape == (2, 5, 8), len(layer.mixing_weights.shape)
    (True, 1)

    Reference: Wang et al., arXiv 2605.26647, equation 3.
    """

    def __init__(self, hidden_dim, activations=FULL, **kwargs):
        super().__init__(hidden_dim, activations, **kwargs)


@keras.saving.register_keras_serializable(package="keras_polycom")
class GatedLAFeedForward(LearnableMixture):
    """Gated feed-forward layer with learnable activations on one branch, on both, or on their products.

    Formula, with `y = W1 x` and `z = W2 x`:

    ```
    "one_sided":  out = W3 (silu(y) * sum_k p_k s_k(z))
    "bi_sided":   out = W3 (sum_k r_k s_k(y) * sum_l p_l s_l(z))
    "quadratic":  out = W3 sum_{k<=l} p_kl s_k(y) s_l(z)
    ```

    Input shape: (..., width). Output shape: the same. Weights: `mixing_weights`, (K,) or for the quadratic variant
    (K (K + 1) / 2,), pairs in lexicographic order; for the bi-sided one `gate_mixing_weights` (r) and
    `up_mixing_weights` (p), (K,) each; those of the activations that are layers. Children: `gate_proj` (W1), `up_proj`
    (W2), `down_proj` (W3), all `keras.layers.Dense`, so that LoRA and quantization reach them.

    Args:
        hidden_dim: integer, at least 1. Number of hidden units; usually 8/3 of the width.
        variant: string, `"one_sided"`, `"bi_sided"` or `"quadratic"`. Defaults to `"quadratic"`, as for
            `GatedMoAFeedForward`.
        activations: sequence of K activations, as in `LAFeedForward`. A layer acts on one branch: the bi-sided and
            the quadratic variant hold one for `y` (in `activations`) and another for `z` (in `up_activations`).
            `None` for the best of the paper: `("identity", "relu", "relu2", "leaky_relu", "gelu", "silu", "tanh")`, its
            largest dictionary, on one or both sides, and `("gelu", "silu", "relu2")` for the quadratic variant.
            Defaults to `None`.
        mixing_initializer: initializer of the mixing weights; `None` for one over their number, so that each mixture
            starts as the mean of its terms, as the paper gives none. Defaults to `None`.
        **kwargs: the other arguments of `LAFeedForward`.

    Raises:
        ValueError: an unknown variant, and as for `LAFeedForward`.

    Example:

    >>> import keras, keras_polycom
    >>> layer = keras_polycom.GatedLAFeedForward(hidden_dim=21, variant="bi_sided")
    >>> layer(keras.ops.ones((2, 5, 8))).shape == (2, 5, 8), layer.up_mixing_weights.shape == (7,)
    (True, True)

    Reference: Wang et al., arXiv 2605.26647, equations 4 to 6.
    """

    gated = True

    def __init__(self, hidden_dim, variant="quadratic", activations=None, **kwargs):
        super().__init__(hidden_dim, activations, _variant=variant, **kwargs)


@feed_forwards.register("one_la")
def one_la(hidden_dim, activation=None, **kwargs):
    """`GatedLAFeedForward`, one-sided, whatever activation the model has elsewhere."""
    return GatedLAFeedForward(hidden_dim, "one_sided", **kwargs)


@feed_forwards.register("bi_la")
def bi_la(hidden_dim, activation=None, **kwargs):
    """`GatedLAFeedForward`, bi-sided, whatever activation the model has elsewhere."""
    return GatedLAFeedForward(hidden_dim, "bi_sided", **kwargs)


@feed_forwards.register("qd_la")
def qd_la(hidden_dim, activation=None, **kwargs):
    """`GatedLAFeedForward`, quadratic, whatever activation the model has elsewhere."""
    return GatedLAFeedForward(hidden_dim, "quadratic", **kwargs)
