"""PolyNorm [PolyCom, eq. 3], with the stabilised and the per-expert form used in Motif 3."""

import math

import keras

from keras_polycom import activations, ops
from keras_polycom.layers.polynomial import Polynomial
from keras_polycom.ops._numerics import check_axis, check_count, check_epsilon, normalize_axis
from keras_polycom.ops.poly_norm import EPSILON

_TRANSFORMS = (None, "sigmoid")


class NormalizedPolynomial(Polynomial):
    """Base of the layers around PolyNorm: axis, epsilon and the stabilised form. See `PolyNorm`."""

    def __init__(
        self,
        order=3,
        axis=-1,
        epsilon=EPSILON,
        *,
        coefficient_transform=None,
        bias_limit=None,
        output_scale=None,
        coefficients_initializer=None,
        **kwargs,
    ):
        if coefficient_transform not in _TRANSFORMS:
            raise ValueError(f"`coefficient_transform` must be None or 'sigmoid'. Received: {coefficient_transform!r}")
        if bias_limit is not None and not bias_limit >= 0:
            raise ValueError(f"`bias_limit` must be None or at least 0. Received: {bias_limit!r}")
        if coefficient_transform == "sigmoid" and coefficients_initializer is None:
            if check_count(order, "order") == 1:
                raise ValueError(
                    "With order=1 the coefficient would start at 1, which no sigmoid reaches. Give "
                    "`coefficients_initializer` (before the sigmoid) or a higher order."
                )
            kwargs["_initial_coefficient"] = -math.log(order - 1)  # sigmoid of it is 1 / order
        super().__init__(order, coefficients_initializer=coefficients_initializer, **kwargs)
        self.axis = check_axis(axis)
        self.epsilon = check_epsilon(epsilon)
        self.coefficient_transform = coefficient_transform
        self.bias_limit = bias_limit
        self.output_scale = output_scale

    def build(self, input_shape):
        normalize_axis(self.axis, len(input_shape))
        self.built = True

    def compute_output_shape(self, input_shape):
        normalize_axis(self.axis, len(input_shape))
        return input_shape

    @property
    def effective_coefficients(self):
        """The `a_i` that enter the formula: the weights, or their sigmoid."""
        weights = keras.ops.convert_to_tensor(self.coefficients)
        return weights if self.coefficient_transform is None else keras.ops.sigmoid(weights)

    @property
    def effective_bias(self):
        """The `a_0` that enters the formula: the weight, or the weight clipped to `bias_limit`."""
        bias = keras.ops.convert_to_tensor(self.bias)
        return bias if self.bias_limit is None else keras.ops.clip(bias, -self.bias_limit, self.bias_limit)

    def _formula_weights(self):
        # `output_scale` is folded into the few coefficients rather than multiplied onto the whole output.
        scale = 1.0 if self.output_scale is None else self.output_scale
        return scale * self.effective_coefficients, scale * self.effective_bias

    def get_config(self):
        return {
            **super().get_config(),
            "axis": self.axis,
            "epsilon": self.epsilon,
            "coefficient_transform": self.coefficient_transform,
            "bias_limit": self.bias_limit,
            "output_scale": self.output_scale,
        }


@activations.register("poly_norm")
@keras.saving.register_keras_serializable(package="keras_polycom")
class PolyNorm(NormalizedPolynomial):
    """Learnable polynomial of powers that are each normalized by their root mean square.

    Formula, means taken over `axis`:

    ```
    y = a_0 + sum_i a_i norm(x^i),    norm(z) = z / sqrt(mean(z^2) + epsilon)
    ```

    and in the stabilised form of Motif 3, where `w_i` are the weights:

    ```
    y = output_scale * (sum_i sigmoid(w_i) norm(x^i) + clip(bias, -bias_limit, bias_limit))
    ```

    Every finite input has a finite, accurate output, at any magnitude and in any float dtype.

    Input shape: any of rank at least 1. Output shape: the same. Weights: `coefficients` (order,), `a_1` first; `bias`
    (1,), `a_0`.

    Args:
        order: integer, at least 1. The highest power. Defaults to `3`.
        axis: integer. The axis of the means; the channel axis in a convolutional model. Defaults to `-1`.
        epsilon: float, added to each mean square; 0 is legal: a row of zeros then gives exactly `a_0` and zero
            gradients. Defaults to `1e-6`.
        coefficient_transform: `None`, or `"sigmoid"` to pass the coefficients through a sigmoid. Defaults to `None`.
        bias_limit: float or `None`. The bias is clipped to plus or minus this. Defaults to `None`.
        output_scale: float or `None`. A constant factor on the output. Defaults to `None`.
        coefficients_initializer: initializer, or the `order` values themselves, `a_1` first, before the transform;
            `None` for effective coefficients of `1 / order` each. Defaults to `None`.
        coefficients_regularizer: optional regularizer. Defaults to `None`.
        coefficients_constraint: optional constraint. Defaults to `None`.
        bias_initializer: initializer of `a_0`. Defaults to `"zeros"`.
        bias_regularizer: optional regularizer. Defaults to `None`.
        bias_constraint: optional constraint. Defaults to `None`.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Raises:
        ValueError: an argument outside the ranges above, or an `axis` that the input does not have.

    Example:

    >>> import keras, keras_polycom
    >>> layer = keras_polycom.PolyNorm()
    >>> y = layer(keras.ops.array([[-2.0, -1.0, 0.0, 1.0, 2.0]]))
    >>> [round(float(v), 4) for v in y[0]]
    [-0.4831, -0.1732, 0.0, 0.4289, 1.5057]

    Reference: Zhuo et al., Polynomial Composition Activations, arXiv 2411.03884, equation 3 (the root mean square of
    the paper's code, not the L2 norm of its equation). The stabilised form is that of the gate branch of Motif 3.
    """

    def call(self, inputs):
        outputs = ops.poly_norm(inputs, *self._formula_weights(), axis=self.axis, epsilon=self.epsilon)
        return keras.ops.cast(outputs, self.compute_dtype)


@activations.register("poly_relu_norm")
@keras.saving.register_keras_serializable(package="keras_polycom")
class PolyReLUNorm(NormalizedPolynomial):
    """PolyNorm of the rectifier.

    Formula, means taken over `axis`:

    ```
    y = a_0 + sum_i a_i norm(relu(x)^i),    norm(z) = z / sqrt(mean(z^2) + epsilon)
    ```

    Shapes, weights, arguments and errors are those of `PolyNorm`.

    Example:

    >>> import keras, keras_polycom
    >>> layer = keras_polycom.PolyReLUNorm(order=1)
    >>> y = layer(keras.ops.array([[-5.0, 2.0]]))
    >>> [round(float(v), 4) for v in y[0]]
    [0.0, 1.4142]

    Reference: Zhuo et al., arXiv 2411.03884, the ablation of section 4.
    """

    def call(self, inputs):
        outputs = ops.poly_relu_norm(inputs, *self._formula_weights(), axis=self.axis, epsilon=self.epsilon)
        return keras.ops.cast(outputs, self.compute_dtype)


@keras.saving.register_keras_serializable(package="keras_polycom")
class GroupedPolyNorm(NormalizedPolynomial):
    """PolyNorm with one set of coefficients per group, as for the experts of a mixture.

    Formula, for an element of `x` whose leading position belongs to group g, means taken over `axis`:

    ```
    y = b[g] + sum_i a[g, i] norm(x^i),    norm(z) = z / sqrt(mean(z^2) + epsilon)
    ```

    Call arguments: `inputs`, any tensor of rank at least 2, and `group_index`, an integer tensor with the shape of its
    leading axes: (tokens,) for (tokens, width), (batch, tokens) for (batch, tokens, width), (experts,) for expert
    buffers (experts, capacity, width). It may be left out when there is one group. An index outside
    `[0, num_groups)` is a `ValueError` where its values can be seen (outside compiled functions); elsewhere it is
    clipped to the nearest group, never wrapped. Rows do not mix: padding rows of a buffer change nothing in the
    others, and come out as whatever the formula gives for them (a row of zeros as its group's bias).

    Output shape: that of `inputs`. Weights: `coefficients` (num_groups, order), `a_1` first; `bias` (num_groups,).

    Args:
        num_groups: integer, at least 1.
        order: integer, at least 1. The highest power. Defaults to `3`.
        axis: integer. The axis of the means, behind the axes `group_index` covers. Defaults to `-1`.
        epsilon: float, added to each mean square. Defaults to `1e-6`.
        **kwargs: `coefficient_transform`, `bias_limit`, `output_scale` and the initializer, regularizer and constraint
            arguments of `PolyNorm`; initial values of shape (order,) hold for every group, those of shape (num_groups,
            order) give each its own.

    Raises:
        ValueError: an argument out of range, shapes that do not fit, or an index out of range.
        TypeError: `group_index` is not of an integer dtype.

    Example:

    >>> import keras, keras_polycom
    >>> layer = keras_polycom.GroupedPolyNorm(num_groups=4, order=2)
    >>> y = layer(keras.ops.array([[1.0, -1.0], [1.0, -1.0]]), group_index=keras.ops.array([0, 3]))
    >>> [[round(float(v), 3) for v in row] for row in y]
    [[1.0, 0.0], [1.0, 0.0]]

    Source: the per-expert PolyNorm of Motif 3 (384 experts, three coefficients and one bias each).
    """

    def __init__(self, num_groups, order=3, axis=-1, epsilon=EPSILON, **kwargs):
        check_count(num_groups, "num_groups")
        super().__init__(order, axis, epsilon, _group_shape=(num_groups,), **kwargs)
        self.num_groups = num_groups

    def build(self, inputs_shape, group_index_shape=None):
        super().build(inputs_shape)

    def call(self, inputs, group_index=None):
        if group_index is None:
            if self.num_groups > 1:
                raise ValueError(
                    f"With num_groups={self.num_groups}, `group_index` must say which group each leading position of "
                    f"`inputs` belongs to. Received: group_index=None, inputs of shape {tuple(inputs.shape)}"
                )
            return self._cast(ops.poly_norm(inputs, *self._single_group(), axis=self.axis, epsilon=self.epsilon))
        ops.check_index_range(group_index, self.num_groups, "group_index")
        coefficients, bias = self._formula_weights()
        return self._cast(
            ops.grouped_poly_norm(inputs, coefficients, bias, group_index, axis=self.axis, epsilon=self.epsilon)
        )

    def compute_output_shape(self, inputs_shape, group_index_shape=None):
        return super().compute_output_shape(inputs_shape)

    def get_config(self):
        return {**super().get_config(), "num_groups": self.num_groups}

    def _single_group(self):
        coefficients, bias = self._formula_weights()
        return coefficients[0], bias

    def _cast(self, outputs):
        return keras.ops.cast(outputs, self.compute_dtype)
