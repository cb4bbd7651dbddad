"""Lemmas 3.1 and 3.2: PLN-Nets are sums of LN-Nets, and LN[n]-Nets are LS[n-1]-Nets."""

import itertools

import keras
import numpy as np
import pytest
from reference_values import as_float64, assert_close
from tracing import traced

import keras_polycom
from keras_polycom import theory

# On torch Keras multiplies float64 matrices in float32, so that `Dense` has no more digits than that there.
DIGITS = 1e-5 if keras.backend.backend() == "torch" else 1e-11


def random_network(rng, groups=(3,), norm_size=4, centered=True, epsilon=0.0, inputs=5, outputs=2):
    """A PLN- or PLS-Net with random weights, as many hidden layers as there are numbers of groups."""
    widths = [inputs, *(count * norm_size for count in groups), outputs]
    maps = [
        theory.Affine(rng.standard_normal((before, behind)), rng.standard_normal(behind))
        for before, behind in itertools.pairwise(widths)
    ]
    return theory.build_network(
        maps, [theory.Normalization(norm_size, centered, epsilon)] * len(groups), dtype="float64"
    )


def evaluate(model, x):
    return as_float64(traced(model)(keras.ops.convert_to_tensor(x)))


@pytest.mark.parametrize("centered", [True, False], ids=["pln", "pls"])
def test_sum_of_networks(centered, rng):
    network = random_network(rng, centered=centered, epsilon=1e-3)
    total = theory.sum_of_networks(network)
    x = rng.standard_normal((6, 5))
    assert_close(evaluate(total, x), evaluate(network, x), DIGITS)
    norms = [layer for layer in total.layers if hasattr(layer, "norm_size")]
    assert [norm.input.shape[-1] for norm in norms] == [4, 4, 4]  # each of its whole width: a layer normalization


def test_join_networks_is_the_converse(rng):
    networks = [random_network(rng, groups=(count,)) for count in (1, 2, 1)]
    joined = theory.join_networks(networks)
    assert joined.layers[0].units == 16
    x = rng.standard_normal((6, 5))
    assert_close(evaluate(joined, x), sum(evaluate(network, x) for network in networks), DIGITS)
    assert_close(evaluate(theory.sum_of_networks(joined), x), evaluate(joined, x), DIGITS)


@pytest.mark.parametrize("groups", [(1,), (2, 3, 1)], ids=["ln", "deep"])
@pytest.mark.parametrize("epsilon", [0.0, 0.2])
@pytest.mark.parametrize("norm_size", [2, 7])
def test_as_layer_scaling_network(norm_size, epsilon, groups, rng):
    network = random_network(rng, groups, norm_size, epsilon=epsilon)
    scaling = theory.as_layer_scaling_network(network)
    norms = scaling.layers[1::2]
    assert all(type(norm) is keras_polycom.ParallelLayerScaling for norm in norms)
    assert [norm.norm_size for norm in norms] == [norm_size - 1] * len(groups)
    assert [layer.units for layer in scaling.layers[:-1:2]] == [count * (norm_size - 1) for count in groups]
    x = rng.standard_normal((6, 5))
    assert_close(evaluate(scaling, x), evaluate(network, x), DIGITS)


@pytest.mark.parametrize("epsilon", [0.0, 0.2])
@pytest.mark.parametrize("norm_size", [1, 6])
def test_as_layer_norm_network(norm_size, epsilon, rng):
    groups = (2, 3)
    network = random_network(rng, groups, norm_size, centered=False, epsilon=epsilon)
    norm = theory.as_layer_norm_network(network)
    assert [layer.norm_size for layer in norm.layers[1::2]] == [norm_size + 1] * len(groups)
    assert all(type(layer) is keras_polycom.ParallelLayerNormalization for layer in norm.layers[1::2])
    x = rng.standard_normal((6, 5))
    assert_close(evaluate(norm, x), evaluate(network, x), DIGITS)


def test_gamma_and_beta_are_folded_away(rng):
    """A trained network with affine normalizations is one without."""
    network = keras.Sequential(
        [
            keras.Input((5,), dtype="float64"),
            keras.layers.Dense(8, dtype="float64"),
            keras_polycom.PLN(4, dtype="float64"),
            keras.layers.Dense(6, use_bias=False, dtype="float64"),
            keras_polycom.PLN(3, scale=False, dtype="float64"),
            keras.layers.Dense(2, dtype="float64"),
        ]
    )
    for weight in network.weights:
        weight.assign(rng.standard_normal(tuple(weight.shape)))
    x = rng.standard_normal((6, 5))
    plain = theory.build_network(*theory.read_network(network), dtype="float64")
    assert_close(evaluate(plain, x), evaluate(network, x), DIGITS)
    assert_close(evaluate(theory.as_layer_scaling_network(network), x), evaluate(network, x), DIGITS)


class TestErrors:
    def test_activation_inside(self):
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4, activation="relu")])
        with pytest.raises(ValueError, match=r"chain of linear Dense layers .* Received: \['Dense'\]"):
            theory.read_network(model)

    def test_deep_network_is_no_sum(self, rng):
        with pytest.raises(ValueError, match=r"one normalization\. Received: 2"):
            theory.sum_of_networks(random_network(rng, groups=(1, 1)))

    def test_kind(self, rng):
        with pytest.raises(ValueError, match="ParallelLayerScaling layers only"):
            theory.as_layer_norm_network(random_network(rng))
        with pytest.raises(ValueError, match="ParallelLayerNormalization layers only"):
            theory.as_layer_scaling_network(random_network(rng, centered=False))

    def test_networks_that_do_not_fit_together(self, rng):
        with pytest.raises(ValueError, match="the same normalization in all models"):
            theory.join_networks([random_network(rng, norm_size=4), random_network(rng, norm_size=3)])
        with pytest.raises(ValueError, match="at least one model"):
            theory.join_networks([])

    def test_number_of_maps(self):
        with pytest.raises(ValueError, match="1 affine maps, 1 normalizations"):
            theory.build_network([theory.Affine(np.eye(2), np.zeros(2))], [theory.Normalization(2)])
