"""LAFeedForward and GatedLAFeedForward: reference values, the layer harness, and what they reduce to."""

import json
from functools import partial

import harness
import keras
import numpy as np
import pytest
from mixture_cases import reference_layer, reference_values_at_layer_level
from reference_values import as_float64, assert_close, cases

from keras_polycom import FeedForward, GatedFeedForward, GatedLAFeedForward, LAFeedForward, PolyNorm, ops

VARIANTS = ["one_sided", "bi_sided", "quadratic"]
NAMES = list(ops.ACTIVATION_FUNCTIONS)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", cases("la_"))
def test_reference_values_and_gradients(name, dtype):
    reference_values_at_layer_level(name, dtype)


@pytest.mark.parametrize(
    "make",
    [
        partial(LAFeedForward, 8, activations=["gelu", "tanh", PolyNorm]),
        partial(GatedLAFeedForward, 8, variant="one_sided"),
        partial(GatedLAFeedForward, 8, variant="bi_sided", activations=["gelu", partial(PolyNorm, order=2)]),
        partial(GatedLAFeedForward, 8, variant="quadratic", dropout=0.1, seed=1),
    ],
    ids=["type1", "one_sided", "bi_sided", "quadratic"],
)
def test_harness(make, rng):
    thorough = make.keywords.get("variant") in (None, "bi_sided")  # the variants differ in nothing else that it checks
    x = rng.standard_normal((2, 3, 6)).astype("float32")
    harness.check_layer(make, x, half=thorough, compiled=thorough)


@pytest.mark.parametrize("name", NAMES)
def test_one_hot_weights_give_the_plain_layer(name):
    """CASES 024: LA with one-hot weights equals Dense, activation, Dense with the same kernels."""
    x = np.linspace(-4, 4, 18, dtype="float32").reshape(3, 6)
    one_hot = keras.initializers.Constant(np.eye(len(NAMES))[NAMES.index(name)].tolist())
    layer = LAFeedForward(8, activations=NAMES, mixing_initializer=one_hot)
    value = layer(x)
    hidden = keras.layers.Dense(8, activation=ops.ACTIVATION_FUNCTIONS[name])
    output = keras.layers.Dense(6)
    output(hidden(x))
    hidden.set_weights(layer.up_proj.get_weights())
    output.set_weights(layer.down_proj.get_weights())
    assert_close(value, as_float64(output(hidden(x))), 1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_one_hot_weights_give_the_plain_gated_layer(variant, name):
    """CASES 024, gated: the mixture that picks s(y) for the gate and z for the rest is GatedFeedForward."""
    x = np.linspace(-4, 4, 18, dtype="float32").reshape(3, 6)
    dictionary = [name, "identity"]
    layer = GatedLAFeedForward(8, variant=variant, activations=dictionary)
    layer.build(x.shape)
    if variant == "one_sided":  # silu(y) * s(z): the roles of the two branches are exchanged
        layer.mixing_weights.assign([1.0, 0.0])
        plain = GatedFeedForward(8, activation="silu")
        plain.build(x.shape)
        plain.set_weights([as_float64(w) for w in layer.weights[1:]])
        gate, up = plain.gate_proj(x), plain.up_proj(x)
        expected = plain.down_proj(keras.ops.silu(gate) * ops.ACTIVATION_FUNCTIONS[name](up))
    else:
        if variant == "bi_sided":
            layer.gate_mixing_weights.assign([1.0, 0.0])
            layer.up_mixing_weights.assign([0.0, 1.0])
        else:
            layer.mixing_weights.assign([0.0, 1.0, 0.0])
        plain = GatedFeedForward(8, activation=name)
        plain.build(x.shape)
        for child in ("gate_proj", "up_proj", "down_proj"):
            getattr(plain, child).set_weights(getattr(layer, child).get_weights())
        expected = plain(x)
    assert_close(layer(x), as_float64(expected), 1e-6)


def test_a_trained_plain_layer_can_be_continued(rng):
    x = rng.standard_normal((3, 6)).astype("float32")
    plain = FeedForward(8, activation="gelu")
    expected = plain(x)
    start = keras.initializers.Constant([0.0, 1.0])
    layer = LAFeedForward(8, activations=["relu", "gelu"], mixing_initializer=start)
    layer.build(x.shape)
    layer.up_proj.set_weights(plain.up_proj.get_weights())
    layer.down_proj.set_weights(plain.down_proj.get_weights())
    assert_close(layer(x), as_float64(expected), 1e-6)


@pytest.mark.parametrize(
    ("layer", "weights"),
    [
        (LAFeedForward(8), {"mixing_weights": 6}),
        (GatedLAFeedForward(8, variant="one_sided"), {"mixing_weights": 7}),
        (GatedLAFeedForward(8, variant="bi_sided"), {"gate_mixing_weights": 7, "up_mixing_weights": 7}),
        (GatedLAFeedForward(8), {"mixing_weights": 6}),
        (GatedLAFeedForward(8, activations=["relu"]), {"mixing_weights": 1}),
    ],
    ids=["type1", "one_sided", "bi_sided", "quadratic", "single"],
)
def test_weights_exist_from_the_start_as_the_mean_of_the_terms(layer, weights):
    assert [w.name for w in layer.weights] == list(weights)
    for name, size in weights.items():
        np.testing.assert_allclose(as_float64(getattr(layer, name)), np.full(size, 1 / size), rtol=1e-7)


def test_random_initial_weights_differ_between_branches():
    layer = GatedLAFeedForward(8, variant="bi_sided", mixing_initializer=keras.initializers.RandomNormal(seed=3))
    assert not np.array_equal(as_float64(layer.gate_mixing_weights), as_float64(layer.up_mixing_weights))


def test_mixing_arguments_reach_the_weights_and_the_config(rng):
    layer = LAFeedForward(
        8,
        activations=["relu", "tanh"],
        mixing_initializer=keras.initializers.Constant([2.0, -3.0]),
        mixing_regularizer=keras.regularizers.L2(0.5),
        mixing_constraint="non_neg",
    )
    layer(rng.standard_normal((3, 6)).astype("float32"))
    assert float(sum(as_float64(loss) for loss in layer.losses)) == pytest.approx(0.5 * (4 + 9))
    assert isinstance(layer.mixing_weights.constraint, keras.constraints.NonNeg)
    config = json.loads(json.dumps(layer.get_config()))
    twin = LAFeedForward.from_config(config)
    assert json.loads(json.dumps(twin.get_config())) == config
    assert as_float64(twin.mixing_weights).tolist() == [2.0, -3.0]


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixing_weights_are_used_uncast(policy, rng):
    """1/3 is not rounded to half precision on the way: with equal activations the three weights sum to exactly 1."""
    x = rng.standard_normal((3, 6)).astype("float32")
    layer = LAFeedForward(8, activations=["relu"] * 3, dtype=policy)
    value = layer(x)
    plain = FeedForward(8, activation="relu", dtype=policy)
    plain.build(x.shape)
    plain.up_proj.set_weights(layer.up_proj.get_weights())
    plain.down_proj.set_weights(layer.down_proj.get_weights())
    np.testing.assert_array_equal(as_float64(value), as_float64(plain(x)))


def test_reference_layer_has_no_other_weights():
    layer, _ = reference_layer("la_bi_sided", "float32")
    assert [w.name for w in layer.weights] == ["gate_mixing_weights", "up_mixing_weights", *["kernel"] * 3]
