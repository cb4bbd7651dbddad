"""Polynomial composition with any function [PolyCom, eq. 1]."""

import keras

from keras_polycom import activations, ops
from keras_polycom.layers.polynomial import Polynomial
from keras_polycom.ops._numerics import at_least_float32


@keras.saving.register_keras_serializable(package="keras_polycom")
class PolyCom(Polynomial):
    """Learnable polynomial composition of any function.

    Formula:

    ```
    type I  (power_first=False):  y = a_0 + sum_i a_i f(x)^i
    type II (power_first=True):   y = a_0 + sum_i a_i f(x^i)
    ```

    Input shape: any. Output shape: the same. Weights: `coefficients` (order,), `a_1` first; `bias` (1,), `a_0`; and
    those of `f`, if it is a layer. A layer `f` computes in at least float32; it is built at the first call or `build`,
    so one whose weights depend on the input shape is not complete before then.

    Args:
        function: `f`: an activation name, a callable on tensors, or a layer, layer class, maker or config. A layer
            instance is cloned.
        order: integer, at least 1. The highest power. Defaults to `3`.
        power_first: bool. Type II instead of type I. Defaults to `False`.
        **kwargs: the coefficient and bias arguments of `PolyReLU`, and `name`, `dtype`, `trainable`.

    Raises:
        ValueError: unknown name or `order` not an integer of at least 1.
        TypeError: `function` is none of the above.

    Example:

    >>> import keras, keras_polycom
    >>> layer = keras_polycom.PolyCom("relu", order=2, coefficients_initializer=[1.0, 1.0], power_first=True)
    >>> [float(v) for v in layer(keras.ops.array([2.0, -2.0]))]
    [6.0, 4.0]

    Reference: Zhuo et al., Polynomial Composition Activations, arXiv 2411.03884, equation 1.
    """

    def __init__(self, function, order=3, power_first=False, **kwargs):
        super().__init__(order, **kwargs)
        self.function = activations.get(function, name="function", dtype=at_least_float32(self.compute_dtype))
        self.power_first = bool(power_first)
        self.built = getattr(self.function, "built", True)

    def build(self, input_shape):
        if not getattr(self.function, "built", True):
            self.function.build(input_shape)
        self.built = True

    def call(self, inputs):
        outputs = ops.poly_com(inputs, self.function, self.coefficients, self.bias, self.power_first)
        return keras.ops.cast(outputs, self.compute_dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "function": activations.serialize(self.function),
            "power_first": self.power_first,
        }
