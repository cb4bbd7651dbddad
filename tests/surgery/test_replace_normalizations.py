"""New models with other normalization layers."""

import keras
import numpy as np
import pytest

from keras_polycom import PLN, models, replace_normalizations, surgery


def values(x):
    return np.array(keras.ops.convert_to_numpy(x))


def shaken(model, rng):
    for variable in model.weights:
        variable.assign(values(variable) + rng.uniform(0.1, 0.3, variable.shape))
    return model


@pytest.mark.parametrize("axis", [-1, 1], ids=["last", "first"])
def test_one_run_of_all_channels_is_layer_normalization(axis, rng):
    model = keras.Sequential([keras.Input((6, 5, 8)), keras.layers.LayerNormalization(axis=axis, epsilon=1e-4)])
    shaken(model, rng)
    channels = model.layers[0].gamma.shape[0]
    new = replace_normalizations(model, {"layer_norm": lambda: PLN(channels, epsilon=1e-4)})
    assert isinstance(new.layers[0], PLN) and new.layers[0].axis == axis
    x = rng.standard_normal((2, 6, 5, 8)).astype("float32")
    last = np.moveaxis(x, axis, -1)  # Keras's own layer fails on PyTorch with another axis than the last
    expected = (last - last.mean(-1, keepdims=True)) / np.sqrt(last.var(-1, keepdims=True) + 1e-4)
    expected = expected * values(model.layers[0].gamma) + values(model.layers[0].beta)
    np.testing.assert_allclose(values(new(x)), np.moveaxis(expected, -1, axis), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("key", ["BatchNormalization", "batch_norm", keras.layers.BatchNormalization])
def test_keys_of_every_form(key, rng):
    model = shaken(keras.Sequential([keras.Input((6, 8)), keras.layers.BatchNormalization(axis=1)]), rng)
    new, report = replace_normalizations(model, {key: "pln[2]"}, return_report=True)
    assert [(site.found, site.detail) for site in report] == [("BatchNormalization", "ParallelLayerNormalization")]
    for name in ("gamma", "beta"):
        np.testing.assert_array_equal(values(getattr(new.layers[0], name)), values(getattr(model.layers[0], name)))
    assert new.layers[0].axis == 1 and len(new.weights) == 2


def test_inside_of_wrappers_and_nested_models(rng):
    block = keras.Sequential([keras.Input((8,)), keras.layers.GroupNormalization(2, name="group_norm")], name="block")
    model = keras.Sequential(
        [
            keras.Input((3, 8)),
            keras.layers.TimeDistributed(keras.layers.LayerNormalization(name="inner"), name="each"),
            keras.layers.Flatten(),
            keras.layers.Dense(8),
            block,
        ]
    )
    shaken(model, rng)
    new, report = replace_normalizations(
        model, {"layer_norm": "pln[4]", "GroupNormalization": "pls[4]"}, return_report=True
    )
    assert [site.path for site in report.replaced] == ["each/inner", "block/group_norm"]
    np.testing.assert_array_equal(values(new.layers[0].layer.gamma), values(model.layers[0].layer.gamma))
    assert new(np.ones((2, 3, 8), "float32")).shape == (2, 8)


def test_a_model_of_this_package_stays_what_it_is():
    model = models.ViT(image_shape=(16, 16, 3), patch_size=8, num_layers=1, hidden_dim=8, num_heads=2, num_classes=3)
    new, report = replace_normalizations(model, {"layer_norm": "pln[4]"}, return_report=True)
    assert isinstance(new, models.ViT) and len(report.replaced) == 3
    assert isinstance(new.get_layer("final_norm"), PLN)


def test_listed():
    model = keras.Sequential([keras.Input((8,)), keras.layers.LayerNormalization(), keras.layers.RMSNormalization()])
    assert surgery.find_normalizations(model).found() == "LayerNormalization (1), RMSNormalization (1)"


def test_refused():
    model = keras.Sequential([keras.Input((3, 8)), keras.layers.LayerNormalization(axis=[1, 2], name="both")])
    with pytest.raises(ValueError, match=r"LayerNormalization at both.*several axes together, \(1, 2\)"):
        replace_normalizations(model, {"layer_norm": "pln[4]"})
    with pytest.raises(ValueError, match="named by BatchNormalization"):
        replace_normalizations(model, {"no_norm": "pln[4]"})
    with pytest.raises(ValueError, match=r"No normalization was replaced.*LayerNormalization \(1\)"):
        replace_normalizations(model, {"batch_norm": "pln[4]"})
    model = keras.Sequential([keras.Input((3, 6)), keras.layers.LayerNormalization()])
    with pytest.raises(ValueError, match="norm_size=4"):
        replace_normalizations(model, {"layer_norm": "pln[4]"})
