"""PolyReLU and PolyPReLU [PolyCom]."""

import keras

from keras_polycom import activations, ops
from keras_polycom.layers.initial_values import get_initializer
from keras_polycom.layers.polynomial import Polynomial


@activations.register("poly_relu")
@keras.saving.register_keras_serializable(package="keras_polycom")
class PolyReLU(Polynomial):
    """Learnable polynomial of the rectifier.

    Formula:

    ```
    y = a_0 + a_1 relu(x) + a_2 relu(x)^2 + ... + a_r relu(x)^r
    ```

    Input shape: any. Output shape: the same. Weights: `coefficients` (order,), `a_1` first; `bias` (1,), `a_0`.

    Args:
        order: integer, at least 1. The highest power `r`. Defaults to `3`.
        coefficients_initializer: initializer, or the `order` values themselves, `a_1` first; `None` for `1 / order`
            each. Defaults to `None`.
        coefficients_regularizer: optional regularizer. Defaults to `None`.
        coefficients_constraint: optional constraint. Defaults to `None`.
        bias_initializer: initializer of `a_0`. Defaults to `"zeros"`.
        bias_regularizer: optional regularizer. Defaults to `None`.
        bias_constraint: optional constraint. Defaults to `None`.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Raises:
        ValueError: `order` is not an integer of at least 1, or the wrong number of initial values.

    Example:

    >>> import keras, keras_polycom
    >>> layer = keras_polycom.PolyReLU(order=2, coefficients_initializer=[0.5, 0.25])
    >>> [float(v) for v in layer(keras.ops.array([-1.0, 1.0, 2.0]))]
    [0.0, 0.75, 2.0]

    Reference: Zhuo et al., Polynomial Composition Activations, arXiv 2411.03884, equation 2.
    """

    def call(self, inputs):
        return keras.ops.cast(ops.poly_relu(inputs, self.coefficients, self.bias), self.compute_dtype)


@activations.register("poly_prelu")
@keras.saving.register_keras_serializable(package="keras_polycom")
class PolyPReLU(Polynomial):
    """Learnable polynomial of the rectifier with a learnable negative slope.

    Formula, with `f(x) = max(x, 0) + alpha min(x, 0)`:

    ```
    y = a_0 + a_1 f(x) + a_2 f(x)^2 + ... + a_r f(x)^r
    ```

    Input shape: any. Output shape: the same. Weights: `coefficients` (order,), `bias` (1,), `alpha` (1,).

    Args:
        order: integer, at least 1. The highest power `r`. Defaults to `3`.
        alpha_initializer: initializer of the negative slope. Defaults to `0.25`, as for PReLU.
        alpha_regularizer: optional regularizer. Defaults to `None`.
        alpha_constraint: optional constraint. Defaults to `None`.
        **kwargs: the coefficient and bias arguments of `PolyReLU`, and `name`, `dtype`, `trainable`.

    Raises:
        ValueError: `order` is not an integer of at least 1, or the wrong number of initial values.

    Example:

    >>> import keras, keras_polycom
    >>> layer = keras_polycom.PolyPReLU(order=2, coefficients_initializer=[1.0, 1.0])
    >>> [float(v) for v in layer(keras.ops.array([-2.0, 2.0]))]
    [-0.25, 6.0]

    Reference: Zhuo et al., arXiv 2411.03884, equation 1 (type I) with PReLU.
    """

    def __init__(
        self,
        order=3,
        *,
        alpha_initializer=None,
        alpha_regularizer=None,
        alpha_constraint=None,
        **kwargs,
    ):
        super().__init__(order, **kwargs)
        if alpha_initializer is None:
            alpha_initializer = keras.initializers.Constant(0.25)
        self.alpha_initializer = get_initializer(alpha_initializer, "alpha_initializer", (1,))
        self.alpha_regularizer = keras.regularizers.get(alpha_regularizer)
        self.alpha_constraint = keras.constraints.get(alpha_constraint)
        self.alpha = self.add_weight(
            name="alpha",
            shape=(1,),
            initializer=self.alpha_initializer,
            regularizer=self.alpha_regularizer,
            constraint=self.alpha_constraint,
            autocast=False,
        )

    def call(self, inputs):
        outputs = ops.poly_prelu(inputs, self.coefficients, self.alpha, self.bias)
        return keras.ops.cast(outputs, self.compute_dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "alpha_initializer": keras.initializers.serialize(self.alpha_initializer),
            "alpha_regularizer": keras.regularizers.serialize(self.alpha_regularizer),
            "alpha_constraint": keras.constraints.serialize(self.alpha_constraint),
        }
