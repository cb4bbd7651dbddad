"""What all feed-forward layers share: the Dense children, dropout, and a config that survives quantization."""

import keras

from keras_polycom.layers.initial_values import get_initializer
from keras_polycom.ops._numerics import check_count


class Projections(keras.layers.Layer):
    """Base of the feed-forward layers.

    Args:
        hidden_dim: integer, at least 1. The width between the projections.
        use_bias: bool. Whether the projections have biases.
        dropout: float in [0, 1). Applied to the hidden units and to the output, in training.
        kernel_initializer, bias_initializer, kernel_regularizer, bias_regularizer, kernel_constraint,
            bias_constraint: as in `keras.layers.Dense`, for every projection. A seeded initializer gives each
            projection a draw of its own.
        seed: optional integer, for dropout.
        **kwargs: `name`, `dtype`, `trainable`, `activity_regularizer` of `keras.layers.Layer`.
    """

    gated = False

    def __init__(
        self,
        hidden_dim,
        *,
        use_bias=True,
        dropout=0.0,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        kernel_regularizer=None,
        bias_regularizer=None,
        kernel_constraint=None,
        bias_constraint=None,
        seed=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if not 0 <= dropout < 1:
            raise ValueError(f"`dropout` must lie in [0, 1). Received: dropout={dropout!r}")
        self.hidden_dim = check_count(hidden_dim, "hidden_dim")
        self.use_bias = use_bias
        self.dropout = dropout
        self.kernel_initializer = get_initializer(kernel_initializer, "kernel_initializer")
        self.bias_initializer = get_initializer(bias_initializer, "bias_initializer")
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)
        self.seed = seed
        self.supports_masking = True

    def build(self, input_shape):
        width = input_shape[-1]
        if width is None:
            raise ValueError(
                f"The last axis of the input of {self.name!r} must have a known width. Received: {tuple(input_shape)}"
            )
        hidden_shape = (*input_shape[:-1], self.hidden_dim)
        projections = ["gate_proj", "up_proj"] if self.gated else ["up_proj"]
        for index, name in enumerate(projections):
            setattr(self, name, self._projection(self.hidden_dim, name, index, input_shape))
        self.down_proj = self._projection(width, "down_proj", len(projections), hidden_shape)
        if self.dropout:
            self.hidden_dropout = keras.layers.Dropout(
                self.dropout, seed=self.seed, dtype=self.dtype_policy, name="hidden_dropout"
            )
            self.output_dropout = keras.layers.Dropout(
                self.dropout,
                seed=None if self.seed is None else self.seed + 1,
                dtype=self.dtype_policy,
                name="output_dropout",
            )
        self.built = True

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {
            **super().get_config(),
            **self._quantized_dtype(),
            "hidden_dim": self.hidden_dim,
            "use_bias": self.use_bias,
            "dropout": self.dropout,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "kernel_regularizer": keras.regularizers.serialize(self.kernel_regularizer),
            "bias_regularizer": keras.regularizers.serialize(self.bias_regularizer),
            "kernel_constraint": keras.constraints.serialize(self.kernel_constraint),
            "bias_constraint": keras.constraints.serialize(self.bias_constraint),
            "seed": self.seed,
        }

    def _project_down(self, hidden, training):
        """The common end: dropout, `down_proj`, dropout."""
        if not self.dropout:
            return self.down_proj(hidden)
        hidden = self.hidden_dropout(hidden, training=training)
        return self.output_dropout(self.down_proj(hidden), training=training)

    def _projection(self, units, name, index, input_shape):
        policy = self.dtype_policy
        if isinstance(policy, keras.dtype_policies.DTypePolicyMap):  # holding all of it, a layer cannot be saved again
            policy = policy[f"{self.path}/{name}"]
        dense = keras.layers.Dense(
            units,
            use_bias=self.use_bias,
            kernel_initializer=draw_of_its_own(self.kernel_initializer, index),
            bias_initializer=draw_of_its_own(self.bias_initializer, index),
            kernel_regularizer=self.kernel_regularizer,
            bias_regularizer=self.bias_regularizer,
            kernel_constraint=self.kernel_constraint,
            bias_constraint=self.bias_constraint,
            dtype=policy,
            name=name,
        )
        dense.build(input_shape)
        return dense

    def _quantized_dtype(self):
        """A quantized child has a dtype policy of its own, which a reload must give it again before it is built."""
        children = [getattr(self, name, None) for name in ("gate_proj", "up_proj", "down_proj")]
        quantized = {c.path: c.dtype_policy for c in children if getattr(c, "quantization_mode", None)}
        if not quantized:
            return {}
        default = getattr(self.dtype_policy, "default_policy", self.dtype_policy)
        policy = keras.dtype_policies.DTypePolicyMap(default_policy=default, policy_map=quantized)
        return {"dtype": keras.dtype_policies.serialize(policy)}


def draw_of_its_own(initializer, index):
    """A copy of `initializer` for the child number `index`: one seeded object draws the same numbers every time."""
    if not isinstance(initializer, keras.initializers.Initializer):
        return initializer
    config = initializer.get_config()
    seed = config.get("seed")
    if isinstance(seed, dict):  # a SeedGenerator, which advances by itself
        return initializer
    if seed is not None:
        config["seed"] = seed + index
    return type(initializer).from_config(config)
