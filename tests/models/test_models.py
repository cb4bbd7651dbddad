"""What both models promise: any activation, exact configs, files, clones, policies, training."""

import inspect
import json
import subprocess
import sys
import warnings

import keras
import numpy as np
import pytest
from models_small import CLASSES, IMAGE, MODELS, compile_and_fit, images, labels, predict
from reference_values import assert_close

from keras_polycom import DropPath, FeedForward, PolyNorm, PolyReLU, activations, models
from keras_polycom.layers.nested import nested_layers

every_model = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)

NON_DEFAULT = {
    models.ViT: {
        "variant": "tiny/16",
        "image_shape": (16, 24, 1),
        "patch_size": (4, 8),
        "num_layers": 2,
        "hidden_dim": 16,
        "num_heads": 2,
        "mlp_dim": 20,
        "num_classes": 4,
        "activation": PolyNorm(
            order=2, coefficients_regularizer=keras.regularizers.L2(0.1), coefficients_constraint="non_neg"
        ),
        "feed_forward": "glu",
        "normalization": keras.layers.LayerNormalization(epsilon=1e-3, gamma_constraint="non_neg"),
        "dropout": 0.1,
        "attention_dropout": 0.2,
        "drop_path": 0.3,
        "pooling": "mean",
        "class_token": True,
        "qkv_bias": False,
        "classifier_activation": "softmax",
        "data_format": "channels_last",
        "name": "mine",
        "dtype": "mixed_bfloat16",
        "trainable": False,
    },
    models.ResNet50: {
        "variant": "resnet101",
        "image_shape": (16, 24, 1),
        "num_classes": 4,
        "depths": (1, 2),
        "widths": (4, 6),
        "stem": "cifar",
        "stem_width": 5,
        "activation": PolyReLU(order=2, coefficients_initializer=[0.5, 0.25]),
        "normalization": "layer_norm",
        "zero_init_residual": True,
        "pooling": "mean",
        "classifier_activation": "softmax",
        "data_format": "channels_last",
        "name": "mine",
        "dtype": "mixed_bfloat16",
        "trainable": False,
    },
}


@every_model
@pytest.mark.parametrize("activation", ["gelu", "poly_relu", "poly_norm"])
def test_forward_with_every_activation(make, activation):
    x = 0.2 * images()  # batch norms that have not seen data do not keep a polynomial of the rectifier from growing
    output = predict(make(activation=activation), x)
    assert output.shape == (3, CLASSES)
    assert np.isfinite(output).all()
    assert np.ptp(output, axis=0).min() > 0  # the images make a difference


@every_model
def test_activations_are_made_afresh_per_site_and_instances_are_cloned(make):
    own = PolyNorm(order=2, coefficients_initializer=[0.7, 0.2])
    own.coefficients.assign([0.6, 0.1])
    model = make(activation=own)
    found = [v for v in model.trainable_variables if v.name == "coefficients"]
    assert len(found) == (2 if make is MODELS["vit"] else 1 + 3 * 3)
    assert len({id(v) for v in [*found, own.coefficients]}) == len(found) + 1
    for variable in found:
        np.testing.assert_allclose(keras.ops.convert_to_numpy(variable), [0.6, 0.1], rtol=1e-6)
    found[0].assign([5.0, 5.0])
    np.testing.assert_allclose(keras.ops.convert_to_numpy(found[1]), [0.6, 0.1], rtol=1e-6)
    np.testing.assert_allclose(keras.ops.convert_to_numpy(own.coefficients), [0.6, 0.1], rtol=1e-6)


@every_model
@pytest.mark.parametrize(
    "activation",
    [PolyNorm, lambda: PolyReLU(order=2), activations.serialize(PolyNorm(order=2)), keras.ops.silu],
    ids=["class", "maker", "config", "function"],
)
def test_every_form_of_activation_survives_its_config(make, activation):
    model = make(activation=activation, num_classes=None)
    twin = type(model).from_config(json.loads(json.dumps(model.get_config())))
    assert twin.get_config() == model.get_config()
    assert [tuple(v.shape) for v in twin.variables] == [tuple(v.shape) for v in model.variables]


@pytest.mark.parametrize("model_class", NON_DEFAULT, ids=lambda c: c.__name__)
def test_the_config_holds_every_argument(model_class):
    arguments = NON_DEFAULT[model_class]
    parameters = inspect.signature(model_class).parameters
    assert set(arguments) == set(parameters)
    same = {name for name in arguments if arguments[name] == parameters[name].default}
    assert same <= {"pooling"}  # a ResNet has no other pooling with a head
    model = model_class(**arguments)
    config = json.loads(json.dumps(model.get_config()))
    assert set(config) == set(parameters)
    for name in ("variant", "dropout", "num_classes", "name", "dtype", "trainable", "stem", "mlp_dim"):
        assert name not in arguments or config[name] == arguments[name], name
    twin = model_class.from_config(config)
    assert twin.get_config() == config
    assert not twin.trainable_variables
    twin.set_weights(model.get_weights())
    x = images(shape=arguments["image_shape"])
    np.testing.assert_array_equal(predict(twin, x), predict(model, x))


@every_model
def test_keras_file_and_clones(make, tmp_path, rng):
    model = make(activation="poly_norm", name="original")
    model.set_weights([w + 0.1 * rng.random(w.shape).astype("float32") for w in model.get_weights()])
    expected = predict(model, images())
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.get_config() == model.get_config()
    assert_close(predict(loaded, images()), expected, 1e-6, "loaded")

    model.save_weights(tmp_path / "model.weights.h5")
    fresh = make(activation="poly_norm")
    fresh.load_weights(tmp_path / "model.weights.h5")
    assert_close(predict(fresh, images()), expected, 1e-6, "weights into a model never called")

    clones = {
        "cloned": keras.models.clone_model(model),
        "cloned by layer": keras.models.clone_model(
            model, clone_function=lambda x: type(x).from_config(x.get_config())
        ),
    }
    for what, clone in clones.items():
        assert not {id(v) for v in clone.variables} & {id(v) for v in model.variables}
        clone.set_weights(model.get_weights())
        assert_close(predict(clone, images()), expected, 1e-6, what)


@pytest.mark.parametrize("feed_forward", ["mlp", FeedForward(40, activation=PolyNorm())], ids=["name", "instance"])
def test_a_quantized_model_reloads_exactly_time_and_again(feed_forward, tmp_path):
    model = MODELS["vit"](num_layers=1, feed_forward=feed_forward)
    projections = (keras.layers.Dense, keras.layers.EinsumDense)
    model.quantize("int8", filters=lambda layer: isinstance(layer, projections))
    assert model.get_layer("block_0_feed_forward").up_proj.quantization_mode == "int8"
    expected = predict(model, images())
    for _ in range(2):
        model.save(tmp_path / "model.keras")
        config, model = model.get_config(), keras.saving.load_model(tmp_path / "model.keras")
        assert model.get_config() == config
        np.testing.assert_array_equal(predict(model, images()), expected)


LOAD = """
import sys, keras
if sys.argv[2] == "with":
    import keras_polycom

    @keras.saving.register_keras_serializable(package="somebody_else")
    class PolyNorm(keras.layers.Layer):
        pass
model = keras.saving.load_model(sys.argv[1])
print(type(model).__module__, type(model.get_layer("block_0_feed_forward").activation).__module__)
"""


def test_a_file_loads_in_a_fresh_process(tmp_path):
    path = tmp_path / "model.keras"
    MODELS["vit"](num_layers=1, activation="poly_norm").save(path)
    command = [sys.executable, "-c", LOAD, str(path), "with"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.stdout.split() == ["keras_polycom.models.vit", "keras_polycom.layers.poly_norm"], answer.stderr


@every_model
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision(make, policy):
    full, mixed = make(activation="poly_norm"), make(activation="poly_norm", dtype=policy)
    assert {v.dtype for v in mixed.trainable_variables} == {"float32"}
    mixed.compile("sgd")
    assert isinstance(mixed.optimizer, keras.optimizers.LossScaleOptimizer) == (policy == "mixed_float16")
    mixed.set_weights(full.get_weights())
    output = mixed(images())
    assert keras.backend.standardize_dtype(output.dtype) == policy.removeprefix("mixed_")
    assert_close(output, full(images()), 0.02 if policy == "mixed_float16" else 0.1, policy)


@every_model
def test_float64(make):
    """CASES 019."""
    full, double = make(activation="poly_norm"), make(activation="poly_norm", dtype="float64")
    double.set_weights(full.get_weights())
    assert {v.dtype for v in double.trainable_variables} == {"float64"}
    output = double(images())
    assert keras.backend.standardize_dtype(output.dtype) == "float64"
    assert_close(output, full(images()), 1e-4)


@every_model
def test_frozen_as_a_whole(make):
    """CASES 027: an activation inside that is set free does not train in a frozen model, as in Keras everywhere."""
    model = make(activation="poly_norm")
    model.trainable = False
    layer = next(layer for layer in nested_layers(model) if isinstance(layer, PolyNorm))
    layer.trainable = True
    assert not model.trainable_variables and len(model.non_trainable_variables) == len(model.variables)
    lines = []
    model.summary(print_fn=lines.append)
    assert "Trainable params: 0 " in "".join(lines)


@every_model
def test_global_policy(make, global_policy):
    global_policy("mixed_bfloat16")
    model = make(dtype=None)
    global_policy("float32")
    assert keras.backend.standardize_dtype(model(images()).dtype) == "bfloat16"
    assert model.get_config()["dtype"] == "mixed_bfloat16"
    assert make(dtype=None).get_config()["dtype"] == "float32"


CHANNELS_LAST_ONLY = pytest.mark.skipif(
    keras.backend.backend() == "tensorflow", reason="TensorFlow's convolutions on the CPU are channels-last only"
)


@pytest.mark.parametrize("make", [MODELS["vit"], pytest.param(MODELS["resnet"], marks=CHANNELS_LAST_ONLY)], ids=MODELS)
def test_channels_first(make):
    last = make(activation="poly_norm", data_format="channels_last")
    first = make(activation="poly_norm", data_format="channels_first", image_shape=(3, 16, 24))
    first.set_weights(last.get_weights())
    x = images()
    assert_close(predict(first, x.transpose(0, 3, 1, 2)), predict(last, x), 1e-5, "channels first")


TRAINED = {"vit": {"dropout": 0.1, "attention_dropout": 0.1, "drop_path": 0.3}, "resnet": {"depths": (1, 1)}}


@pytest.mark.parametrize("name", MODELS)
def test_fit_with_an_odd_last_batch_and_validation(name):
    model = MODELS[name](activation="poly_norm", **TRAINED[name])
    # Keras's own Dropout leaves its seed alone on PyTorch and draws from the global generator.
    seeds = [layer.seed_generator.state for layer in model.layers if isinstance(layer, DropPath)]
    assert len(seeds) == (2 if name == "vit" else 0)
    before = [keras.ops.convert_to_numpy(v) for v in seeds]
    moved = [keras.ops.convert_to_numpy(v) for v in model.trainable_variables]
    validation = images(2), labels(2)
    history = compile_and_fit(model, images(5), labels(5), batch_size=2, epochs=2, validation_data=validation)
    assert np.isfinite(history.history["loss"]).all()
    assert all((keras.ops.convert_to_numpy(v) != b).any() for v, b in zip(seeds, before, strict=True))
    for variable, former in zip(model.trainable_variables, moved, strict=True):
        assert (keras.ops.convert_to_numpy(variable) != former).any(), variable.path
    first, second = (model.evaluate(*validation, verbose=0) for _ in range(2))
    assert first == second


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="only TensorFlow trains with XLA or without")
@pytest.mark.parametrize(
    ("name", "sizes", "batch"),
    [("vit", {"num_layers": 1}, 2), ("resnet", {"depths": (1,), "widths": (4,), "stem": "imagenet"}, 3)],
    ids=MODELS,
)
def test_xla_trains_to_the_same_weights(name, sizes, batch):
    plain, compiled = (MODELS[name](activation="poly_norm", **sizes) for _ in range(2))
    compiled.set_weights(plain.get_weights())
    for model, jit in ((plain, False), (compiled, True)):
        compile_and_fit(model, images(3), labels(3), jit=jit, batch_size=batch, shuffle=False)
    for a, b in zip(plain.get_weights(), compiled.get_weights(), strict=True):
        assert_close(b, a, 1e-4, "weights")


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="tracers leak on JAX only")
def test_no_tracer_leaks():
    import jax

    model = MODELS["vit"](**TRAINED["vit"])

    def step(trainable, fixed, x):
        return model.stateless_call(trainable, fixed, x, training=True)

    state = [v.value for v in model.trainable_variables], [v.value for v in model.non_trainable_variables]
    with jax.checking_leaks():
        output, fixed = jax.jit(step)(*state, images())
    assert output.shape == (3, CLASSES)
    assert len(fixed) == 11  # the seeds of 1 + 2 * 4 dropouts and 2 drop paths
    assert all((a != b).any() for a, b in zip(fixed, state[1], strict=True))


def test_freezing_the_coefficients_and_all_but_them():
    model = MODELS["vit"](activation="poly_norm", num_layers=1)
    block = model.get_layer("block_0_feed_forward")
    coefficients = identities(block.activation.variables)
    block.activation.trainable = False
    assert_these_move(model, identities(model.variables) - coefficients)

    for layer in model.layers:
        layer.trainable = False
    block.trainable = True
    block.up_proj.trainable = block.down_proj.trainable = False
    assert_these_move(model, coefficients)


def identities(variables):
    return {id(v) for v in variables}


def assert_these_move(model, expected):
    assert identities(model.trainable_variables) == expected
    before = [keras.ops.convert_to_numpy(v) for v in model.variables]
    compile_and_fit(model, images(), labels(), epochs=2)
    for variable, former in zip(model.variables, before, strict=True):
        moved = (keras.ops.convert_to_numpy(variable) != former).any()
        assert moved == (id(variable) in expected), variable.path


@every_model
@pytest.mark.parametrize(
    "changes, message",
    [
        ({"variant": "medium"}, "`variant` must be one of None, .* Received: variant='medium'"),
        ({"activation": "nosuch"}, "Unknown activation 'nosuch'. Known names: .*poly_norm"),
        ({"normalization": "nosuch"}, "Unknown normalization 'nosuch'. Known names: .*layer_norm"),
        ({"num_classes": -1}, "`num_classes` must be an integer of at least 1. Received: num_classes=-1"),
        ({"num_classes": 2.5}, "`num_classes` must be an integer"),
        ({"pooling": "max"}, "`pooling` must be one of"),
        ({"pooling": None}, "pooling=None with num_classes=5"),
        ({"data_format": "nhwc"}, "`data_format` must be one of"),
        ({"image_shape": (16, 24)}, r"`image_shape` must be \(height, width, channels\)"),
        ({"image_shape": (16, 24, 0)}, "integers of at least 1"),
    ],
    ids=lambda value: "-".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else "",
)
def test_arguments_are_checked(make, changes, message):
    with pytest.raises(ValueError, match=message):
        make(**changes)


@every_model
def test_without_a_head(make):
    for none in (None, 0):
        assert make(num_classes=none).get_config()["num_classes"] is None
    assert make(num_classes=None).output.shape == (None, 24)
    unpooled = (None, 7, 24) if make is MODELS["vit"] else (None, 8, 12, 24)
    assert make(num_classes=None, pooling=None).output.shape == unpooled


@every_model
def test_the_head_activation(make):
    output = predict(make(classifier_activation="softmax"), images())
    np.testing.assert_allclose(output.sum(-1), 1, rtol=1e-5)


def test_nothing_is_said_while_building():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        MODELS["vit"](image_shape=IMAGE)
    assert not said
