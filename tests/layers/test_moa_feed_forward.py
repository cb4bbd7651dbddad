"""MoAFeedForward and GatedMoAFeedForward: reference values, the layer harness, saving, adapters and refusals."""

import functools
import json

import harness
import keras
import numpy as np
import pytest
from mixture_cases import reference_values_at_layer_level
from reference_values import as_float64, assert_close, cases

from keras_polycom import (
    GatedLAFeedForward,
    GatedMoAFeedForward,
    LAFeedForward,
    MoAFeedForward,
    PolyNorm,
    feed_forwards,
)

VARIANTS = ["one_sided", "bi_sided", "quadratic"]


@pytest.mark.parametrize("name", cases("moa_"))
def test_reference_values_and_gradients(name):
    reference_values_at_layer_level(name, "float32")


@pytest.mark.parametrize("name", [name for name in cases("moa_") if name.endswith("softmax_gsr2")])
def test_reference_values_and_gradients_in_float64(name):
    reference_values_at_layer_level(name, "float64")


@pytest.mark.parametrize(
    "make",
    [
        functools.partial(MoAFeedForward, 8, gate_bias=True),
        functools.partial(GatedMoAFeedForward, 8, variant="one_sided", activations=["silu", PolyNorm], gate="softmax"),
        functools.partial(GatedMoAFeedForward, 8, variant="bi_sided", activations=["gelu", "tanh"], gate_bias=True),
        functools.partial(
            GatedMoAFeedForward,
            8,
            variant="quadratic",
            activations=["gelu", PolyNorm],
            gate="tanh",
            dropout=0.1,
            seed=1,
        ),
    ],
    ids=["type1", "one_sided", "bi_sided", "quadratic"],
)
def test_harness(make, rng):
    thorough = make.keywords.get("variant") in (None, "one_sided")  # the variants differ in nothing else that it checks
    x = rng.standard_normal((2, 3, 6)).astype("float32")
    harness.check_layer(make, x, half=thorough, compiled=thorough)


@pytest.mark.parametrize(
    ("layer", "extra"),
    [
        (MoAFeedForward(8, use_bias=False), {"mixing_kernel": (9, 6)}),
        (MoAFeedForward(8, use_bias=False, gate_bias=True), {"mixing_kernel": (9, 6), "mixing_bias": (6,)}),
        (GatedMoAFeedForward(8, "one_sided", use_bias=False), {"mixing_kernel": (9, 7)}),
        (
            GatedMoAFeedForward(8, "bi_sided", use_bias=False),
            {"gate_mixing_kernel": (9, 7), "up_mixing_kernel": (9, 7)},
        ),
        (
            GatedMoAFeedForward(8, "bi_sided", activations=["relu"] * 2, use_bias=False, gate_bias=True),
            {
                "gate_mixing_kernel": (9, 2),
                "gate_mixing_bias": (2,),
                "up_mixing_kernel": (9, 2),
                "up_mixing_bias": (2,),
            },
        ),
        (GatedMoAFeedForward(8, use_bias=False), {"mixing_kernel": (9, 6)}),
        (GatedMoAFeedForward(8, activations=["relu"], use_bias=False), {"mixing_kernel": (9, 1)}),
    ],
    ids=["type1", "type1_bias", "one_sided", "bi_sided", "bi_sided_bias", "quadratic", "single"],
)
def test_extra_parameters_are_those_the_paper_counts(layer, extra):
    """K d for type I and one-sided, 2 K d for bi-sided, K (K + 1) / 2 d for quadratic."""
    layer.build((None, None, 9))
    mixing = {w.name: tuple(w.shape) for w in layer.weights if "mixing" in w.name}
    assert mixing == extra
    assert {name: tuple(getattr(layer, name).shape) for name in extra} == extra
    projections = 9 * 8 * (3 if layer.gated else 2)
    assert layer.count_params() == projections + sum(int(np.prod(shape)) for shape in extra.values())


@pytest.mark.parametrize("variant", VARIANTS)
def test_layers_in_the_dictionary_are_cloned_per_branch(variant, rng):
    shared = PolyNorm(order=2)
    shared.coefficients.assign([0.7, -0.2])
    layer = GatedMoAFeedForward(8, variant, activations=["silu", shared])
    layer(rng.standard_normal((2, 3, 6)).astype("float32"))
    clones = [layer.activations[1]] + ([] if variant == "one_sided" else [layer.up_activations[1]])
    assert len({id(clone) for clone in (shared, *clones)}) == len(clones) + 1
    assert sum(w.name == "coefficients" for w in layer.weights) == len(clones)
    assert len({w.path for w in layer.weights}) == len(layer.weights)
    for clone in clones:
        np.testing.assert_allclose(as_float64(clone.coefficients), [0.7, -0.2], rtol=1e-6)
        assert all(any(w is own for own in layer.trainable_variables) for w in clone.trainable_variables)


def test_layers_whose_weights_depend_on_the_width_are_built_with_it():
    layer = MoAFeedForward(8, activations=["relu", keras.layers.PReLU])
    layer.build((None, 3, 6))
    assert tuple(layer.activations[1].alpha.shape) == (3, 8)


def test_trained_layers_in_the_dictionary_survive_saving(rng, tmp_path):
    x = rng.standard_normal((2, 3, 6)).astype("float32")
    inputs = keras.Input((None, 6))
    model = keras.Model(inputs, GatedMoAFeedForward(8, "bi_sided", activations=["gelu", PolyNorm, PolyNorm])(inputs))
    harness.perturb(model)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(as_float64(loaded(x)), as_float64(model(x)))


def test_functions_and_makers_in_the_dictionary(rng):
    x = rng.standard_normal((3, 6)).astype("float32")
    layer = MoAFeedForward(8, activations=[keras.ops.sin, lambda: PolyNorm(order=1), "softplus"])
    assert tuple(layer(x).shape) == (3, 6)
    assert layer.activations[0] is keras.ops.sin
    assert isinstance(layer.activations[1], PolyNorm)


@pytest.mark.parametrize("gate", ["sigmoid", "tanh", "softmax"])
def test_gate_is_computed_in_float32_under_mixed_precision(gate, rng):
    """1000 + 0.25 is not a bfloat16 number: a gate whose logits cancel to 0.25 shows where they were added."""
    x = np.array([[1000.0, 1.0, -1000.0]], "float32")
    layer = MoAFeedForward(4, activations=["identity", "tanh"], gate=gate, dtype="mixed_bfloat16")
    layer.build(x.shape)
    assert {w.dtype for w in layer.weights} == {"float32"}
    layer.mixing_kernel.assign([[1.0, 0.0], [0.25, 0.0], [1.0, 0.0]])
    (weights,) = layer._mixing_weights(keras.ops.cast(x, "bfloat16"))
    expected = {"sigmoid": 1 / (1 + np.exp(-0.25)), "tanh": np.tanh(0.25), "softmax": 1 / (1 + np.exp(-0.25))}[gate]
    assert as_float64(weights)[0, 0] == pytest.approx(expected, abs=1e-6)
    assert keras.backend.standardize_dtype(layer(x).dtype) == "bfloat16"


def test_regularizers_constraints_and_initializers_reach_their_weights(rng):
    layer = GatedMoAFeedForward(
        8,
        "bi_sided",
        activations=["relu", "tanh"],
        gate_bias=True,
        mixing_initializer=keras.initializers.RandomNormal(seed=3),
        mixing_regularizer=keras.regularizers.L2(0.5),
        mixing_constraint="max_norm",
        mixing_bias_initializer=keras.initializers.Constant([2.0, -3.0]),
        mixing_bias_regularizer=keras.regularizers.L1(0.25),
        mixing_bias_constraint="non_neg",
    )
    layer(rng.standard_normal((2, 4)).astype("float32"))
    kernels = [as_float64(layer.gate_mixing_kernel), as_float64(layer.up_mixing_kernel)]
    assert not np.array_equal(*kernels), "a seeded initializer gave both branches the same draw"
    expected = 0.5 * sum((k**2).sum() for k in kernels) + 2 * 0.25 * 5
    assert float(sum(as_float64(loss) for loss in layer.losses)) == pytest.approx(expected, rel=1e-5)
    assert isinstance(layer.up_mixing_kernel.constraint, keras.constraints.MaxNorm)
    assert isinstance(layer.up_mixing_bias.constraint, keras.constraints.NonNeg)
    config = json.loads(json.dumps(layer.get_config()))
    twin = GatedMoAFeedForward.from_config(config)
    assert json.loads(json.dumps(twin.get_config())) == config
    twin.build((None, 4))
    np.testing.assert_array_equal(as_float64(twin.gate_mixing_kernel), kernels[0])


@pytest.mark.filterwarnings("ignore:Layer InputLayer does not have a `quantize` method")  # Keras, of its own layer
def test_int8_reload_is_exact_and_leaves_the_gate_alone(rng, tmp_path):
    x = rng.standard_normal((2, 3, 6)).astype("float32")
    inputs = keras.Input((None, 6))
    model = keras.Model(inputs, GatedMoAFeedForward(8, activations=["gelu", "relu2"], name="ffn")(inputs))
    before = as_float64(model(x))
    kernel = as_float64(model.get_layer("ffn").mixing_kernel)
    model.quantize("int8")
    assert model.get_layer("ffn").gate_proj.quantization_mode == "int8"
    np.testing.assert_array_equal(as_float64(model.get_layer("ffn").mixing_kernel), kernel)
    assert_close(model(x), before, 0.05)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(as_float64(loaded(x)), as_float64(model(x)))


def test_adapters_come_back_at_their_own_layer(rng, tmp_path):
    """CASES 068: every LoRA adapter of a deep stack is saved and merged under its own path."""

    def stack():
        inputs = outputs = keras.Input((6,))
        for depth in range(4):
            outputs = GatedMoAFeedForward(8, activations=["gelu", "relu2"], name=f"ffn_{depth}")(outputs)
        return keras.Model(inputs, outputs)

    x = rng.standard_normal((3, 6)).astype("float32")
    model = stack()
    children = [(layer, name) for layer in model.layers[1:] for name in ("gate_proj", "up_proj", "down_proj")]
    for number, (layer, name) in enumerate(children, start=1):
        dense = getattr(layer, name)
        dense.enable_lora(2)
        dense.lora_kernel_b.assign(np.full(tuple(dense.lora_kernel_b.shape), 0.01 * number))
    assert all(layer.mixing_kernel in layer.trainable_variables for layer in model.layers[1:])
    adapted = as_float64(model(x))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert_close(loaded(x), adapted, 1e-5, "saving merges each adapter into its own kernel")
    model.save_weights(tmp_path / "model.weights.h5")
    fresh = stack()
    fresh.load_weights(tmp_path / "model.weights.h5")
    assert_close(fresh(x), adapted, 1e-5, "weights file")


def test_padded_steps_change_nothing(rng):
    """CASES 054: the mask passes through, tokens do not mix, the average over real steps stays."""
    inputs = keras.Input((4, 6))
    hidden = GatedMoAFeedForward(8)(keras.layers.Masking()(inputs))
    model = keras.Model(inputs, keras.layers.GlobalAveragePooling1D()(hidden))
    x = rng.standard_normal((2, 4, 6)).astype("float32")
    x[:, 3] = 0.0
    shorter = keras.Model(inputs, hidden)(x)
    assert_close(model(x), as_float64(shorter)[:, :3].mean(1), 1e-6)


def test_dropout_acts_in_training_only(rng):
    x = rng.standard_normal((2, 3, 6)).astype("float32")
    layer = GatedMoAFeedForward(8, dropout=0.5, seed=1)
    quiet = as_float64(layer(x, training=False))
    np.testing.assert_array_equal(as_float64(layer(x)), quiet)
    assert not np.allclose(as_float64(layer(x, training=True)), quiet)


@pytest.mark.parametrize(
    ("name", "layer_class", "variant"),
    [
        ("la", LAFeedForward, None),
        ("one_la", GatedLAFeedForward, "one_sided"),
        ("bi_la", GatedLAFeedForward, "bi_sided"),
        ("qd_la", GatedLAFeedForward, "quadratic"),
        ("moa", MoAFeedForward, None),
        ("one_moa", GatedMoAFeedForward, "one_sided"),
        ("bi_moa", GatedMoAFeedForward, "bi_sided"),
        ("qd_moa", GatedMoAFeedForward, "quadratic"),
    ],
)
def test_names_for_models(name, layer_class, variant):
    """What a model hands to every feed-forward layer is taken as far as the layer has it; its activation is not."""
    layer = feed_forwards.get(name, hidden_dim=8, activation="relu", dropout=0.25, name="ffn", dtype="mixed_bfloat16")
    assert type(layer) is layer_class
    assert (layer.variant, layer.hidden_dim, layer.dropout, layer.name) == (variant, 8, 0.25, "ffn")
    assert layer.dtype_policy.name == "mixed_bfloat16"
    assert feed_forwards.is_gated(name) == (variant is not None)


def test_a_class_serves_as_a_name():
    layer = feed_forwards.get(GatedMoAFeedForward, hidden_dim=8, activation="relu", dropout=0.25, name="ffn")
    assert (layer.hidden_dim, layer.dropout, layer.name) == (8, 0.25, "ffn")


@pytest.mark.parametrize("layer_class", [LAFeedForward, MoAFeedForward, GatedLAFeedForward, GatedMoAFeedForward])
@pytest.mark.parametrize(
    ("activations", "message"),
    [
        ([], "at least one activation.*Known names: relu, relu2"),
        (["relu", None], "must not hold None.*Known names"),
        (["nosuch"], "Unknown activation 'nosuch'.*Known names:.*relu2"),
        ("relu", "list or tuple"),
    ],
    ids=["empty", "none", "unknown", "string"],
)
def test_refused_dictionaries(layer_class, activations, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        layer_class(8, activations=activations)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MoAFeedForward(8, gate="relu"), "sigmoid, tanh, softmax.*'relu'"),
        (lambda: GatedMoAFeedForward(8, gate=None), "sigmoid, tanh, softmax.*None"),
        (lambda: GatedMoAFeedForward(8, variant="two_sided"), "one_sided, bi_sided, quadratic.*'two_sided'"),
        (lambda: GatedLAFeedForward(8, variant=None), "one_sided, bi_sided, quadratic.*None"),
        (lambda: MoAFeedForward(0), "hidden_dim=0"),
        (lambda: MoAFeedForward(8).build((None, None)), "known width"),
    ],
)
def test_refused_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("variant", VARIANTS)
def test_repeated_activation_adds_its_weights(variant, rng):
    """["relu", "relu"] is legal: with all weights 1/n it is the same as ["relu"]."""
    x = rng.standard_normal((3, 6)).astype("float32")
    once = GatedLAFeedForward(8, variant, activations=["relu"])
    twice = GatedLAFeedForward(8, variant, activations=["relu", "relu"])
    once.build(x.shape)
    twice.build(x.shape)
    for child in ("gate_proj", "up_proj", "down_proj"):
        getattr(twice, child).set_weights(getattr(once, child).get_weights())
    assert_close(twice(x), as_float64(once(x)), 1e-6)
