"""Mixtures of activations: reference values, derivatives, precision, and what is refused."""

import keras
import numpy as np
import pytest
from reference_values import (
    TOLERANCE,
    as_float64,
    as_tensors,
    assert_close,
    cases,
    check_derivatives,
    gradients_of,
    inputs_of,
    load,
    value_and_gradients,
)

from keras_polycom import PolyNorm, config, ops

CASES = cases("la_") + cases("moa_")
SMALL = ["gelu", "silu", "relu2"]
FULL = ["identity", "relu", "relu2", "leaky_relu", "gelu", "silu", "tanh"]


def feed_forward(case):
    """The layer of a reference file as a function of its inputs: matrix products and the ops under test."""
    dictionary, gate = case["meta"]["activations"], case["meta"].get("gate")

    def mixing(x, weights):
        return ops.mixing_gate(x, weights, gate) if gate else weights

    def type1(x, w1, w2, alpha=None, u=None):
        return ops.mix_activations(x @ w1, mixing(x, u if gate else alpha), dictionary) @ w2

    def one_sided(x, w1, w2, w3, alpha=None, u=None):
        return ops.mix_one_sided(x @ w1, x @ w2, mixing(x, u if gate else alpha), dictionary) @ w3

    def bi_sided(x, w1, w2, w3, alpha=None, beta=None, u=None, v=None):
        first, second = (v, u) if gate else (beta, alpha)
        return ops.mix_bi_sided(x @ w1, x @ w2, mixing(x, first), mixing(x, second), dictionary) @ w3

    def quadratic(x, w1, w2, w3, alpha=None, u=None):
        return ops.mix_quadratic(x @ w1, x @ w2, mixing(x, u if gate else alpha), dictionary) @ w3

    return {"type1": type1, "one_sided": one_sided, "bi_sided": bi_sided, "quadratic": quadratic}


def function_of(name):
    functions = feed_forward(load(name))
    return next(function for variant, function in functions.items() if f"_{variant}" in name)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_reference_values_and_gradients(name, dtype):
    case = load(name)
    value, gradients = value_and_gradients(function_of(name), inputs_of(case), case["upstream"], dtype)
    assert_close(value, case["out"], TOLERANCE[dtype], "value")
    for key, expected in gradients_of(case).items():
        assert_close(gradients[key], expected, TOLERANCE[dtype], f"gradient of {key}")


@pytest.mark.parametrize("name", ["moa_type1_softmax_full", "moa_bi_sided_tanh_gsr2", "moa_quadratic_sigmoid_gsr2"])
def test_compiled_equals_reference(name):
    case = load(name)
    value, gradients = value_and_gradients(
        function_of(name), inputs_of(case), case["upstream"], "float64", compiled=True
    )
    assert_close(value, case["out"], 1e-10, "value")
    for key, expected in gradients_of(case).items():
        assert_close(gradients[key], expected, 1e-10, f"gradient of {key}")


@pytest.mark.parametrize("name", ["moa_type1_softmax_full", "moa_quadratic_tanh_gsr2"])
def test_second_derivatives(name):
    check_derivatives(function_of(name), inputs_of(load(name)), tolerance=1e-5)


VALUES = {  # at 1.5 and -1.5
    "relu": (1.5, 0.0),
    "relu2": (2.25, 0.0),
    "leaky_relu": (1.5, -0.015),
    "gelu": (1.3998, -0.1002),
    "silu": (1.2264, -0.2736),
    "tanh": (0.9051, -0.9051),
    "identity": (1.5, -1.5),
}


@pytest.mark.parametrize("name", VALUES)
def test_dictionary_values(name):
    """CASES 024: the exact GELU, and the leaky slope 0.01 instead of Keras's 0.2."""
    value = ops.mix_activations(np.array([1.5, -1.5]), [1.0], [name])
    np.testing.assert_allclose(as_float64(value), VALUES[name], atol=5e-5)


def test_keras_names_callables_and_layers_may_be_mixed(rng):
    h = rng.standard_normal((3, 7))
    layer = PolyNorm(dtype="float64")
    value = ops.mix_activations(h, [0.5, 2.0, -1.0], ["softplus", lambda x: x * x, layer])
    expected = 0.5 * np.log1p(np.exp(h)) + 2 * h * h - as_float64(layer(h))
    assert_close(value, expected, 1e-10)


def test_each_activation_is_evaluated_once_per_branch(rng):
    seen = []
    dictionary = [lambda x, name=name: seen.append(name) or x for name in "abc"]
    y, z = rng.standard_normal((2, 3, 7))
    ops.mix_quadratic(y, z, np.arange(6.0), dictionary)
    assert sorted(seen) == sorted("aabbcc")
    seen.clear()
    ops.mix_one_sided(y, z, np.arange(3.0), dictionary)
    assert sorted(seen) == sorted("abc")


def test_quadratic_pairs_are_lexicographic_and_first_index_acts_on_the_gate_branch():
    powers = [lambda x: x, lambda x: x**2, lambda x: x**3]
    pairs = [(1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (3, 3)]
    for index, (k, m) in enumerate(pairs):
        value = ops.mix_quadratic([2.0], [3.0], np.eye(6)[index], powers)
        assert float(value[0]) == 2.0**k * 3.0**m


@pytest.mark.parametrize("op", ["mix_bi_sided", "mix_quadratic"])
def test_branches_may_have_dictionaries_of_their_own(op, rng):
    y, z = rng.standard_normal((2, 4, 7))
    weights = [[2.0], [3.0]] if op == "mix_bi_sided" else [[6.0]]
    value = getattr(ops, op)(y, z, *weights, ["tanh"], up_activations=["relu"])
    assert_close(value, 6 * np.tanh(y) * np.maximum(z, 0), 1e-10)


def test_weights_broadcast_over_tokens_and_hidden_units(rng):
    h = rng.standard_normal((2, 3, 7))
    weights = rng.standard_normal((2, 1, 2))
    value = ops.mix_activations(h, weights, ["relu", "tanh"])
    assert_close(value, weights[..., :1] * np.maximum(h, 0) + weights[..., 1:] * np.tanh(h), 1e-10)
    assert_close(ops.mix_activations(h[0, 0], weights[0, 0], ["relu", "tanh"]), as_float64(value)[0, 0], 1e-10)


@pytest.mark.parametrize("gate", ["sigmoid", "tanh", "softmax"])
def test_gate(gate, rng):
    x, kernel, bias = rng.standard_normal((2, 5, 4)), rng.standard_normal((4, 3)), rng.standard_normal(3)
    logits = x @ kernel + bias
    expected = {
        "sigmoid": 1 / (1 + np.exp(-logits)),
        "tanh": np.tanh(logits),
        "softmax": np.exp(logits) / np.exp(logits).sum(-1, keepdims=True),
    }[gate]
    assert_close(ops.mixing_gate(x, kernel, gate, bias), expected, 1e-10)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gate_of_half_precision_input_is_computed_in_float32(dtype, rng):
    x = keras.ops.cast(rng.standard_normal((5, 64)), dtype)
    kernel = rng.standard_normal((64, 3)).astype("float32")
    gate = ops.mixing_gate(x, kernel)
    assert keras.backend.standardize_dtype(gate.dtype) == "float32"
    assert_close(gate, 1 / (1 + np.exp(-as_float64(x) @ kernel)), 1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("variant", ["type1", "one_sided", "bi_sided", "quadratic"])
def test_half_precision_is_rounded_once(variant, dtype, rng):
    """The result is that of float64 arithmetic on the same half-precision numbers, within 2 units in the last place."""
    y, z = (keras.ops.cast(2 * rng.standard_normal((4, 33)), dtype) for _ in range(2))
    weights = {n: rng.uniform(0.1, 1, (4, n)).astype("float32") for n in (3, 6)}

    def mixture(y, z):
        if variant == "type1":
            return ops.mix_activations(y, weights[3], SMALL)
        if variant == "one_sided":
            return ops.mix_one_sided(y, z, weights[3], SMALL)
        if variant == "bi_sided":
            return ops.mix_bi_sided(y, z, weights[3], weights[3] ** 2, SMALL)
        return ops.mix_quadratic(y, z, weights[6], SMALL)

    value = mixture(y, z)
    assert keras.backend.standardize_dtype(value.dtype) == dtype
    expected = as_float64(mixture(keras.ops.cast(y, "float64"), keras.ops.cast(z, "float64")))
    unit = 2.0**-10 if dtype == "float16" else 2.0**-7
    assert np.all(np.abs(as_float64(value) - expected) <= 2 * unit * np.abs(expected) + 1e-6)


def test_sum_that_cancels_in_float16_is_taken_in_float32():
    """relu2 of 300 is 90000, over float16's 65504; the mixture 90000 - 300 * 299 = 300 is not."""
    h = keras.ops.cast([300.0], "float16")
    assert float(ops.mix_activations(h, [1.0, -299.0], ["relu2", "relu"])[0]) == 300.0


def test_integers_become_float32():
    value = ops.mix_activations(np.array([-2, 3]), [0.5], ["relu"])
    assert keras.backend.standardize_dtype(value.dtype) == "float32"
    assert as_float64(value).tolist() == [0.0, 1.5]


def test_symbolic_shapes_keep_unknown_dimensions():
    h, weights = keras.KerasTensor((None, None, 8)), keras.KerasTensor((None, None, 6))
    assert ops.mix_quadratic(h, h, weights, SMALL).shape == (None, None, 8)
    assert ops.mixing_gate(h, np.ones((8, 6), "float32")).shape == (None, None, 6)


def test_tokens_do_not_mix(rng):
    """Changing one token changes no other."""
    case = load("moa_bi_sided_softmax_full")
    inputs = inputs_of(case)
    function = function_of("moa_bi_sided_softmax_full")
    changed = {**inputs, "x": inputs["x"].copy()}
    changed["x"][1, 2] += 5.0
    before, after = (as_float64(function(**as_tensors(values, "float64"))) for values in (inputs, changed))
    assert np.abs(before - after)[1, 2].max() > 0.1
    after[1, 2] = before[1, 2]
    np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize(
    ("dictionary", "message"),
    [
        ([], "at least one activation.*Known names: relu, relu2, leaky_relu"),
        (["relu", None], "must not hold None.*identity.*Known names: relu, relu2"),
        (["nosuch"], "'nosuch'.*Known names: relu, relu2, leaky_relu, gelu, silu, tanh, identity, celu"),
        ("relu", "list or tuple.*'relu'"),
        ([3], "holds 3"),
        ([PolyNorm], "neither a callable nor a known name"),
    ],
    ids=["empty", "none", "unknown", "string", "number", "class"],
)
def test_refused_dictionaries(dictionary, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        ops.mix_activations([1.0], [1.0], dictionary)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ops.mix_activations(np.ones((2, 4)), np.ones(2), SMALL), r"must hold 3 weights.*\(2,\)"),
        (lambda: ops.mix_activations(np.ones((2, 4)), np.ones((3, 3)), SMALL), r"leading axes.*\(3, 3\).*\(2, 4\)"),
        (lambda: ops.mix_activations(np.ones(4), np.ones((1, 3)), SMALL), "leading axes"),
        (lambda: ops.mix_quadratic(np.ones(4), np.ones(4), np.ones(3), SMALL), "must hold 6 weights"),
        (lambda: ops.mix_quadratic(np.ones(4), np.ones(4), np.ones(6), SMALL, ["relu"]), "3 and 1 activations"),
        (lambda: ops.mix_one_sided(np.ones(4), np.ones(5), np.ones(3), SMALL), r"same shape.*\(4,\) and \(5,\)"),
        (lambda: ops.mix_bi_sided(np.ones(4), np.ones(4), np.ones(3), np.ones(2), SMALL), "`up_weights` must hold 3"),
        (lambda: ops.mix_activations(np.ones(4), np.ones(1), ["glu"]), r"keep the shape.*\(2,\) of \(4,\)"),
        (lambda: ops.mixing_gate(np.ones((2, 4)), np.ones((5, 3))), r"\(width, n\).*\(5, 3\).*\(2, 4\)"),
        (lambda: ops.mixing_gate(np.ones((2, 4)), np.ones((4, 3)), bias=np.ones(2)), r"`bias`.*\(3,\).*\(2,\)"),
        (lambda: ops.mixing_gate(np.ones((2, 4)), np.ones((4, 3)), "relu"), "sigmoid, tanh, softmax.*'relu'"),
        (lambda: ops.mixing_gate(np.ones((2, 4)), np.ones((4, 3)), None), "sigmoid, tanh, softmax.*None"),
    ],
)
def test_refused_arguments(call, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        call()


def test_complex_input_is_refused():
    with pytest.raises(TypeError, match="real tensor"):
        ops.mix_activations(np.ones(3, "complex64"), [1.0], ["relu"])


def test_fast_roads_off_gives_the_same_numbers(rng):
    y, z = rng.standard_normal((2, 5, 9)).astype("float32")
    weights = rng.standard_normal((5, 28)).astype("float32")
    value = ops.mix_quadratic(y, z, weights, FULL)
    with config.fast_roads_scope("off"):
        assert_close(value, as_float64(ops.mix_quadratic(y, z, weights, FULL)), 1e-6)
