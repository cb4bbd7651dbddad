"""PolyNorm, PolyReLU and parallel layer normalization of the public implementations."""

import keras
import numpy as np
import pytest
from reference_values import FOLDER, as_float64, assert_close
from torch_states import reference

from keras_polycom import (
    PLN,
    PLS,
    ConvParallelLayerNormalization,
    GroupedPolyNorm,
    PolyNorm,
    PolyPReLU,
    PolyReLU,
    PolyReLUNorm,
    convert,
)

MOTIF = {"coefficient_transform": "sigmoid", "output_scale": 0.5}
CASES = {
    "polynorm_cubic_first": ({"source": "polycom", "coefficient_order": "cubic_first"}, {}),
    "polynorm_linear_first": ({"source": "polycom", "coefficient_order": "linear_first"}, {}),
    "polynorm_liger": ({"source": "liger"}, {}),
    "polynorm_motif_dense": ({"source": "motif"}, MOTIF),
    "polynorm_motif_grouped": ({"source": "motif"}, {**MOTIF, "num_groups": 5, "bias_limit": 0.5}),
}


def outputs(layer, case):
    return layer(case["x"], group_index=case["expert"]) if "expert" in case else layer(case["x"])


@pytest.mark.parametrize("name", CASES)
def test_poly_norm_equals_the_real_one(name):
    arguments, settings = CASES[name]
    state, case = reference(name)
    layer = GroupedPolyNorm(**settings) if "num_groups" in settings else PolyNorm(**settings)
    summary = convert.load_polynomial(layer, state, **arguments)
    assert summary.loaded == ("coefficients", "bias")
    assert_close(outputs(layer, case), case["y"], 1e-5, "loaded")
    made = convert.make_poly_norm(FOLDER / f"{name}.safetensors", **arguments)
    assert type(made) is type(layer)
    assert {key: made.get_config()[key] for key in settings} == settings
    assert_close(outputs(made, case), case["y"], 1e-5, "made")


@pytest.mark.parametrize("shape", [(), (1,)], ids=str)
def test_both_shapes_of_a_bias(shape):
    """CASES 046."""
    layer = convert.make_poly_norm({"weight": np.arange(3.0), "bias": np.full(shape, 0.25)}, source="liger")
    np.testing.assert_array_equal(as_float64(layer.bias), [0.25])
    np.testing.assert_array_equal(as_float64(layer.coefficients), [2, 1, 0])


@pytest.mark.parametrize("shape", [(2,), (2, 1)], ids=str)
def test_both_shapes_of_a_grouped_bias(shape):
    state = {"weight": np.arange(6.0).reshape(2, 3), "bias": np.array([0.25, -0.5]).reshape(shape)}
    layer = convert.make_poly_norm(state, source="motif")
    np.testing.assert_array_equal(as_float64(layer.bias), [0.25, -0.5])
    np.testing.assert_array_equal(as_float64(layer.coefficients), [[2, 1, 0], [5, 4, 3]])


def test_fresh_layers_start_as_the_paper_says():
    """CASES 046: implementations disagree on the start; conversion never leaves any of it in place."""
    x = np.array([[-2.0, -1.0, 0.0, 1.0, 2.0]], "float32")
    assert_close(PolyNorm()(x), [[-0.4831, -0.1732, 0.0, 0.4289, 1.5057]], 1e-4)
    for layer in (PolyNorm(), PolyReLU()):
        assert_close(layer.coefficients, np.full(3, 1 / 3), 1e-7)
        np.testing.assert_array_equal(as_float64(layer.bias), [0])


@pytest.mark.parametrize("order", ["cubic_first", "linear_first"])
def test_poly_relu(order, rng):
    x = rng.standard_normal((3, 7)).astype("float32")
    weight = np.array([0.5, -0.25, 0.125])
    layer = convert.make_poly_relu({"weight": weight, "bias": np.array([0.75])}, coefficient_order=order)
    a = weight if order == "linear_first" else weight[::-1]
    rectified = np.maximum(x, 0).astype("float64")
    assert_close(layer(x), sum(a[i] * rectified ** (i + 1) for i in range(3)) + 0.75, 1e-5)
    norm = PolyReLUNorm()
    convert.load_polynomial(norm, {"weight": weight, "bias": np.zeros(1)}, source="polycom", coefficient_order=order)
    np.testing.assert_array_equal(as_float64(norm.coefficients), a)


def test_the_order_is_asked_for_where_it_cannot_be_told():
    state, _ = reference("polynorm_cubic_first")
    with pytest.raises(
        ValueError, match="either order, and nothing in them tells which. Give coefficient_order='cubic"
    ):
        convert.make_poly_norm(state, source="polycom")
    with pytest.raises(ValueError, match="source='liger' are stored cubic_first. Received: coefficient_order='linear"):
        convert.make_poly_norm(state, source="liger", coefficient_order="linear_first")
    with pytest.raises(ValueError, match="must be one of 'cubic_first', 'linear_first'. Received: 'ascending'"):
        convert.make_poly_norm(state, source="liger", coefficient_order="ascending")
    with pytest.raises(ValueError, match="must be one of 'polycom', 'liger', 'motif'. Received: 'torch'"):
        convert.make_poly_norm(state, source="torch")
    with pytest.raises(TypeError, match="coefficient_order"):
        convert.make_poly_relu(state)


def test_everything_that_does_not_fit_is_listed_and_nothing_written():
    layer = PolyNorm(order=2, epsilon=1e-5, coefficient_transform="sigmoid")
    before = layer.get_weights()
    with pytest.raises(ValueError) as error:
        convert.load_polynomial(layer, {"weight": np.ones(3), "gamma": np.ones(4)}, source="liger")
    for line in (
        "(1 missing, 1 unused, 1 misshapen). Nothing was written.",
        "Setting: the layer has coefficient_transform='sigmoid', the weights of source='liger' are for None",
        "Setting: the layer has epsilon=1e-05, the weights of source='liger' are for 1e-06",
        "Missing: bias (for bias (1,))",
        "Unused: gamma (4,)",
        "Misshapen: weight has the shape (3,) where (2,) is expected (for coefficients (2,))",
    ):
        assert line in str(error.value)
    for old, new in zip(before, layer.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_limit_matters_only_where_it_clips():
    """Motif clips the bias of its experts to 0.5, that of its dense layers not at all."""
    layer = PolyNorm(**MOTIF, bias_limit=0.5)
    state = {"weight": np.ones(3), "bias": np.array([0.8])}
    with pytest.raises(
        ValueError, match="bias_limit=0.5, the weights of source='motif' are for None, and the bias goes to 0"
    ):
        convert.load_polynomial(layer, state, source="motif")
    convert.load_polynomial(layer, {**state, "bias": np.array([-0.5])}, source="motif")
    np.testing.assert_array_equal(as_float64(layer.bias), [-0.5])
    plain = PolyNorm(output_scale=1.0)
    convert.load_polynomial(plain, state, source="liger")


def test_refused_layers():
    with pytest.raises(TypeError, match="source='motif' are for a PolyNorm or GroupedPolyNorm. Received: PolyReLU"):
        convert.load_polynomial(PolyReLU(), {"weight": np.ones(3)}, source="motif")
    with pytest.raises(TypeError, match="Received: PolyPReLU"):
        convert.load_polynomial(PolyPReLU(), {"a": np.ones(3)}, source="polycom", coefficient_order="cubic_first")
    with pytest.raises(ValueError, match=r"Expected `weight` of shape .* Received: act.weight \(3,\)"):
        convert.make_poly_norm({"act.weight": np.ones(3)}, source="liger")


def test_one_layer_out_of_a_whole_model():
    state = {
        "layers.3.act_fn.weight": np.arange(3.0),
        "layers.3.act_fn.bias": np.ones(1),
        "layers.3.up.weight": np.ones(2),
    }
    layer = keras.layers.Dense(4, activation=PolyNorm())
    convert.load_polynomial(layer.activation, convert.read_state_dict(state, prefix="layers.3.act_fn."), source="liger")
    np.testing.assert_array_equal(as_float64(layer.activation.coefficients), [2, 1, 0])


# === Parallel layer normalization ===


def parallel_ln(x, weight, bias, size, centering=True):
    """The published module on (..., channels), in float64."""
    runs = x.astype("float64").reshape(*x.shape[:-1], -1, size)
    if centering:
        runs = runs - runs.mean(-1, keepdims=True)
    runs = runs / np.sqrt((runs**2).mean(-1, keepdims=True) + 1e-5)
    return runs.reshape(x.shape) * weight.reshape(-1) + bias.reshape(-1)


@pytest.mark.parametrize("centering", [True, False], ids=["centred", "scaled"])
@pytest.mark.parametrize("shape", [(1, 6, 1, 1), (1, 1, 6), (1, 6)], ids=str)
def test_parallel_layer_norm(shape, centering, rng):
    state = {"weight": rng.standard_normal(shape), "bias": rng.standard_normal(shape)}
    x = rng.standard_normal((2, 5, 4, 6)[-len(shape) :]).astype("float32")
    layer = convert.make_parallel_layer_norm(state, 3, centering=centering, data_format="channels_last")
    assert_close(layer(x), parallel_ln(x, **state, size=3, centering=centering), 1e-5)
    kind = PLS if not centering else ConvParallelLayerNormalization if len(shape) == 4 else PLN
    assert type(layer) is kind
    given = (PLN if centering else PLS)(norm_size=3)
    given.build(x.shape)
    convert.load_parallel_layer_norm(given, state, centering=centering)
    assert_close(given(x), layer(x), 1e-6)


@pytest.mark.parametrize("centering", [True, False], ids=["centred", "scaled"])
def test_parallel_layer_norm_channels_first(centering, rng):
    state = {"weight": rng.standard_normal((1, 6, 1, 1)), "bias": rng.standard_normal((1, 6, 1, 1))}
    x = rng.standard_normal((2, 6, 5, 4)).astype("float32")
    layer = convert.make_parallel_layer_norm(state, 2, centering=centering, data_format="channels_first")
    expected = parallel_ln(x.transpose(0, 2, 3, 1), **state, size=2, centering=centering)
    assert_close(layer(x), expected.transpose(0, 3, 1, 2), 1e-5)


def test_refused_parallel_layer_norms():
    state = {"weight": np.ones((1, 6)), "bias": np.zeros((1, 6))}
    with pytest.raises(ValueError, match="has no weights yet: they depend on the channels"):
        convert.load_parallel_layer_norm(PLN(norm_size=3), state)
    with pytest.raises(TypeError, match="Received: LayerNormalization"):
        convert.load_parallel_layer_norm(keras.layers.LayerNormalization(), state)
    with pytest.raises(ValueError, match=r"Received: weight \(2, 6\)"):
        convert.make_parallel_layer_norm({"weight": np.ones((2, 6))}, 3)
    layer = PLS(norm_size=2, epsilon=1e-3, center=False)
    layer.build((None, 4))
    with pytest.raises(ValueError) as error:
        convert.load_parallel_layer_norm(layer, state)
    for line in (
        "Setting: ParallelLayerScaling is for centering=False. Received: True",
        "Setting: the layer has epsilon=0.001, ParallelLN eps=1e-05",
        "Unused: bias (1, 6)",
        "Misshapen: weight has the shape (1, 6) where (1, 4, 1, 1), (1, 1, 4) or (1, 4) is expected (for gamma (4,))",
    ):
        assert line in str(error.value)
