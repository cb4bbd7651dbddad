"""Layers on tensors that lie in memory in another order (CASES 079), and under `jax.vmap` (CASES 086)."""

import importlib

import keras
import numpy as np
import pytest

import keras_polycom
from keras_polycom import layers

BACKEND = keras.backend.backend()

LAYERS = {
    "poly_relu": keras_polycom.PolyReLU,
    "poly_prelu": keras_polycom.PolyPReLU,
    "poly_norm": keras_polycom.PolyNorm,
    "poly_norm_axis_1": lambda: keras_polycom.PolyNorm(axis=1),
    "poly_relu_norm": keras_polycom.PolyReLUNorm,
    "grouped": lambda: layers.GroupedPolyNorm(1),
    "pln": lambda: keras_polycom.PLN(4),
    "pls": lambda: keras_polycom.PLS(4),
    "mix_norm": lambda: keras_polycom.MixNormalization(2, 4),
    "feed_forward": lambda: keras_polycom.FeedForward(6, "poly_norm"),
    "la": lambda: keras_polycom.LAFeedForward(6),
    "moa": lambda: keras_polycom.MoAFeedForward(6),
    "one_sided": lambda: keras_polycom.GatedMoAFeedForward(6, variant="one_sided"),
    "bi_sided": lambda: keras_polycom.GatedMoAFeedForward(6, variant="bi_sided"),
    "quadratic": lambda: keras_polycom.GatedMoAFeedForward(6, variant="quadratic"),
}
every_layer = pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
SHAPE = (2, 6, 8)


@pytest.mark.skipif(BACKEND != "torch", reason="only tensors of PyTorch have strides")
@every_layer
def test_strides_of_inputs_and_of_gradients_from_above(make):
    torch = importlib.import_module("torch")
    layer, x, upstream = make(), torch.randn(SHAPE), torch.randn(SHAPE)
    layouts = {
        "transposed": lambda t: t.transpose(0, 2).contiguous().transpose(0, 2),
        "sliced": lambda t: torch.stack([t, 0 * t], dim=-1)[..., 0],
        "expanded": lambda t: t[:1].expand(SHAPE),
    }

    def run(x, upstream):
        x = x.detach().requires_grad_()
        out = layer(x)
        return out, *torch.autograd.grad(out, [x, *(v.value for v in layer.trainable_variables)], upstream)

    for name, layout in layouts.items():
        given = layout(x), layout(upstream)
        assert not all(t.is_contiguous() for t in given), name
        expected = run(*(t.contiguous() for t in given))
        for actual, wanted in zip(run(*given), expected, strict=True):
            torch.testing.assert_close(actual, wanted, rtol=1e-5, atol=1e-5, msg=name)


@pytest.mark.skipif(BACKEND != "jax", reason="a transformation of JAX")
@pytest.mark.parametrize("name", ["poly_relu", "poly_norm", "grouped", "pln", "moa"])
def test_vmap_of_a_stateless_call(name):
    jax = importlib.import_module("jax")
    layer, x = LAYERS[name](), np.random.default_rng(3).standard_normal(SHAPE).astype("float32")
    expected = layer(x)
    trainable, others = ([v.value for v in vs] for vs in (layer.trainable_variables, layer.non_trainable_variables))
    mapped = jax.vmap(lambda row: layer.stateless_call(trainable, others, row)[0])(x)
    np.testing.assert_allclose(mapped, expected, rtol=1e-6, atol=1e-6)
