"""The polynomial layers as `activation=` of other layers: complete from the start (CASES 004)."""

import json

import keras
import numpy as np
import pytest
from harness import check_compiled_training
from reference_values import as_float64, assert_close

from keras_polycom import FeedForward, MoAFeedForward, ParallelLayerNormalization, PolyNorm, PolyReLU


def network(units=3):
    return keras.Sequential(
        [
            keras.Input((6, 6, 2)),
            keras.layers.Conv2D(4, 3, activation=PolyReLU()),
            keras.layers.Flatten(),
            keras.layers.Dense(8, activation=PolyNorm()),
            keras.layers.Dense(units),
        ]
    )


def set_coefficients(model):
    for layer in (model.layers[0].activation, model.layers[2].activation):
        layer.set_weights([np.array([0.3, 0.2, 0.1]), np.array([0.5])])


@pytest.fixture
def images(rng):
    return rng.standard_normal((3, 6, 6, 2)).astype("float32")


def test_counted_before_any_call():
    dense = (4 * 3 * 3 * 2 + 4) + (64 * 8 + 8) + (8 * 3 + 3)
    model = network()
    lines = []
    model.summary(print_fn=lines.append)
    assert model.count_params() == dense + 2 * 4
    assert f"{dense + 8}" in "".join(lines).replace(",", "")


@pytest.mark.parametrize("kind", ["model.keras", "model.weights.h5"])
def test_saved_and_reloaded(kind, images, tmp_path):
    model = network()
    set_coefficients(model)
    expected = model.predict(images, verbose=0)
    if kind == "model.keras":
        model.save(tmp_path / kind)
        loaded = keras.saving.load_model(tmp_path / kind)
    else:
        model.save_weights(tmp_path / kind)
        loaded = network()
        loaded.load_weights(tmp_path / kind)
    assert len(loaded.variables) == len(model.variables)
    assert_close(loaded.layers[2].activation.coefficients, [0.3, 0.2, 0.1], 1e-7)
    assert_close(loaded.predict(images, verbose=0), expected, 1e-6)


def test_dense_is_rebuilt_from_its_config():
    layer = keras.layers.Dense(8, activation=PolyNorm(order=2))
    twin = keras.layers.Dense.from_config(json.loads(json.dumps(layer.get_config())))
    assert isinstance(twin.activation, PolyNorm) and twin.activation.order == 2
    assert len(twin.trainable_variables) == 2


def test_cloned_without_sharing(images):
    model = network()
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    assert_close(clone.predict(images, verbose=0), model.predict(images, verbose=0), 1e-6)
    set_coefficients(clone)
    assert_close(model.layers[2].activation.coefficients, np.full(3, 1 / 3), 1e-7)
    assert not {id(v) for v in model.variables} & {id(v) for v in clone.variables}


def test_an_optimizer_built_first_trains_them(images):
    model = network()
    optimizer = keras.optimizers.Adam(0.01)
    optimizer.build(model.trainable_variables)
    model.compile(optimizer, "mse", jit_compile=False)
    before = [as_float64(v) for v in model.trainable_variables]
    model.fit(images, np.ones((3, 3)), epochs=1, verbose=0)
    assert all(np.any(as_float64(v) != b) for v, b in zip(model.trainable_variables, before, strict=True))


@pytest.mark.parametrize("freeze", ["activation", "all_but_activation"])
def test_freezing(freeze, images):
    """CASES 027: frozen variables stay bit for bit, the others move, and the counts say so."""
    model = network()
    activation = model.layers[2].activation
    if freeze == "activation":
        activation.trainable = False
    else:
        for layer in (model.layers[0], model.layers[3]):
            layer.trainable = False
    frozen = {id(v) for v in model.non_trainable_variables}
    assert {id(activation.coefficients), id(activation.bias)} <= frozen or freeze != "activation"
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False)
    before = {id(v): as_float64(v) for v in model.variables}
    model.fit(images, np.ones((3, 3)), batch_size=3, epochs=2, verbose=0)
    assert frozen and len(frozen) + len(model.trainable_variables) == len(model.variables)
    for variable in model.variables:
        moved = np.any(as_float64(variable) != before[id(variable)])
        assert moved == (id(variable) not in frozen), variable.path


def test_mask_reaches_the_end_of_a_chain(rng):
    """CASES 054: padded steps do not count, whatever they hold, and nothing warns."""
    ids = np.array([[3, 1, 2, 0, 0], [4, 4, 0, 0, 0]])
    inputs = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(5, 6, mask_zero=True, name="embedding")(inputs)
    for layer in (
        PolyNorm(),
        ParallelLayerNormalization(3),
        FeedForward(7, "poly_norm"),
        MoAFeedForward(7),
        PolyReLU(),
        keras.layers.Dense(3, activation=PolyNorm()),
    ):
        x = layer(x)
    model = keras.Model(inputs, [keras.layers.GlobalAveragePooling1D()(x), keras.layers.LSTM(2)(x)])

    def outputs(ids):
        return [as_float64(y) for y in model(ids)]

    before = outputs(ids)
    table = model.get_layer("embedding").embeddings
    changed = as_float64(table)
    changed[0] += 5.0
    table.assign(changed)
    for changed_ids in (ids, ids[:, :3]):
        for after, expected in zip(outputs(changed_ids), before, strict=True):
            assert_close(after, expected, 1e-6)


@pytest.mark.skipif(
    keras.backend.backend() == "torch", reason="inductor takes most of a minute; XLA is what CASES 050 is about"
)
def test_compiled_training_equals_eager_training(rng):
    """CASES 050: XLA on TensorFlow rejects an operation, in the forward or only in its gradient."""
    x, y = rng.standard_normal((5, 6, 6, 2)).astype("float32"), rng.standard_normal((5, 3))
    check_compiled_training(network, x, y, batch_size=2, loss="mse")
