"""Names, classes, configs, makers and instances."""

import json

import keras
import numpy as np
import pytest
from reference_values import assert_close

from keras_polycom import PolyNorm, PolyReLU
from keras_polycom.registry import Registry


@pytest.fixture
def registry():
    made = Registry("block", fallback=keras.activations.get, fallback_names=["relu", "leaky_relu"], functions=True)
    made.register("poly_norm", "pn")(PolyNorm)
    made.register("square")(keras.ops.square)
    made.register("leaky_relu")(_small_slope)
    return made


def _small_slope(x):
    return keras.ops.leaky_relu(x, negative_slope=0.01)


def order_two(name=None):
    return PolyNorm(order=2, name=name)


IDENTIFIERS = {
    "name": "pn",
    "class": PolyReLU,
    "maker": order_two,
    "maker_without_name": lambda: PolyNorm(order=2),
    "instance": PolyNorm(order=2),
    "config": keras.saving.serialize_keras_object(PolyNorm(order=2)),
}


@pytest.mark.parametrize("form", IDENTIFIERS)
def test_every_form_makes_a_fresh_layer_of_the_given_name(registry, form):
    first = registry.get(IDENTIFIERS[form], name="act")
    second = registry.get(IDENTIFIERS[form], name="act")
    assert isinstance(first, keras.layers.Layer)
    assert first.name == second.name == "act"
    assert first is not second and first is not IDENTIFIERS[form]
    assert not {id(v) for v in first.variables} & {id(v) for v in second.variables}


@pytest.mark.parametrize("form", IDENTIFIERS)
def test_serialized_forms_are_json_and_make_the_same(registry, form):
    config = registry.serialize(IDENTIFIERS[form])
    assert registry.serialize(config) == config
    made = registry.get(json.loads(json.dumps(config)))
    original = registry.get(IDENTIFIERS[form])
    assert type(made) is type(original)
    assert made.order == original.order


def test_functions(registry):
    assert registry.get("square") is keras.ops.square
    assert registry.get(keras.ops.tanh) is keras.ops.tanh
    assert isinstance(registry.get_layer("square"), keras.layers.Activation)
    assert isinstance(registry.get_layer("pn"), PolyNorm)


def test_ours_come_first(registry):
    assert registry.get("leaky_relu") is _small_slope
    assert registry.get("relu") is keras.activations.relu
    assert registry.names() == ["leaky_relu", "pn", "poly_norm", "square", "relu"]


def test_serialization_never_changes_the_function(registry):
    """keras.activations.leaky_relu was written as "leaky_relu", which is another function here."""
    assert registry.serialize(_small_slope) == "leaky_relu"
    config = registry.serialize(keras.activations.leaky_relu)
    assert registry.get(config) is keras.activations.leaky_relu
    same = registry.get(registry.serialize(keras.ops.tanh))
    assert_close(same(np.array([0.5])), np.tanh([0.5]), 1e-6)
    with pytest.raises(ValueError, match="gelu.* cannot be written to a config.*other numbers"):
        registry.serialize(keras.ops.gelu)


def test_an_instance_is_cloned_with_its_weights(registry):
    layer = PolyReLU(order=2, coefficients_initializer=[0.1, 0.7])
    layer.bias.assign([0.3])
    clone = registry.get(layer)
    assert_close(clone(np.array([2.0])), layer(np.array([2.0])), 0)
    layer.bias.assign([9.0])
    assert_close(clone.bias, [0.3], 1e-7)


def test_a_built_instance_with_weights_of_its_input_shape_is_cloned_with_them(registry):
    layer = keras.layers.PReLU()
    layer.build((None, 3))
    layer.set_weights([np.array([0.1, 0.2, 0.3])])
    assert_close(registry.get(layer)(-np.ones((1, 3), "float32")), [[-0.1, -0.2, -0.3]], 1e-6)


def test_arguments_reach_only_what_takes_them(registry):
    assert registry.get("pn", order=4, unknown=1).order == 4


@pytest.mark.parametrize(
    ("identifier", "error", "message"),
    [
        ("nosuch", ValueError, "Unknown block 'nosuch'. Known names: leaky_relu, pn, poly_norm, square, relu"),
        (3, TypeError, "Received: 3, a int"),
        (None, TypeError, "a NoneType"),
        (dict, TypeError, "a class that is not a keras.layers.Layer"),
        (lambda: 3, TypeError, "a maker that returned 3"),
    ],
    ids=["name", "number", "none", "class", "maker"],
)
def test_bad_identifiers(registry, identifier, error, message):
    with pytest.raises(error, match=message):
        registry.get(identifier)


def test_a_name_is_registered_once(registry):
    with pytest.raises(ValueError, match="'pn' is registered already"):
        registry.register("pn")(PolyReLU)
