"""What the Mixture-of-Activations paper proves, with its constructions written out [MoA, theorems 4.1 and 4.2]."""

import keras
import numpy as np
import pytest
from reference_values import as_float64, assert_close

from keras_polycom import (
    FeedForward,
    GatedFeedForward,
    GatedLAFeedForward,
    GatedMoAFeedForward,
    LAFeedForward,
    MoAFeedForward,
)

INVERSE = {"sigmoid": lambda p: np.log(p / (1 - p)), "tanh": np.arctanh, "softmax": np.log}
DICTIONARY = ["gelu", "relu2", "tanh"]


def copy_projections(source, target, down_factor=1.0):
    for name in ("gate_proj", "up_proj"):
        if hasattr(source, name):
            getattr(target, name).set_weights(getattr(source, name).get_weights())
    kernel, bias = source.down_proj.get_weights()
    target.down_proj.set_weights([down_factor * kernel, bias])


@pytest.mark.parametrize("name", ["relu", "relu2", "gelu", "tanh"])
@pytest.mark.parametrize(("gate", "constant"), [("sigmoid", 0.5), ("softmax", 1.0)])
def test_one_activation_with_constant_gate_is_the_plain_layer(gate, constant, name, rng):
    """U = 0 makes the gate constant; W2 takes the constant up."""
    x = rng.standard_normal((2, 3, 6)).astype("float32")
    plain = FeedForward(8, activation=name)
    expected = plain(x)
    layer = MoAFeedForward(8, activations=[name], gate=gate, mixing_initializer="zeros")
    layer.build(x.shape)
    copy_projections(plain, layer, 1 / constant)
    assert_close(layer(x), as_float64(expected), 1e-6)


@pytest.mark.parametrize("variant", ["one_sided", "bi_sided", "quadratic"])
@pytest.mark.parametrize(("gate", "constant"), [("sigmoid", 0.5), ("softmax", 1.0)])
def test_one_activation_with_constant_gate_is_the_plain_gated_layer(gate, constant, variant, rng):
    """With the identity as the only activation: SwiGLU one-sided, the bilinear layer y * z otherwise."""
    x = rng.standard_normal((2, 3, 6)).astype("float32")
    plain = GatedFeedForward(8, activation="silu" if variant == "one_sided" else "identity")
    expected = plain(x)
    layer = GatedMoAFeedForward(8, variant, activations=["identity"], gate=gate, mixing_initializer="zeros")
    layer.build(x.shape)
    copy_projections(plain, layer, constant ** -(2 if variant == "bi_sided" else 1))
    assert_close(layer(x), as_float64(expected), 1e-6)


def probabilities(weights, gate):
    """Weights in the range of the gate that are `weights` times a factor, and the factor."""
    scale = weights.sum() if gate == "softmax" else 2 * np.abs(weights).max()
    return weights / scale, scale


@pytest.mark.parametrize("where", ["bias", "coordinate"])
@pytest.mark.parametrize("gate", ["sigmoid", "tanh", "softmax"])
def test_la_is_moa_whose_gates_see_only_the_constant_coordinate(gate, where, rng):
    """Theorem 4.2, LA within MoA: the logits are the gate's inverse of alpha, scaled into its range; W2 scales back.

    The constant coordinate is the gate's bias, or a last coordinate of x that is always 1.
    """
    x = rng.standard_normal((3, 6)).astype("float32")
    x[:, -1] = 1.0
    alpha = np.array([0.7, 0.2, 1.6]) * (1 if gate != "tanh" else np.array([1, -1, 1]))
    la = LAFeedForward(8, activations=DICTIONARY, mixing_initializer=keras.initializers.Constant(alpha.tolist()))
    expected = la(x)
    p, scale = probabilities(alpha, gate)
    logits = INVERSE[gate](p)
    moa = MoAFeedForward(8, activations=DICTIONARY, gate=gate, gate_bias=where == "bias", mixing_initializer="zeros")
    moa.build(x.shape)
    if where == "bias":
        moa.mixing_bias.assign(logits)
    else:
        moa.mixing_kernel.assign(np.concatenate([np.zeros((5, 3)), logits[None]]))
    copy_projections(la, moa, scale)
    assert_close(moa(x), as_float64(expected), 1e-5)


@pytest.mark.parametrize("variant", ["one_sided", "bi_sided", "quadratic"])
@pytest.mark.parametrize("gate", ["sigmoid", "tanh", "softmax"])
def test_gated_la_is_gated_moa_with_constant_gates(gate, variant, rng):
    x = rng.standard_normal((3, 6)).astype("float32")
    la = GatedLAFeedForward(8, variant, activations=DICTIONARY)
    moa = GatedMoAFeedForward(8, variant, activations=DICTIONARY, gate=gate, gate_bias=True, mixing_initializer="zeros")
    la.build(x.shape)
    moa.build(x.shape)
    factor = 1.0
    for prefix in ["gate_mixing", "up_mixing"] if variant == "bi_sided" else ["mixing"]:
        weights = getattr(la, f"{prefix}_weights")
        values = rng.uniform(0.1, 1.0, tuple(weights.shape))
        weights.assign(values)
        p, scale = probabilities(values, gate)
        getattr(moa, f"{prefix}_bias").assign(INVERSE[gate](p))
        factor *= scale
    copy_projections(la, moa, factor)
    assert_close(moa(x), as_float64(la(x)), 1e-5)


def test_one_moa_neuron_is_tanh_times_relu():
    """Theorem 4.2, MoA is more than LA: tanh(a x1) relu(x2) with one hidden unit, W1 = e2, U = a e1, W2 = e1."""
    a = 1.7
    grid = np.linspace(-3, 3, 13, dtype="float32")
    x = np.stack(np.meshgrid(grid, grid), axis=-1)
    layer = MoAFeedForward(1, activations=["relu"], gate="tanh", use_bias=False)
    layer.build(x.shape)
    layer.mixing_kernel.assign([[a], [0.0]])
    layer.up_proj.set_weights([np.array([[0.0], [1.0]])])
    layer.down_proj.set_weights([np.array([[1.0, 0.0]])])
    expected = np.tanh(a * x[..., 0]) * np.maximum(x[..., 1], 0)
    assert_close(layer(x)[..., 0], expected, 1e-6)


def test_one_la_neuron_is_relu_plus_its_square():
    """Theorem 4.1, LA is more than one fixed activation: relu(x1) + relu(x1)^2 with one hidden unit, alpha = (1, 1)."""
    x = np.linspace(-3, 3, 13, dtype="float32")[:, None] * np.ones((1, 2), "float32")
    layer = LAFeedForward(1, activations=["relu", "relu2"], use_bias=False, mixing_initializer="ones")
    layer.build(x.shape)
    layer.up_proj.set_weights([np.array([[1.0], [0.0]])])
    layer.down_proj.set_weights([np.array([[1.0, 0.0]])])
    rectified = np.maximum(x[:, 0], 0)
    assert_close(layer(x)[:, 0], rectified + rectified**2, 1e-6)
