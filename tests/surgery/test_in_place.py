"""Other activations in the layers of a model itself, and a file that keeps them."""

import keras
import numpy as np
import pytest

from keras_polycom import PolyNorm, PolyReLU, replace_activations, surgery


def values(x):
    return np.array(keras.ops.convert_to_numpy(x))


def rectifier():
    return PolyReLU(coefficients_initializer=[1.0, 0.0, 0.0])


@keras.saving.register_keras_serializable(package="tests")
class Block(keras.layers.Layer):
    """Makes its parts when it is built, and cannot be made anew from its config."""

    def __init__(self, width, **kwargs):
        super().__init__(**kwargs)
        self.width = width

    def build(self, input_shape):
        self.dense = keras.layers.Dense(self.width, activation="relu", name="dense")
        self.dense.build(input_shape)
        self.rectified = keras.layers.ReLU(name="rectified")

    def call(self, inputs):
        return self.rectified(self.dense(inputs) - 0.5)

    def get_config(self):
        return {**super().get_config(), "surprise": self.width}


@keras.saving.register_keras_serializable(package="tests")
class Stubborn(keras.Model):
    """A subclassed model, made anew by its own config."""

    def __init__(self, width, **kwargs):
        super().__init__(**kwargs)
        self.width = width
        self.block = Block(width, name="block")

    def build(self, input_shape):
        self.block.build(input_shape)
        self.built = True

    def call(self, inputs):
        return self.block(inputs)

    def get_config(self):
        return {"width": self.width, "name": self.name}


@pytest.fixture
def model():
    model = Stubborn(4)
    model.build((None, 6))
    return model


@pytest.fixture
def x(rng):
    return rng.standard_normal((5, 6)).astype("float32")


def test_predicts_the_same_and_reports(model, x):
    before = values(model(x))
    swapped = surgery.replace_activations_in_place(model, {"relu": rectifier})
    assert sorted(site.path.split("/")[-1] for site in swapped.report.replaced) == [
        "block.rectified",
        "dense.activation",
    ]
    np.testing.assert_allclose(values(swapped(x)), before, atol=1e-6)
    np.testing.assert_allclose(values(model(x)), before, atol=1e-6)
    assert len(model.trainable_variables) == 2 + 2 * 2


def test_compiled_functions_are_not_stale(model, x):
    model.compile("sgd", "mse", jit_compile=False)
    before = model.predict(x, verbose=0)
    swapped = surgery.replace_activations_in_place(model, {"relu": PolyNorm})
    after = model.predict(x, verbose=0)
    assert np.abs(after - before).max() > 0.1
    np.testing.assert_allclose(swapped.predict(x, verbose=0), after, rtol=1e-6)
    assert swapped.evaluate(x, after, verbose=0) < 1e-10


def test_trained_saved_and_loaded(model, x, tmp_path):
    swapped = surgery.replace_activations_in_place(model, {"relu": PolyNorm})
    swapped.compile("sgd", "mse", jit_compile=False)
    swapped.fit(x, np.ones((5, 4), "float32"), verbose=0)
    expected = swapped.predict(x, verbose=0)
    swapped.save(tmp_path / "swapped.keras")
    loaded = keras.saving.load_model(tmp_path / "swapped.keras")
    assert isinstance(loaded.model.block.dense.activation, PolyNorm)
    np.testing.assert_allclose(loaded.predict(x, verbose=0), expected, rtol=1e-6)
    swapped.save_weights(tmp_path / "swapped.weights.h5")
    fresh = Stubborn(4)
    fresh.build((None, 6))
    fresh = surgery.replace_activations_in_place(fresh, {"relu": PolyNorm})
    fresh.load_weights(tmp_path / "swapped.weights.h5")
    fresh.compile(jit_compile=False)  # as the other two
    np.testing.assert_allclose(fresh.predict(x, verbose=0), expected, rtol=1e-6)


def learned(*coefficients):
    """An instance with other weights than its config tells of."""
    layer = PolyNorm()
    layer.set_weights([np.array(coefficients, "float32"), np.array([0.1], "float32")])
    return layer


def test_an_instance_takes_its_weights_along(model, x, tmp_path):
    instance = learned(0.7, -0.2, 0.4)
    swapped = surgery.replace_activations_in_place(model, {"relu": instance})
    for layer in (model.block.rectified, model.block.dense.activation):
        assert layer is not instance
        np.testing.assert_array_equal(values(layer.coefficients), values(instance.coefficients))
    expected = values(swapped(x))
    swapped.save(tmp_path / "swapped.keras")
    np.testing.assert_allclose(values(keras.saving.load_model(tmp_path / "swapped.keras")(x)), expected, rtol=1e-6)


def test_an_instance_leaves_its_like_alone(x):
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(6, "relu"), learned(0.2, 0.5, 0.1)])
    instance = learned(0.7, -0.2, 0.4)
    surgery.replace_activations_in_place(model, {"relu": instance})
    np.testing.assert_allclose(values(model.layers[0].activation.coefficients), [0.7, -0.2, 0.4], rtol=1e-6)
    np.testing.assert_allclose(values(model.layers[1].coefficients), [0.2, 0.5, 0.1], rtol=1e-6)


def test_keras_hub_vit(rng, tmp_path):
    keras_hub = pytest.importorskip("keras_hub")
    model = keras_hub.models.ViTBackbone(
        image_shape=(16, 16, 3), patch_size=8, num_layers=2, num_heads=2, hidden_dim=8, mlp_dim=12
    )
    with pytest.raises(ValueError, match="(?s)not rebuilt by its own config.*replace_activations_in_place"):
        replace_activations(model, {"gelu": PolyNorm})
    x = rng.standard_normal((2, 16, 16, 3)).astype("float32")
    before = values(model(x))
    swapped = surgery.replace_activations_in_place(model, {"gelu": PolyNorm})
    assert len(swapped.report.replaced) == 2
    expected = values(swapped(x))
    assert np.abs(expected - before).max() > 1e-3
    swapped.save(tmp_path / "swapped.keras")
    np.testing.assert_allclose(
        values(keras.saving.load_model(tmp_path / "swapped.keras")(x)), expected, rtol=1e-5, atol=1e-6
    )


class WithAttributes(keras.Model):
    """Keeps its rectifiers in attributes of its own."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(4)
        self.rectify = keras.layers.ReLU()
        self.activation = keras.ops.relu

    def call(self, inputs):
        return self.activation(self.rectify(self.dense(inputs)) - 0.5)


def test_attributes_of_the_model_itself(x):
    model = WithAttributes()
    before = values(model(x))
    swapped = surgery.replace_activations_in_place(model, {"relu": rectifier})
    assert isinstance(model.rectify, PolyReLU) and isinstance(model.activation, PolyReLU)
    np.testing.assert_allclose(values(swapped(x)), before, atol=1e-6)
    assert len(model.trainable_variables) == 2 + 2 * 2


def test_only_and_errors(model, x):
    swapped = surgery.replace_activations_in_place(model, {"relu": PolyNorm}, only=keras.layers.Dense)
    assert [site.path.split("/")[-1] for site in swapped.report.replaced] == ["dense.activation"]
    with pytest.raises(ValueError, match=r"'gelu'. The model has: .*relu"):
        surgery.replace_activations_in_place(model, {"gelu": PolyNorm})
    with pytest.raises(ValueError, match="must be built"):
        surgery.replace_activations_in_place(Stubborn(4), {"relu": PolyNorm})
    with pytest.raises(TypeError, match="must be a dict"):
        surgery.replace_activations_in_place(model, [])


def test_a_node_of_a_functional_model_is_out_of_reach():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4), keras.layers.ReLU(name="node")])
    with pytest.raises(ValueError, match="node cannot be replaced: a ReLU layer keeps no activation"):
        surgery.replace_activations_in_place(model, {"relu": PolyNorm})


def test_swaps_of_another_model_are_refused(model):
    swaps = surgery.replace_activations_in_place(model, {"relu": PolyNorm}).get_config()["swaps"]
    other = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4)])
    with pytest.raises(ValueError, match="it is not the one whose activations were replaced"):
        surgery.SwappedModel(other, swaps)
