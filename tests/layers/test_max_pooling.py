import functools

import harness
import keras
import numpy as np
import pytest
from reference_values import value_and_gradients

from keras_polycom.layers import PaddedMaxPooling2D


def pooled(x, pool_size, strides, padding):
    """The definition, window by window, on (batch, height, width, channels)."""
    border = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    x = np.pad(x, border, constant_values=-np.inf)
    rows, columns = (range(0, n - pool_size + 1, strides) for n in x.shape[1:3])
    windows = [[x[:, i : i + pool_size, j : j + pool_size].max((1, 2)) for j in columns] for i in rows]
    return np.stack([np.stack(row, 1) for row in windows], 1)


SETTINGS = {"3-2-1": (3, 2, 1), "2-2-0": (2, 2, 0), "3-1-1": (3, 1, 1), "5-3-2": (5, 3, 2)}


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("size", [(6, 8), (7, 5)], ids=["even", "odd"])
def test_negative_images_are_pooled_by_the_definition(setting, size, rng):
    x = -1 - rng.random((2, *size, 3)).astype("float32")
    output = PaddedMaxPooling2D(*setting, data_format="channels_last")(x)
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(output), pooled(x, *setting))


def test_channels_first_is_the_transposed(rng):
    x = -rng.random((2, 3, 6, 7)).astype("float32")
    output = keras.ops.convert_to_numpy(PaddedMaxPooling2D(data_format="channels_first")(x))
    np.testing.assert_array_equal(output.transpose(0, 2, 3, 1), pooled(x.transpose(0, 2, 3, 1), 3, 2, 1))


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_gradients_reach_the_largest_only_and_are_finite(dtype, compiled, rng):
    x = -(1.0 + rng.permutation(5 * 6)).reshape(1, 5, 6, 1)
    layer = PaddedMaxPooling2D(data_format="channels_last", dtype=dtype)
    value, gradients = value_and_gradients(layer, {"inputs": x}, np.ones((1, 3, 3, 1)), dtype, compiled)
    expected = np.zeros_like(x)
    for largest in pooled(x, 3, 2, 1).flatten():
        expected[x == largest] += 1
    np.testing.assert_array_equal(value, pooled(x, 3, 2, 1))
    np.testing.assert_array_equal(gradients["inputs"], expected)


def test_none_dimensions_stay():
    output = PaddedMaxPooling2D(data_format="channels_last")(keras.KerasTensor((None, None, 9, 3)))
    assert output.shape == (None, None, 5, 3)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"pool_size": 0}, "`pool_size` must be an integer"),
        ({"strides": 1.5}, "`strides` must be an integer"),
        ({"pool_size": 3, "padding": 2}, "from 0 to pool_size // 2 = 1"),
        ({"data_format": "nhwc"}, "`data_format` must be"),
    ],
    ids=["pool-size", "strides", "padding", "data-format"],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        PaddedMaxPooling2D(**arguments)


def test_contract(rng):
    make = functools.partial(PaddedMaxPooling2D, 2, 1, 0, data_format="channels_last")
    x = rng.standard_normal((4, 5, 6, 3)).astype("float32")
    harness.check_config(make, x)
    harness.check_symbolic_call(make, x)
    harness.check_compiled(make, x)
    harness.check_dtypes(make, x)
