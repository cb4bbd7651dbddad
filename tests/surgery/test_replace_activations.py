"""New models with other activations: what is found, what is carried over, and what stays as it was (CASES 014, 065)."""

import re

import keras
import numpy as np
import pytest

import keras_polycom
from keras_polycom import PolyNorm, PolyReLU, layers, models, replace_activations, surgery
from keras_polycom.layers.nested import nested_layers


def rectifier():
    """Learnable, and to begin with the rectifier."""
    return PolyReLU(coefficients_initializer=[1.0, 0.0, 0.0])


def values(x):
    return np.array(keras.ops.convert_to_numpy(keras.tree.flatten(x)[0]))


def assert_same_predictions(model, new, x, tolerance=1e-6):
    expected, actual = values(model(x, training=False)), values(new(x, training=False))
    assert np.abs(actual - expected).max() <= tolerance * max(1, np.abs(expected).max())


def convolutional(**changes):
    """A small network with every form of activation there is."""
    images = keras.Input((8, 8, 3), name="images")
    x = keras.layers.Conv2D(4, 3, activation="relu", name="convolution")(images)
    x = keras.layers.BatchNormalization(name="batch_norm")(x)
    x = keras.layers.Activation("relu", name="activation")(x)
    x = keras.layers.ReLU(name="rectified_layer")(x)
    x = keras.layers.ReLU(max_value=6, name="capped")(x)
    x = keras.layers.LeakyReLU(name="leaky")(x)
    x = keras.ops.relu(x - 0.1)
    x = keras.activations.relu(x)
    x = keras.Sequential(
        [keras.Input((6, 6, 4)), keras.layers.Conv2D(3, 1, activation="relu", name="inner_convolution")],
        name="nested_sequential",
    )(x)
    inside = keras.Input((6, 6, 3))
    outside = keras.layers.Activation("relu", name="inner_activation")(
        keras.layers.Dense(4, name="inner_dense")(inside)
    )
    x = keras.Model(inside, outside, name="nested_functional")(x)
    x = keras.layers.Reshape((36, 4), name="rows")(x)
    x = keras.layers.TimeDistributed(keras.layers.Dense(5, "relu", name="each_dense"), name="each")(x)
    x = keras.layers.TimeDistributed(keras.layers.ReLU(name="each_relu"), name="each_rectified")(x)
    x = keras.layers.Lambda(lambda t: 2.0 * t, output_shape=(36, 5), name="function")(x)
    x = keras.layers.GlobalAveragePooling1D(name="pooled")(x)
    return keras.Model(images, keras.layers.Dense(3, activation="softmax", name="head")(x), name="network", **changes)


def trained(model, rng, names=""):
    """The model with other weights and statistics than it starts with, those whose name begins with `names`."""
    for variable in model.variables:
        if "float" in variable.dtype and variable.name.startswith(names):
            variable.assign(values(variable) + rng.uniform(0.01, 0.3, variable.shape))
    return model


@pytest.fixture
def x(rng):
    return rng.standard_normal((4, 8, 8, 3)).astype("float32")


def test_every_activation_is_reported(rng):
    _, report = replace_activations(convolutional(), {"relu": rectifier}, return_report=True)
    numbered = re.compile(r"_\d+$")  # by Keras, from one model of a process to the next
    assert [(numbered.sub("", site.path), site.found, site.outcome) for site in report] == [
        ("convolution.activation", "relu", "replaced"),
        ("activation", "relu", "replaced"),
        ("rectified_layer", "relu", "replaced"),
        ("capped", "relu6", "kept"),
        ("leaky", "leaky_relu", "kept"),
        ("relu", "relu", "replaced"),
        ("re_lu", "relu", "replaced"),
        ("nested_sequential/inner_convolution.activation", "relu", "replaced"),
        ("nested_functional/inner_activation", "relu", "replaced"),
        ("each/each_dense.activation", "relu", "replaced"),
        ("each_rectified/each_relu", "relu", "replaced"),
        ("function", "unknown", "cannot replace"),
        ("head.activation", "softmax", "kept"),
    ]
    assert len(report.replaced) == 9  # with the two operations, keras.ops.relu and keras.activations.relu
    assert "nested_functional/inner_activation" in str(report)
    assert report.found().startswith("relu (9)")


def test_finding_changes_nothing():
    model = convolutional()
    report = surgery.find_activations(model)
    assert not report.replaced
    assert report.found() == "relu (9), relu6 (1), leaky_relu (1), unknown (1), softmax (1)"


def test_started_as_the_rectifier_it_predicts_the_same(x, rng):
    model = trained(convolutional(), rng)
    new = replace_activations(model, {"relu": rectifier})
    assert_same_predictions(model, new, x)
    assert new.count_params() == model.count_params() + 9 * 4


def test_the_old_model_is_untouched(rng):
    layers = [keras.Input((4,)), keras.layers.Dense(4, "relu"), keras.layers.BatchNormalization(), keras.layers.ReLU()]
    model = trained(keras.Sequential([*layers, keras.layers.Dense(2)]), rng)
    x = rng.standard_normal((4, 4)).astype("float32")
    weights, before = [values(v) for v in model.variables], values(model(x))
    new = replace_activations(model, {"relu": PolyNorm})
    new.compile("sgd", "mse", jit_compile=False)
    new.fit(x, np.ones((4, 2)), verbose=0)
    assert surgery.find_activations(model).found() == "relu (2)"
    assert all(np.array_equal(values(v), w) for v, w in zip(model.variables, weights, strict=True))
    np.testing.assert_array_equal(values(model(x)), before)


def test_all_ways_to_compute_give_the_new_output(x, tmp_path):
    model = keras.Sequential(
        [keras.Input((8, 8, 3)), keras.layers.Conv2D(4, 3, activation="relu"), keras.layers.Flatten()]
    )
    model.compile("sgd", "mse")
    before = model.predict(x, verbose=0)
    new = replace_activations(model, {"relu": PolyNorm})
    after = new.predict(x, verbose=0)
    assert np.abs(after - before).max() > 0.1
    np.testing.assert_allclose(values(new(x)), after, rtol=1e-5, atol=1e-6)
    assert new.evaluate(x, after, verbose=0) < 1e-10
    new.save(tmp_path / "new.keras")
    np.testing.assert_allclose(keras.saving.load_model(tmp_path / "new.keras").predict(x, verbose=0), after, rtol=1e-6)


def test_statistics_flags_and_random_states_are_carried_over(rng):
    inputs = keras.Input((6,))
    hidden = keras.layers.Dense(4, activation="relu", name="first")(inputs)
    hidden = keras.layers.BatchNormalization(name="batch_norm")(hidden)
    hidden = keras.layers.Dropout(0.5, seed=3, name="dropout")(hidden)
    block = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4, "relu", name="in_block")], name="block")
    model = trained(keras.Model(inputs, keras.layers.Dense(2, name="last")(block(hidden))), rng)
    block.trainable = False
    model.get_layer("last").bias.trainable = False
    model(np.ones((2, 6), "float32"), training=True)
    new = replace_activations(model, {"relu": rectifier})
    for name in ("batch_norm", "dropout", "last"):
        for old_variable, variable in zip(model.get_layer(name).variables, new.get_layer(name).variables, strict=True):
            np.testing.assert_array_equal(values(variable), values(old_variable), err_msg=name)
    assert not new.get_layer("block").trainable and new.get_layer("first").trainable
    trainable = [v.name for v in new.trainable_variables]
    assert trainable == ["kernel", "bias", "coefficients", "bias", "gamma", "beta", "kernel"]


def test_a_compiled_model_is_compiled_and_trains(x):
    model = convolutional()
    model.get_layer("nested_functional").trainable = False
    model.compile("adam", "mse", jit_compile=False)
    new = replace_activations(model, {"relu": rectifier})
    coefficients = [v for v in new.trainable_variables if v.name == "coefficients"]
    before = [values(v) for v in coefficients]
    new.fit(x, np.eye(3)[[0, 1, 2, 0]], verbose=0)
    assert len(before) == 8 and all(np.any(values(v) != b) for v, b in zip(coefficients, before, strict=True))


def test_every_place_gets_an_activation_of_its_own():
    rectified = keras.layers.ReLU(name="rectified")
    inputs = keras.Input((4,))
    x = keras.layers.Dense(4, name="rectified_2")(inputs)  # a name that is taken
    outputs = rectified(keras.layers.Dense(4)(rectified(x)))
    new = replace_activations(keras.Model(inputs, outputs), {"relu": PolyNorm})
    norms = [layer for layer in new.layers if isinstance(layer, PolyNorm)]
    assert [layer.name for layer in norms] == ["rectified", "rectified_3"]
    assert norms[0].coefficients is not norms[1].coefficients


def test_a_block_used_twice_is_still_one_block(rng):
    block = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4, activation="relu")], name="block")
    inputs = keras.Input((4,))
    model = keras.Model(inputs, block(block(inputs)))
    new = replace_activations(model, {"relu": rectifier})
    assert len(new.trainable_variables) == 4
    assert_same_predictions(model, new, rng.standard_normal((3, 4)).astype("float32"))


@pytest.mark.parametrize(
    ("only", "replaced"),
    [
        ("second", ["second.activation"]),
        ("s*", ["second.activation", "sigmoidal/inside.activation"]),
        (keras.layers.ReLU, ["last"]),
        (lambda layer: layer.name.startswith("f"), ["first.activation"]),
        (["first", keras.layers.ReLU], ["first.activation", "last"]),
    ],
    ids=["name", "pattern", "class", "predicate", "list"],
)
def test_only_some_layers(only, replaced):
    model = keras.Sequential(
        [
            keras.Input((4, 4)),
            keras.layers.Dense(4, "relu", name="first"),
            keras.layers.Dense(4, "relu", name="second"),
            keras.layers.TimeDistributed(keras.layers.Dense(4, "relu", name="inside"), name="sigmoidal"),
            keras.layers.ReLU(name="last"),
        ]
    )
    _, report = replace_activations(model, {"relu": "poly_relu"}, only=only, return_report=True)
    assert [site.path for site in report.replaced] == replaced


@pytest.mark.parametrize(
    "replacement",
    [
        "poly_norm",
        PolyNorm,
        lambda: PolyNorm(),
        keras.saving.serialize_keras_object(PolyNorm()),
        PolyNorm(),
    ],
    ids=["name", "class", "maker", "config", "instance"],
)
def test_replacements_of_every_form(replacement):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4, "relu"), keras.layers.ReLU()])
    new = replace_activations(model, {"relu": replacement})
    made = [new.layers[0].activation, new.layers[1]]
    assert all(type(layer) is PolyNorm and layer is not replacement for layer in made)
    assert len(new.trainable_variables) == 2 + 2 * 2


def learned():
    """An instance with other coefficients than its config tells of."""
    layer = PolyNorm()
    layer.set_weights([np.array([0.7, -0.2, 0.4], "float32"), np.array([0.1], "float32")])
    return layer


def test_an_instance_takes_its_weights_to_every_place():
    instance, rectified = learned(), keras.layers.ReLU(name="twice")
    x = inputs = keras.Input((3, 4))
    for layer in (rectified, keras.layers.Dense(4, "relu"), keras.layers.TimeDistributed(keras.layers.ReLU())):
        x = layer(x)
    model = keras.Model(inputs, PolyNorm(name="own")(rectified(x)))
    new = replace_activations(model, {"relu": instance})
    own = new.get_layer("own")
    made = [layer for layer in nested_layers(new) if isinstance(layer, PolyNorm) and layer is not own]
    assert len(made) == 4 and instance not in made
    for layer in made:
        np.testing.assert_array_equal(values(layer.coefficients), values(instance.coefficients))
        np.testing.assert_array_equal(values(layer.bias), values(instance.bias))
    np.testing.assert_array_equal(values(own.coefficients), values(model.get_layer("own").coefficients))


def test_instances_of_one_config_are_told_apart():
    first, second = learned(), PolyNorm()
    layers = [keras.layers.Dense(4, "relu", name="a"), keras.layers.Dense(4, "silu", name="b")]
    new = replace_activations(keras.Sequential([keras.Input((4,)), *layers]), {"relu": first, "silu": second})
    for layer, instance in zip(new.layers, (first, second), strict=True):
        np.testing.assert_array_equal(values(layer.activation.coefficients), values(instance.coefficients))


def test_an_instance_takes_its_weights_into_a_model_of_this_package():
    model = models.ViT(image_shape=(16, 16, 3), patch_size=8, num_layers=2, hidden_dim=8, num_heads=2, num_classes=3)
    instance = learned()
    new = replace_activations(model, {"gelu": instance})
    made = [layer for layer in nested_layers(new) if isinstance(layer, PolyNorm)]
    assert isinstance(new, models.ViT) and len(made) == 2
    for layer in made:
        np.testing.assert_array_equal(values(layer.coefficients), values(instance.coefficients))


@pytest.mark.parametrize("key", ["relu", "ReLU", keras.layers.ReLU, keras.ops.relu, keras.activations.relu])
def test_keys_of_every_form(key):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4, "relu"), keras.layers.ReLU()])
    assert len(replace_activations(model, {key: "poly_relu"}, return_report=True)[1].replaced) == 2


def test_several_at_once_and_back_again(rng):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4, "relu"), keras.layers.Dense(4, "silu")])
    new = replace_activations(model, {"relu": rectifier, "swish": "poly_norm"})
    assert surgery.find_activations(new).found() == "poly_relu (1), poly_norm (1)"
    back = replace_activations(new, {"poly_relu": "relu", PolyNorm: "silu"})
    assert_same_predictions(model, back, rng.standard_normal((3, 4)).astype("float32"))


def test_a_learned_activation_is_replaced_by_a_fresh_one(rng):
    model = trained(keras.Sequential([keras.Input((4,)), keras.layers.Dense(4, PolyNorm()), PolyNorm()]), rng)
    new = replace_activations(model, {"poly_norm": PolyNorm}, only=PolyNorm)
    np.testing.assert_array_equal(
        values(new.layers[0].activation.coefficients), values(model.layers[0].activation.coefficients)
    )
    np.testing.assert_allclose(values(new.layers[1].coefficients), 1 / 3, rtol=1e-6)


def test_channels_first():
    model = keras.Sequential(
        [
            keras.Input((3, 8, 8)),
            keras.layers.Conv2D(4, 3, data_format="channels_first", activation="relu"),
            keras.layers.BatchNormalization(axis=1),
            keras.layers.ReLU(),
            keras.layers.Flatten(data_format="channels_first"),
            keras.layers.Dense(6, activation="relu"),
            keras.layers.ReLU(),
        ]
    )
    new = replace_activations(model, {"relu": PolyNorm})
    assert new.layers[0].activation.axis == 1
    assert new.layers[2].axis == 1
    assert new.layers[4].activation.axis == -1
    assert new.layers[5].axis == -1


def test_replacements_have_the_dtype_of_their_place():
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(4, "relu", dtype="mixed_bfloat16"), keras.layers.ReLU(dtype="float32")]
    )
    new = replace_activations(model, {"relu": PolyNorm})
    assert new.layers[0].activation.dtype_policy.name == "mixed_bfloat16"
    assert new.layers[1].dtype_policy.name == "float32"


def test_nothing_to_replace_is_an_error_that_lists_what_there_is():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4, "relu"), keras.layers.ReLU(6.0)])
    with pytest.raises(ValueError, match=r"'mish'. The model has: relu \(1\), relu6 \(1\)"):
        replace_activations(model, {"mish": PolyNorm})
    with pytest.raises(ValueError, match="No activation was replaced"):
        replace_activations(model, {"relu": PolyNorm}, only="nobody")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (({},), "must be a dict from names of activations"),
        (("relu",), "must be a dict from names of activations"),
        (({"relu": "no_such"},), "relu at dense.*Unknown activation 'no_such'"),
        (({1: "poly_norm"},), "named by a string such as 'relu'"),
        (({"relu": 3},), "An activation is given as a name"),
    ],
    ids=["empty", "not a dict", "unknown name", "key", "value"],
)
def test_refused_arguments(arguments, message):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4, "relu", name="dense")])
    with pytest.raises((ValueError, TypeError), match=message):
        replace_activations(model, *arguments)
    with pytest.raises(TypeError, match="`only` must be a layer name"):
        replace_activations(model, {"relu": PolyNorm}, only=3)


class Composite(keras.layers.Layer):
    """Makes a rectifier in its own code."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense = keras.layers.Dense(4, activation="relu", name="dense")

    def build(self, input_shape):
        self.dense.build(input_shape)

    def call(self, inputs):
        return self.dense(inputs)


def test_what_a_layer_makes_itself_is_reported():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4, "relu", name="first"), Composite(name="own")])
    _, report = replace_activations(model, {"relu": PolyReLU}, return_report=True)
    assert [(site.path, site.outcome) for site in report] == [
        ("first.activation", "replaced"),
        ("own/dense", "cannot replace"),
    ]
    assert "made inside of Composite" in report[1].detail


class Subclassed(keras.Model):
    def call(self, inputs):
        return inputs


def test_a_subclassed_model_is_refused():
    with pytest.raises(ValueError, match="Received: Subclassed.*replace_activations_in_place"):
        replace_activations(Subclassed(), {"relu": PolyNorm})


@pytest.mark.parametrize("name", ["vit", "resnet", "mae"])
def test_models_of_this_package_stay_what_they_are(name, rng):
    small = {
        "vit": lambda: models.ViT(patch_size=8, num_layers=1, hidden_dim=8, num_heads=2, activation="relu", **size),
        "resnet": lambda: models.ResNet50(depths=(1,), widths=(4,), stem="cifar", **size),
        "mae": lambda: models.MAE(
            patch_size=8, num_layers=1, hidden_dim=8, num_heads=2, decoder_num_layers=1, decoder_hidden_dim=8,
            decoder_num_heads=2, activation="relu", image_shape=(16, 16, 3),
        ),
    }  # fmt: skip
    size = {"image_shape": (16, 16, 3), "num_classes": 3}
    model = trained(small[name](), rng)
    new, report = replace_activations(model, {"relu": rectifier}, return_report=True)
    assert type(new) is type(model) and report.replaced
    inputs = rng.standard_normal((2, 16, 16, 3)).astype("float32")
    if name == "mae":
        inputs = {"images": inputs, "noise": rng.uniform(size=(2, 4)).astype("float32")}
    assert_same_predictions(model, new, inputs)
    again = type(new).from_config(new.get_config())
    assert surgery.find_activations(again).found() == surgery.find_activations(new).found()


def test_channels_first_images_of_a_transformer():
    """PolyNorm used to be put on the tokens: the images have their channels first, the tokens have them last."""
    model = models.ViT(
        image_shape=(3, 16, 16), patch_size=8, num_layers=1, hidden_dim=8, num_heads=2, num_classes=3,
        activation="relu", data_format="channels_first",
    )  # fmt: skip
    new = replace_activations(model, {"relu": PolyNorm})
    assert isinstance(new, models.ViT) and new.data_format == "channels_first"
    assert new.get_layer("block_0_feed_forward").activation.axis == -1


def test_part_of_a_model_of_this_package():
    model = models.ViT(
        image_shape=(16, 16, 3),
        patch_size=8,
        num_layers=2,
        hidden_dim=8,
        num_heads=2,
        num_classes=3,
        feed_forward="swiglu",
    )
    new, report = replace_activations(model, {"silu": PolyNorm}, only="block_1_*", return_report=True)
    assert [site.path for site in report.replaced] == ["block_1_feed_forward.activation"]
    assert isinstance(new.get_layer("block_1_feed_forward").activation, PolyNorm)
    assert (
        new.get_layer("block_1_feed_forward").count_params()
        == model.get_layer("block_1_feed_forward").count_params() + 4
    )


def test_a_model_that_trains_by_code_of_its_own_is_not_taken_apart():
    model = models.MAE(
        image_shape=(16, 16, 3), patch_size=8, num_layers=1, hidden_dim=8, num_heads=2, decoder_num_layers=1,
        decoder_hidden_dim=8, decoder_num_heads=2,
    )  # fmt: skip
    with pytest.raises(ValueError, match="MAE trains by code of its own"):
        replace_activations(model, {"gelu": PolyNorm}, only="block_0*")


def test_keras_applications(rng):
    model = trained(keras.applications.ResNet50(weights=None, input_shape=(32, 32, 3), classes=3), rng, "moving")
    new, report = replace_activations(model, {"relu": rectifier}, return_report=True)
    assert len(report.replaced) == 49
    assert all(np.array_equal(values(v), values(w)) for v, w in zip(new.get_layer("conv5_block3_3_bn").variables,
               model.get_layer("conv5_block3_3_bn").variables, strict=True))  # fmt: skip
    assert_same_predictions(model, new, rng.standard_normal((2, 32, 32, 3)).astype("float32"))


def test_keras_applications_without_plain_rectifiers():
    model = keras.applications.MobileNetV2(weights=None, input_shape=(32, 32, 3), classes=3, alpha=0.35)
    with pytest.raises(ValueError, match=r"The model has: relu6 \(35\), softmax \(1\)"):
        replace_activations(model, {"relu": PolyNorm})


def test_keras_hub_and_keras_cv(rng, tmp_path):
    keras_cv, keras_hub = pytest.importorskip("keras_cv"), pytest.importorskip("keras_hub")
    stages = {"image_shape": (32, 32, 3), "block_type": "basic_block", "stackwise_num_blocks": [1]}
    backbones = [
        keras_hub.models.ResNetBackbone([64], [3], [64], stackwise_num_strides=[1], **stages),
        keras_cv.models.ResNetBackbone(
            stackwise_filters=[8],
            stackwise_blocks=[1],
            stackwise_strides=[1],
            include_rescaling=False,
            input_shape=(32, 32, 3),
        ),
    ]
    x = rng.standard_normal((2, 32, 32, 3)).astype("float32")
    for model in backbones:
        new, report = replace_activations(trained(model, rng, "moving"), {"relu": rectifier}, return_report=True)
        assert len(report.replaced) == sum(site.found == "relu" for site in report) > 0
        assert_same_predictions(model, new, x)
        new.save(tmp_path / "new.keras")
        assert_same_predictions(new, keras.saving.load_model(tmp_path / "new.keras"), x)


def test_in_a_transformer_encoder_of_keras_hub(rng):
    keras_hub = pytest.importorskip("keras_hub")
    model = keras.Sequential([keras.Input((5, 8)), keras_hub.layers.TransformerEncoder(16, 2, activation="relu")])
    new = replace_activations(trained(model, rng), {"relu": rectifier})
    assert_same_predictions(model, new, rng.standard_normal((2, 5, 8)).astype("float32"))


def test_public_names():
    assert keras_polycom.replace_activations is surgery.replace_activations
    assert isinstance(layers.PolyNorm(), PolyNorm)
