"""Lemmas 4.1 and 4.2: sign and phi by one layer normalization."""

import keras
import numpy as np
import pytest
from reference_values import as_float64
from tracing import traced

from keras_polycom import theory

POINTS = np.concatenate([[0.0], np.logspace(-30, 30, 61), -np.logspace(-30, 30, 61), np.linspace(-3, 3, 61)])[:, None]
# On torch Keras multiplies float64 matrices in float32, so that `Dense` has no more digits than that there.
DIGITS = 2e-6 if keras.backend.backend() == "torch" else 1e-14
TOLERANCE = {"float32": 2e-6, "float64": DIGITS}


def evaluate(model, x):
    return as_float64(traced(model)(keras.ops.convert_to_tensor(x, dtype=model.layers[0].compute_dtype)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("norm_size", [2, 3, 4, 17])
def test_sign(norm_size, dtype):
    """On 60 orders of magnitude; exactly so for even sizes, where nothing is rounded."""
    model = theory.sign_network(norm_size=norm_size, dtype=dtype)
    assert model.layers[1].epsilon == 0
    error = np.abs(evaluate(model, POINTS) - np.sign(POINTS)).max()
    # Even sizes give exactly 1 but for the last bit, which XLA may lose in x / sqrt(y).
    assert error <= (np.finfo(dtype).eps if norm_size % 2 == 0 else TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("epsilon", [0.0, 1e-5, 2.0])
@pytest.mark.parametrize("norm_size", [3, 4, 13])
def test_phi(norm_size, epsilon, dtype):
    model = theory.phi_network(norm_size=norm_size, epsilon=epsilon, dtype=dtype)
    assert model.layers[1].epsilon == epsilon
    expected = POINTS / np.hypot(1, POINTS)
    assert np.abs(evaluate(model, POINTS) - expected).max() <= TOLERANCE[dtype]


def test_phi_does_not_use_the_epsilon_it_was_not_built_for():
    """The factor sqrt(1 + epsilon) is what makes lemma 4.2 exact: without it the error is of the order of epsilon."""
    model = theory.phi_network(epsilon=0.0, dtype="float64")
    maps, (norm,) = theory.read_network(model)
    wrong = theory.build_network(maps, [norm._replace(epsilon=0.3)], dtype="float64")
    assert np.abs(evaluate(wrong, POINTS) - POINTS / np.hypot(1, POINTS)).max() > 0.05


@pytest.mark.parametrize("make", [theory.sign_network, theory.phi_network], ids=["sign", "phi"])
def test_units_do_not_mix(make, rng):
    x = rng.standard_normal((7, 3))
    together = evaluate(make(units=3, norm_size=4, dtype="float64"), x)
    alone = [evaluate(make(norm_size=4, dtype="float64"), x[:, i : i + 1]) for i in range(3)]
    np.testing.assert_allclose(together, np.concatenate(alone, axis=1), rtol=0, atol=DIGITS)


@pytest.mark.parametrize(("make", "least"), [(theory.sign_network, 2), (theory.phi_network, 3)], ids=["sign", "phi"])
def test_least_size(make, least):
    with pytest.raises(ValueError, match=f"`norm_size` must be an integer of at least {least}"):
        make(norm_size=least - 1)
    with pytest.raises(ValueError, match="`units` must be an integer of at least 1"):
        make(units=0)
