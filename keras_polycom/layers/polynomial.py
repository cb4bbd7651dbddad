"""What the layers of the polynomial family share: their coefficients and bias, made in `__init__`."""

import keras

from keras_polycom.layers.initial_values import get_initializer
from keras_polycom.ops._numerics import check_count


class Polynomial(keras.layers.Layer):
    """Base of the polynomial layers: the weights `coefficients` and `bias`, and their configuration.

    The weights do not depend on the input shape and exist from the start, so that a layer given as
    `Dense(64, activation=PolyNorm())` is counted, saved and optimized from the start too.

    Args:
        order: integer, at least 1. The highest power.
        coefficients_initializer: initializer, or the values themselves as a sequence or an array of `order` numbers,
            `a_1` first; `None` for `1 / order` each.
        coefficients_regularizer, coefficients_constraint: optional regularizer and constraint.
        bias_initializer, bias_regularizer, bias_constraint: the same for `a_0`. The bias starts at 0 by default.
        _initial_coefficient: float. What `None` stands for.
        _group_shape: tuple of integers in front of the weights' shapes, `()` for one set of weights.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.
    """

    def __init__(
        self,
        order=3,
        *,
        coefficients_initializer=None,
        coefficients_regularizer=None,
        coefficients_constraint=None,
        bias_initializer="zeros",
        bias_regularizer=None,
        bias_constraint=None,
        _initial_coefficient=None,
        _group_shape=(),
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.order = check_count(order, "order")
        if coefficients_initializer is None:
            coefficients_initializer = keras.initializers.Constant(
                1 / order if _initial_coefficient is None else _initial_coefficient
            )
        self.coefficients_initializer = get_initializer(
            coefficients_initializer, "coefficients_initializer", (order,), (*_group_shape, order)
        )
        self.coefficients_regularizer = keras.regularizers.get(coefficients_regularizer)
        self.coefficients_constraint = keras.constraints.get(coefficients_constraint)
        self.bias_initializer = get_initializer(bias_initializer, "bias_initializer", _group_shape or (1,))
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.bias_constraint = keras.constraints.get(bias_constraint)
        self.supports_masking = True
        # autocast=False: under a mixed policy the ops need the float32 values, 1/3 to seven digits.
        self.coefficients = self.add_weight(
            name="coefficients",
            shape=(*_group_shape, order),
            initializer=self.coefficients_initializer,
            regularizer=self.coefficients_regularizer,
            constraint=self.coefficients_constraint,
            autocast=False,
        )
        self.bias = self.add_weight(
            name="bias",
            shape=_group_shape or (1,),
            initializer=self.bias_initializer,
            regularizer=self.bias_regularizer,
            constraint=self.bias_constraint,
            autocast=False,
        )
        self.built = True  # Dense(activation=...) never calls build, and quantization refuses what is not built

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {
            **super().get_config(),
            "order": self.order,
            "coefficients_initializer": keras.initializers.serialize(self.coefficients_initializer),
            "coefficients_regularizer": keras.regularizers.serialize(self.coefficients_regularizer),
            "coefficients_constraint": keras.constraints.serialize(self.coefficients_constraint),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "bias_regularizer": keras.regularizers.serialize(self.bias_regularizer),
            "bias_constraint": keras.constraints.serialize(self.bias_constraint),
        }
