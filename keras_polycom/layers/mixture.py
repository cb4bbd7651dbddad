"""What the feed-forward layers with a mixture of activations share: the dictionary, the variants and their ops."""

import keras

from keras_polycom import activations as activation_registry
from keras_polycom import ops
from keras_polycom.layers.initial_values import get_initializer
from keras_polycom.layers.projections import Projections
from keras_polycom.ops._numerics import at_least_float32
from keras_polycom.ops.activation_dictionary import check_dictionary
from keras_polycom.ops.mix_activations import number_of_pairs

# [MoA]: one- and bi-sided mixtures are best with the largest dictionary, the quadratic one with three activations.
FULL = ("relu", "relu2", "leaky_relu", "gelu", "silu", "tanh")
FULL_GATED = ("identity", *FULL)
SMALL = ("gelu", "silu", "relu2")
VARIANTS = {"one_sided": FULL_GATED, "bi_sided": FULL_GATED, "quadratic": SMALL}


class Mixture(Projections):
    """Base of the feed-forward layers with a mixture of activations.

    A subclass gives the weights of the mixture: `_mixing_weights(inputs)` returns one tensor per entry of
    `_mixing_sizes()`, in order, to be mixed with.

    Args:
        hidden_dim: integer, at least 1. The width between the projections.
        activations: sequence of activation identifiers; layers are cloned, once per branch they act on.
        mixing_initializer, mixing_regularizer, mixing_constraint: for the weights of the mixture.
        _variant: for a gated layer a key of `VARIANTS`, and `activations` may then be `None` for its default.
        **kwargs: the arguments of `Projections`.
    """

    def __init__(
        self,
        hidden_dim,
        activations,
        *,
        _variant=None,
        mixing_initializer=None,
        mixing_regularizer=None,
        mixing_constraint=None,
        **kwargs,
    ):
        super().__init__(hidden_dim, **kwargs)
        if self.gated and (not isinstance(_variant, str) or _variant not in VARIANTS):
            raise ValueError(f"`variant` must be one of {', '.join(VARIANTS)}. Received: variant={_variant!r}")
        activations = VARIANTS[_variant] if self.gated and activations is None else check_dictionary(activations)
        self.variant = _variant
        self.activations = self._dictionary(activations, "activation")
        if _variant in ("bi_sided", "quadratic"):
            self.up_activations = self._dictionary(activations, "up_activation")
        self.mixing_initializer = get_initializer(mixing_initializer, "mixing_initializer")
        self.mixing_regularizer = keras.regularizers.get(mixing_regularizer)
        self.mixing_constraint = keras.constraints.get(mixing_constraint)

    def build(self, input_shape):
        super().build(input_shape)
        for activation in (*self.activations, *getattr(self, "up_activations", ())):
            if not getattr(activation, "built", True):
                activation.build((*input_shape[:-1], self.hidden_dim))

    def call(self, inputs, training=None):
        return self._project_down(self._mix(inputs, *self._mixing_weights(inputs)), training)

    def get_config(self):
        return {
            **super().get_config(),
            **({"variant": self.variant} if self.gated else {}),
            "activations": [activation_registry.serialize(activation) for activation in self.activations],
            "mixing_initializer": keras.initializers.serialize(self.mixing_initializer),
            "mixing_regularizer": keras.regularizers.serialize(self.mixing_regularizer),
            "mixing_constraint": keras.constraints.serialize(self.mixing_constraint),
        }

    def _mix(self, inputs, *weights):
        if not self.gated:
            return ops.mix_activations(self.up_proj(inputs), *weights, self.activations)
        y, z = self.gate_proj(inputs), self.up_proj(inputs)
        if self.variant == "one_sided":
            return ops.mix_one_sided(y, z, *weights, self.activations)
        mix = ops.mix_bi_sided if self.variant == "bi_sided" else ops.mix_quadratic
        return mix(y, z, *weights, self.activations, self.up_activations)

    def _mixing_sizes(self):
        """The mixtures of the layer, by the prefix of their weights' names, and the number of terms of each."""
        size = len(self.activations)
        if self.variant == "bi_sided":
            return {"gate_mixing": size, "up_mixing": size}
        return {"mixing": number_of_pairs(size) if self.variant == "quadratic" else size}

    def _dictionary(self, activations, name):
        dtype = at_least_float32(self.compute_dtype)
        return [
            activation_registry.get(activation, name=f"{name}_{index}", dtype=dtype)
            for index, activation in enumerate(activations)
        ]
