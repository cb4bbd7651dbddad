"""Initial values instead of initializers: sequences, arrays and tensors, through a file and back (CASES 004, 031)."""

import keras
import numpy as np
import pytest

import keras_polycom
from keras_polycom import layers

NUMBERS = [0.5, -0.3, 0.2]
FORMS = {
    "list": list,
    "tuple": tuple,
    "array": np.array,
    "float32 array": lambda values: np.array(values, "float32"),
    "tensor": keras.ops.array,
    "variable": keras.Variable,
}


def values(x):
    return np.array(keras.ops.convert_to_numpy(x))


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("layer_class", [keras_polycom.PolyReLU, keras_polycom.PolyNorm, keras_polycom.PolyReLUNorm])
def test_coefficients(layer_class, form, tmp_path):
    layer = layer_class(coefficients_initializer=form(NUMBERS), bias_initializer=form([0.25]))
    model = keras.Sequential([keras.Input((4,)), layer])
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras").layers[0]
    fresh = layer_class.from_config(loaded.get_config())
    for made in (layer, loaded, fresh):
        np.testing.assert_allclose(values(made.coefficients), NUMBERS, rtol=1e-6)
        np.testing.assert_allclose(values(made.bias), [0.25])


def test_coefficients_per_group():
    own = np.array([NUMBERS, [1.0, 2.0, 3.0]])
    layer = layers.GroupedPolyNorm(2, coefficients_initializer=own, bias_initializer=[0.1, 0.2])
    np.testing.assert_allclose(values(layer.coefficients), own, rtol=1e-6)
    np.testing.assert_allclose(values(layer.bias), [0.1, 0.2], rtol=1e-6)
    shared = layers.GroupedPolyNorm(2, coefficients_initializer=NUMBERS)
    np.testing.assert_allclose(values(shared.coefficients), [NUMBERS, NUMBERS], rtol=1e-6)


TWO = {"hidden_dim": 4, "activations": ["relu", "tanh"]}
PLACES = {
    "alpha": (keras_polycom.PolyPReLU, {}, "alpha", (1,)),
    "gamma": (keras_polycom.PLN, {"norm_size": 4}, "gamma", (8,)),
    "beta": (keras_polycom.PLN, {"norm_size": 4}, "beta", (8,)),
    "mixing weights": (keras_polycom.LAFeedForward, TWO, "mixing", (2,)),
    "mixing kernel": (keras_polycom.MoAFeedForward, TWO, "mixing", (8, 2)),
    "class token": (layers.ClassToken, {}, "token", (1, 1, 8)),
    "position table": (layers.PositionEmbedding, {}, "table", (1, 3, 8)),
}


@pytest.mark.parametrize(("layer_class", "arguments", "weight", "shape"), PLACES.values(), ids=PLACES)
def test_every_other_weight(layer_class, arguments, weight, shape, rng):
    wanted = rng.uniform(0.1, 1, shape).astype("float32")
    layer = layer_class(**arguments, **{f"{weight}_initializer": wanted})
    for made in (layer, layer_class.from_config(layer.get_config())):
        made(np.ones((2, 3, 8), "float32"))
        assert any(np.array_equal(values(w), wanted) for w in made.weights)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"coefficients_initializer": np.ones(2)}, r"`coefficients_initializer` .* of the shape \(3,\).*\(2,\)"),
        ({"coefficients_initializer": [1.0, np.inf, 0.0]}, "`coefficients_initializer` .* finite"),
        ({"coefficients_initializer": ["a", "b", "c"]}, "`coefficients_initializer` given as values must hold numbers"),
        ({"bias_initializer": np.zeros(3)}, r"`bias_initializer` .* of the shape \(1,\)"),
    ],
    ids=["too few", "infinite", "words", "bias"],
)
def test_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        keras_polycom.PolyNorm(**arguments)


def test_refused_per_group():
    with pytest.raises(ValueError, match=r"`coefficients_initializer` .* \(3,\) or \(2, 3\)"):
        layers.GroupedPolyNorm(2, coefficients_initializer=np.ones((3, 3)))
