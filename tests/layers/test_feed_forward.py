"""FeedForward and GatedFeedForward."""

import functools

import keras
import numpy as np
import pytest
from harness import call, check_layer, model_of, perturb
from reference_values import TOLERANCE, as_float64, assert_close, gradients_of, load, value_and_gradients

from keras_polycom import FeedForward, GatedFeedForward, PolyCom, PolyNorm, activations, ops

LAYERS = {"plain": FeedForward, "gated": GatedFeedForward}
ACTIVATION_FORMS = {
    "name": "poly_norm",
    "function": keras.ops.silu,
    "class": PolyNorm,
    "config": keras.saving.serialize_keras_object(PolyNorm(order=2)),
    "maker": lambda: PolyNorm(order=2),
    "instance": PolyNorm(order=2),
}
EVERY_ARGUMENT = {
    "activation": "poly_relu",
    "use_bias": False,
    "dropout": 0.25,
    "kernel_initializer": keras.initializers.HeNormal(seed=1),
    "bias_initializer": "ones",
    "kernel_regularizer": keras.regularizers.L2(1e-3),
    "bias_regularizer": "l1",
    "kernel_constraint": keras.constraints.MaxNorm(3.0),
    "bias_constraint": "non_neg",
    "seed": 5,
}


@pytest.fixture
def x(rng):
    return rng.standard_normal((2, 3, 5)).astype("float32")


@pytest.mark.parametrize(
    "settings", [{}, {"activation": "poly_norm"}, EVERY_ARGUMENT], ids=["default", "poly_norm", "every_argument"]
)
@pytest.mark.parametrize("kind", LAYERS)
def test_layer(kind, settings, x):
    compiled = settings == {"activation": "poly_norm"}  # compiling takes longest
    check_layer(functools.partial(LAYERS[kind], 7, **settings), x, compiled=compiled)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_polynomial_glu_reference(dtype):
    case = load("poly_norm_glu")
    layer = GatedFeedForward(10, PolyNorm(epsilon=case["meta"]["epsilon"], dtype=dtype), use_bias=False, dtype=dtype)
    layer.build(case["in_x"].shape)
    layer.gate_proj.kernel.assign(case["in_w1"])
    layer.up_proj.kernel.assign(case["in_w2"])
    layer.down_proj.kernel.assign(case["in_w3"])
    layer.activation.set_weights([case["in_a"], case["in_b"]])
    out, gradients = value_and_gradients(lambda x: layer(x), {"x": case["in_x"]}, case["upstream"], dtype)
    # keras.layers.Dense multiplies float64 matrices in float32 on PyTorch.
    tolerance = TOLERANCE["float32" if keras.backend.backend() == "torch" else dtype]
    assert_close(out, case["out"], tolerance, "out")
    assert_close(gradients["x"], gradients_of(case)["x"], tolerance, "gradient")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_polynomial_glu_reference_gradients_of_the_weights(dtype):
    case = load("poly_norm_glu")

    def function(x, w1, w2, w3, a, b):
        return (ops.poly_norm(x @ w1, a, b, epsilon=case["meta"]["epsilon"]) * (x @ w2)) @ w3

    inputs = {key: case[f"in_{key}"] for key in ("x", "w1", "w2", "w3", "a", "b")}
    out, gradients = value_and_gradients(function, inputs, case["upstream"], dtype)
    assert_close(out, case["out"], TOLERANCE[dtype], "out")
    for key, expected in gradients_of(case).items():
        assert_close(gradients[key], expected, TOLERANCE[dtype], f"gradient of {key}")


@pytest.mark.parametrize("name", [*ops.ACTIVATION_FUNCTIONS, "poly_relu", "poly_norm", "mish", "softplus"])
@pytest.mark.parametrize("kind", LAYERS)
def test_equals_dense_activation_dense(kind, name, rng):
    """CASES 024, over [-4, 4]."""
    x = np.linspace(-4, 4, 15, dtype="float32").reshape(3, 5)
    layer = LAYERS[kind](7, activation=name)
    call(layer, [x])
    perturb(layer)
    kernels = {
        p: (as_float64(getattr(layer, p).kernel), as_float64(getattr(layer, p).bias))
        for p in ("gate_proj", "up_proj", "down_proj")
        if hasattr(layer, p)
    }
    up = x @ kernels["up_proj"][0] + kernels["up_proj"][1]
    gate = x @ kernels["gate_proj"][0] + kernels["gate_proj"][1] if kind == "gated" else up
    activation = layer.activation if isinstance(layer.activation, keras.layers.Layer) else activations.get(name)
    hidden = as_float64(activation(keras.ops.convert_to_tensor(gate.astype("float32"))))
    hidden = hidden * up if kind == "gated" else hidden
    assert_close(layer(x), hidden @ kernels["down_proj"][0] + kernels["down_proj"][1], 2e-6)


@pytest.mark.parametrize("form", ACTIVATION_FORMS)
@pytest.mark.parametrize("kind", LAYERS)
def test_every_form_of_activation_is_saved_and_reloaded(kind, form, x, tmp_path):
    model = model_of(LAYERS[kind](7, activation=ACTIVATION_FORMS[form]), [x])
    perturb(model)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert len(loaded.variables) == len(model.variables)
    assert_close(loaded(x), model(x), 1e-6)


@pytest.mark.parametrize("kind", LAYERS)
def test_an_instance_is_cloned_with_its_weights_and_never_shared(kind, x):
    activation = PolyNorm(order=2, coefficients_initializer=[0.2, 0.9])
    activation.bias.assign([0.4])
    first, second = LAYERS[kind](7, activation=activation), LAYERS[kind](7, activation=activation)
    first.build(x.shape)
    assert first.activation is not activation and first.activation is not second.activation
    assert_close(first.activation.bias, [0.4], 1e-7)
    activation.bias.assign([9.0])
    assert_close(first.activation.bias, [0.4], 1e-7)
    assert not {id(v) for v in first.variables} & {id(v) for v in activation.variables}
    assert first.activation.name == second.activation.name == "activation"


def test_names_of_the_children(x):
    layer = GatedFeedForward(7, "poly_norm", name="ffn")
    layer.build(x.shape)
    paths = {v.path for v in layer.variables}
    assert {f"ffn/{p}/{w}" for p in ("gate_proj", "up_proj", "down_proj") for w in ("kernel", "bias")} <= paths
    assert layer.gate_proj.kernel.shape == layer.up_proj.kernel.shape == (5, 7)
    assert layer.down_proj.kernel.shape == (7, 5)


@pytest.mark.parametrize("kind", LAYERS)
def test_dropout_acts_in_training_only(kind, x):
    layer = LAYERS[kind](64, dropout=0.5, seed=1)
    plain = LAYERS[kind](64)
    plain.build(x.shape)
    expected = layer(x, training=False)
    plain.set_weights([as_float64(v) for v in layer.trainable_variables])
    assert_close(plain(x), expected, 1e-6)
    first, second = layer(x, training=True), layer(x, training=True)
    assert np.mean(as_float64(first) == 0) == pytest.approx(0.5, abs=0.25)
    assert np.any(as_float64(first) != as_float64(second))
    np.testing.assert_array_equal(as_float64(layer(x, training=False)), as_float64(expected))


def test_dropout_trains_with_an_odd_last_batch(rng):
    model = keras.Sequential([keras.Input((5,)), FeedForward(7, "poly_norm", dropout=0.2), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    data = rng.standard_normal((7, 5)).astype("float32"), rng.standard_normal((7, 1))
    history = model.fit(*data, batch_size=4, epochs=2, validation_data=data, verbose=0)
    assert np.isfinite(history.history["val_loss"]).all()


@pytest.mark.parametrize(
    "initializer", [keras.initializers.GlorotUniform(seed=3), keras.initializers.HeNormal(), "lecun_normal"]
)
def test_every_projection_draws_its_own_kernel(initializer, x):
    layer = GatedFeedForward(5, kernel_initializer=initializer)
    layer.build(x.shape)
    kernels = [as_float64(p.kernel) for p in (layer.gate_proj, layer.up_proj, layer.down_proj)]
    for i in range(3):
        assert np.all(kernels[i] != kernels[(i + 1) % 3])


def test_a_seeded_initializer_gives_the_same_layer_twice(x):
    makers = [GatedFeedForward(5, kernel_initializer=keras.initializers.GlorotUniform(seed=3)) for _ in range(2)]
    for layer in makers:
        layer.build(x.shape)
    for first, second in zip(makers[0].variables, makers[1].variables, strict=True):
        np.testing.assert_array_equal(as_float64(first), as_float64(second))


@pytest.mark.parametrize("kind", LAYERS)
def test_lora(kind, x, tmp_path):
    """CASES 068: every adapter returns to its own layer, and the adapted model computes the same after loading."""
    inputs = keras.Input((3, 5))
    blocks = [LAYERS[kind](7, "poly_norm", name=f"block_{i}") for i in range(2)]
    model = keras.Model(inputs, blocks[1](blocks[0](inputs)))
    projections = [getattr(b, p) for b in blocks for p in ("gate_proj", "up_proj", "down_proj") if hasattr(b, p)]
    for number, projection in enumerate(projections, start=1):
        projection.enable_lora(2)
        projection.lora_kernel_a.assign(np.full(projection.lora_kernel_a.shape, 0.1 * number))
        projection.lora_kernel_b.assign(np.full(projection.lora_kernel_b.shape, 0.2))
    trainable = [v.path.split("/")[-1] for v in model.trainable_variables]
    assert trainable.count("lora_kernel_a") == len(projections) and "kernel" not in trainable
    assert trainable.count("coefficients") == 2
    blocks[0].activation.trainable = False  # adapters alone can be trained, or adapters and coefficients
    assert [v.path.split("/")[-1] for v in model.trainable_variables].count("coefficients") == 1
    expected = as_float64(model(x))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert_close(loaded(x), expected, 1e-5)
    for block in blocks:
        other = loaded.get_layer(block.name)
        for name in ("up_proj", "down_proj"):
            assert_close(getattr(other, name).kernel, as_float64(getattr(block, name).kernel), 1e-6, name)


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method:UserWarning")  # Keras, of Input too
@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("activation", ["silu", "poly_norm"])
def test_int8_quantized_model_reloads_exactly(kind, activation, x, tmp_path):
    model = model_of(LAYERS[kind](7, activation), [x])
    perturb(model)
    exact = as_float64(model(x))
    model.quantize("int8")
    layer = model.layers[-1]
    assert layer.up_proj.quantization_mode == layer.down_proj.quantization_mode == "int8"
    assert layer.up_proj._kernel.dtype == "int8"
    expected = as_float64(model(x))
    assert_close(expected, exact, 0.05)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.layers[-1].up_proj.quantization_mode == "int8"
    np.testing.assert_array_equal(as_float64(loaded(x)), expected)


def test_nested_activation_layers(x):
    layer = FeedForward(7, PolyCom("poly_relu", order=2))
    call(layer, [x])
    assert isinstance(layer.activation, PolyCom)
    assert len(layer.trainable_variables) == 4 + 2 + 2


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"hidden_dim": 0}, ValueError, "`hidden_dim` must be an integer of at least 1. Received: hidden_dim=0"),
        ({"hidden_dim": 2.5}, ValueError, "`hidden_dim` must be an integer"),
        ({"dropout": 1.0}, ValueError, r"`dropout` must lie in \[0, 1\). Received: dropout=1.0"),
        ({"dropout": -0.1}, ValueError, "`dropout` must lie in"),
        ({"activation": "nosuch"}, ValueError, "Unknown activation 'nosuch'. Known names: .*poly_norm"),
        ({"activation": 3}, TypeError, "An activation is given as a name.*Received: 3"),
    ],
    ids=["zero", "fraction", "all_dropped", "negative_dropout", "unknown_name", "number"],
)
@pytest.mark.parametrize("kind", LAYERS)
def test_bad_arguments(kind, settings, error, message):
    with pytest.raises(error, match=message):
        LAYERS[kind](**{"hidden_dim": 7, **settings})


def test_unknown_width_is_refused():
    with pytest.raises(ValueError, match="The last axis of the input of 'ffn' must have a known width"):
        FeedForward(7, name="ffn").build((None, None))
