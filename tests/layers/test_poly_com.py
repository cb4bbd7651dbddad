"""PolyCom: any function, by any name for it."""

import functools

import keras
import numpy as np
import pytest
from harness import call, check_layer
from reference_values import as_float64, assert_close

from keras_polycom import PolyCom, PolyNorm, PolyReLU, activations

X = np.array([[-2.0, -0.5, 0.0, 0.7, 1.5]], "float32")


@keras.saving.register_keras_serializable(package="tests")
def cubed(x):
    return x * x * x


def around_a_layer(dtype=None, **kwargs):
    return PolyCom(PolyReLU(order=2, dtype=dtype), order=2, dtype=dtype, **kwargs)


LAYERS = {
    "name": functools.partial(PolyCom, "tanh"),
    "name_type_2": functools.partial(PolyCom, "tanh", power_first=True),
    "our_name": functools.partial(PolyCom, "leaky_relu", order=2),
    "function": functools.partial(PolyCom, cubed, order=2),
    "layer": around_a_layer,
    "layer_class": functools.partial(PolyCom, PolyNorm, order=2),
    "layer_with_weights_of_its_input_shape": functools.partial(PolyCom, keras.layers.PReLU),
    "every_argument": functools.partial(
        PolyCom,
        "sigmoid",
        order=2,
        power_first=True,
        coefficients_initializer=[0.5, 0.3],
        coefficients_regularizer="l2",
        coefficients_constraint="non_neg",
        bias_initializer="ones",
        bias_regularizer="l1",
        bias_constraint="non_neg",
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name, rng):
    x = rng.standard_normal((2, 3, 5)).astype("float32")
    compiled = name in ("name", "layer")  # compiling takes longest
    check_layer(LAYERS[name], x, dynamic_shape=(3, 5) if "input_shape" in name else None, compiled=compiled)


def test_types():
    settings = {"order": 2, "coefficients_initializer": [0.6, 0.3]}
    rectified = np.maximum(X, 0)
    assert_close(PolyCom("relu", **settings)(X), 0.6 * rectified + 0.3 * rectified**2, 1e-6)
    assert_close(PolyCom("relu", power_first=True, **settings)(X), 0.6 * rectified + 0.3 * X**2, 1e-6)


def test_relu_gives_poly_relu():
    assert_close(PolyCom("relu")(X), PolyReLU()(X), 1e-6)


def test_an_instance_is_cloned_with_its_weights_and_not_shared():
    inner = PolyReLU(order=2, coefficients_initializer=[0.1, 0.9])
    inner.bias.assign([0.4])
    first, second = PolyCom(inner), PolyCom(inner)
    assert first.function is not inner and first.function is not second.function
    assert_close(first.function(X), inner(X), 0)
    inner.bias.assign([5.0])
    assert_close(first.function.bias, [0.4], 1e-7)
    assert len(first.trainable_variables) == 4


def test_a_layer_computes_in_float32_under_a_mixed_policy():
    layer = PolyCom(PolyReLU, order=2, dtype="mixed_float16")
    assert layer.function.compute_dtype == "float32"
    y = layer(np.array([[20.0, -1.0]], "float16"))
    assert keras.backend.standardize_dtype(y.dtype) == "float16"
    inner = (20.0 + 400 + 8000) / 3
    assert np.isposinf(as_float64(y)[0, 0]) and (inner + inner**2) / 2 > 65504
    assert as_float64(y)[0, 1] == 0


def test_serialized_names_stay_names():
    assert PolyCom("relu2").get_config()["function"] == "relu2"
    assert PolyCom(keras.ops.silu).get_config()["function"] == "silu"
    assert PolyCom(activations.get("gelu")).get_config()["function"] == "gelu"


def test_bad_functions():
    with pytest.raises(ValueError, match="Unknown activation 'nosuch'. Known names: .*poly_norm"):
        PolyCom("nosuch")
    with pytest.raises(TypeError, match="An activation is given as a name"):
        PolyCom(3.0)


@pytest.mark.parametrize("name", ["poly_relu", "poly_norm", "mish", "relu2", "softplus"])
def test_known_activations_by_name(name):
    direct = as_float64(activations.get(name)(X))
    assert_close(call(PolyCom(name, order=2), [X]), (direct + direct**2) / 2, 1e-5)
