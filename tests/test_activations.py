"""Activations by name."""

import keras
import numpy as np
import pytest
from reference_values import as_float64, assert_close

import keras_polycom
from keras_polycom import activations, feed_forwards

DICTIONARY = {  # CASES 024: values at 1.5 and -1.5
    "relu": (1.5, 0.0),
    "relu2": (2.25, 0.0),
    "gelu": (1.3998, -0.1002),
    "silu": (1.2264, -0.2736),
    "leaky_relu": (1.5, -0.015),
    "tanh": (0.9051, -0.9051),
    "identity": (1.5, -1.5),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", DICTIONARY)
def test_values_of_the_papers(name, dtype):
    y = activations.get(name)(keras.ops.convert_to_tensor([1.5, -1.5], dtype=dtype))
    assert_close(y, DICTIONARY[name], 1e-4)
    assert keras.backend.standardize_dtype(y.dtype) == dtype


@pytest.mark.parametrize("name", ["poly_relu", "poly_norm", "poly_prelu", "poly_relu_norm"])
def test_our_layers_have_names(name):
    layer = activations.get(name)
    assert isinstance(layer, keras.layers.Layer)
    assert layer is not activations.get(name)
    assert len(layer.trainable_variables) >= 2


@pytest.mark.parametrize("name", [n for n in activations.names() if hasattr(keras.activations, n)])
def test_keras_names(name):
    function = activations.get(name)
    x = np.linspace(-2, 2, 6, dtype="float32")[None]
    if name == "leaky_relu":
        assert_close(function(x), np.where(x > 0, x, 0.01 * x), 1e-6)
    else:
        assert_close(function(x), as_float64(keras.activations.get(name)(x)), 1e-6)


def test_unknown_names_list_the_known_ones():
    with pytest.raises(ValueError, match="Unknown activation 'relu9'.*poly_norm.*poly_relu.*sigmoid"):
        activations.get("relu9")


def test_feed_forwards_by_name():
    made = feed_forwards.get("glu", hidden_dim=5, activation="poly_norm")
    assert isinstance(made, keras_polycom.GatedFeedForward)
    assert isinstance(made.activation, keras_polycom.PolyNorm)
    assert feed_forwards.get("swiglu", hidden_dim=5, activation="relu").get_config()["activation"] == "silu"
    assert feed_forwards.get("geglu", hidden_dim=5).get_config()["activation"] == "gelu"
    assert isinstance(feed_forwards.get("poly_norm_glu", hidden_dim=5).activation, keras_polycom.PolyNorm)
    assert feed_forwards.is_gated("glu") and feed_forwards.is_gated("swiglu") and not feed_forwards.is_gated("mlp")
