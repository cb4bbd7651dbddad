"""The layout map, and values and gradients of layers whose hidden units are on several devices."""

import keras
import numpy as np
import pytest
from models_small import vit
from reference_values import assert_close

from keras_polycom import PolyNorm, config, feed_forwards, models, ops

DEVICES = [f"cpu:{index}" for index in range(4)]
HEADS, HIDDEN = (None, "model", None), (None, "model")
SPLIT_IN_A_BLOCK = {
    "attention/query/kernel": HEADS,
    "attention/key/kernel": HEADS,
    "attention/value/kernel": HEADS,
    "attention/query/bias": ("model", None),
    "attention/key/bias": ("model", None),
    "attention/value/bias": ("model", None),
    "attention/attention_output/kernel": ("model", None, None),
    "feed_forward/up_proj/kernel": HIDDEN,
    "feed_forward/up_proj/bias": ("model",),
    "feed_forward/down_proj/kernel": ("model", None),
}
SPLIT_IF_GATED = {"feed_forward/gate_proj/kernel": HIDDEN, "feed_forward/gate_proj/bias": ("model",)}
PATCHES = {"patch_embedding/kernel": (None, None, None, "model")}

on_jax = pytest.mark.skipif(keras.backend.backend() != "jax", reason="only JAX splits arrays among devices")


def mesh():
    return keras.distribution.DeviceMesh((2, 2), ("batch", "model"), DEVICES)


def split(model):
    """Path -> axes, of the variables that the layout map splits. A path that two rules match is an error of Keras's."""
    layouts = models.layout_map(mesh())
    found = {variable.path: layouts[variable.path] for variable in model.weights}
    return {path: layout.axes for path, layout in found.items() if layout is not None}


def blocks(gated, *prefixes):
    rules = SPLIT_IN_A_BLOCK | (SPLIT_IF_GATED if gated else {})
    return {f"{prefix}_{name}": axes for prefix in prefixes for name, axes in rules.items()}


@pytest.mark.parametrize("feed_forward", feed_forwards.names())
def test_every_large_kernel_of_a_vit_is_split_and_nothing_else(feed_forward):
    model = vit(feed_forward=feed_forward, activation="poly_norm")
    gated = feed_forwards.is_gated(feed_forward)
    expected = blocks(gated, "block_0", "block_1") | PATCHES | {"head/kernel": ("model", None)}
    assert split(model) == expected
    whole = {v.path.split("/")[-1] for v in model.weights if v.path not in expected}
    assert whole <= {
        *("bias", "gamma", "beta", "token", "table", "coefficients"),
        *("mixing_kernel", "gate_mixing_kernel", "up_mixing_kernel"),
        *("mixing_weights", "gate_mixing_weights", "up_mixing_weights"),
    }


def test_a_masked_autoencoder_has_a_split_decoder():
    sizes = {"patch_size": 8, "num_layers": 1, "hidden_dim": 24, "num_heads": 3}
    decoder = {"decoder_num_layers": 1, "decoder_hidden_dim": 16, "decoder_num_heads": 2}
    model = models.MAE(image_shape=(16, 24, 3), feed_forward="qd_moa", **sizes, **decoder)
    around = {f"decoder_{name}/kernel": ("model", None) for name in ("embedding", "prediction")}
    assert split(model) == blocks(True, "block_0", "decoder_block_0") | PATCHES | around


@pytest.mark.parametrize("normalization", ["layer_norm", "batch_norm", "pln[4]"])
def test_normalizations_and_those_used_as_activations_are_whole(normalization):
    model = vit(normalization=normalization, activation="pln[4]")
    assert not any(name in path for path in split(model) for name in ("norm", "activation"))


def test_paths_are_the_same_in_every_build_and_inside_other_models():
    first, second = vit(feed_forward="qd_moa"), vit(feed_forward="qd_moa", name="another")
    assert split(first) == split(second)
    outer = keras.Sequential([keras.Input((16, 24, 3)), second])
    assert split(outer) == split(first)


def test_another_axis_of_the_mesh_and_a_missing_one():
    other = keras.distribution.DeviceMesh((2, 2), ("batch", "tensor"), DEVICES)
    assert models.layout_map(other, "tensor")["block_0_attention/key/kernel"].axes == (None, "tensor", None)
    with pytest.raises(ValueError, match="one of 'batch', 'tensor'. Received: model_axis='model'"):
        models.layout_map(other)


def poly_norm(x, coefficients):
    return ops.poly_norm(x, coefficients, bias=coefficients[:1])


def quadratic(x, weights):
    return ops.mix_quadratic(x, x[:, ::-1], weights, ["gelu", "silu", "relu2"])


def weighted_per_token(x, weights):
    return ops.mix_activations(x, x[:, :3] * weights[:3], ["gelu", "silu", "tanh"])


def runs(x, weights):
    gamma = keras.ops.tile(weights, x.shape[-1] // len(weights))
    return ops.parallel_layer_norm(x, norm_size=8, gamma=gamma)


SHARDED = {"poly_norm": poly_norm, "quadratic mixture": quadratic, "mixture per token": weighted_per_token, "pln": runs}


@pytest.fixture
def fast_roads():
    former = config.fast_roads()
    yield config.set_fast_roads
    config.set_fast_roads(former)


@on_jax
@pytest.mark.parametrize("road", ["on", "off"])
@pytest.mark.parametrize("op", SHARDED.values(), ids=SHARDED)
def test_values_and_gradients_with_a_split_hidden_axis(op, road, rng, fast_roads):
    """Rows and hidden units are on two devices each; what decides the moments of one row is on one of them."""
    import jax

    x, upstream = rng.standard_normal((2, 64, 1536)).astype("float32")
    x[3, 1000:] *= 100
    weights = np.array([0.7, -0.4, 0.2, 0.5, -0.1, 0.3], "float32")[: 3 if op is poly_norm else 6]

    def pulled(x, weights, upstream):
        out, pull = jax.vjp(op, x, weights)
        return out, *pull(upstream)

    fast_roads(road)
    alone = jax.jit(pulled)(x, weights, upstream)
    layout = jax.sharding.NamedSharding(mesh().backend_mesh, jax.sharding.PartitionSpec("batch", "model"))
    together = jax.jit(pulled)(jax.device_put(x, layout), weights, jax.device_put(upstream, layout))
    assert len(together[1].sharding.device_set) == 4
    for ours, theirs in zip(together, alone, strict=True):
        assert_close(ours, theirs, 1e-5)


@on_jax
def test_devices_hold_parts_of_the_weights_and_of_what_the_optimizer_keeps_of_them():
    distribution = keras.distribution.ModelParallel(layout_map=models.layout_map(mesh()), batch_dim_name="batch")
    with distribution.scope():
        model = vit(feed_forward="qd_moa", activation=PolyNorm(), num_heads=2, mlp_dim=32)
        optimizer = keras.optimizers.AdamW()
        optimizer.build(model.trainable_variables)
    kernel = model.get_layer("block_1_feed_forward").up_proj.kernel
    slots = [variable for variable in optimizer.variables if "block_1_feed_forward_up_proj_kernel" in variable.path]
    assert len(slots) == 2
    for variable in (kernel, *slots):
        assert {part.data.shape for part in variable.value.addressable_shards} == {(24, 16)}
    assert model.get_layer("final_norm").gamma.value.sharding.is_fully_replicated
