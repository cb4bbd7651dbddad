import functools

import harness
import keras
import numpy as np
import pytest

from keras_polycom import DropPath

SHAPES = {"rank-2": (512, 8), "rank-3": (512, 5, 8), "rank-4": (512, 3, 3, 4)}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_whole_samples_are_dropped_and_the_others_rescaled(shape):
    output = keras.ops.convert_to_numpy(DropPath(0.5, seed=1)(keras.ops.ones(shape), training=True)).reshape(512, -1)
    assert set(np.unique(output)) == {0.0, 2.0}
    assert (output == output[:, :1]).all()
    assert abs(output.mean() - 1) < 0.2


def test_the_share_dropped_is_the_rate():
    output = keras.ops.convert_to_numpy(DropPath(0.25, seed=1)(keras.ops.ones((2000, 1)), training=True))
    np.testing.assert_allclose(np.unique(output), [0, 4 / 3], rtol=1e-6)
    assert abs((output == 0).mean() - 0.25) < 0.04


def test_inference_is_the_identity(rng):
    x = rng.standard_normal((6, 5, 4)).astype("float32")
    for training in (False, None):
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(DropPath(0.9)(x, training=training)), x)


def test_two_layers_and_two_calls_drop_different_samples():
    x = keras.ops.ones((512, 1))
    first, second = DropPath(0.5), DropPath(0.5)
    draws = [keras.ops.convert_to_numpy(layer(x, training=True)) for layer in (first, second, first)]
    assert all((a != b).any() for a, b in [(draws[0], draws[1]), (draws[0], draws[2])])


def test_a_seed_repeats_the_draw():
    x = keras.ops.ones((64, 1))
    first, second = (keras.ops.convert_to_numpy(DropPath(0.5, seed=3)(x, training=True)) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_rate_zero_draws_nothing(rng):
    layer = DropPath(0.0)
    x = rng.standard_normal((6, 4)).astype("float32")
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(layer(x, training=True)), x)
    assert not layer.variables


@pytest.mark.parametrize("rate", [1, 1.0, -0.1, "0.5", True])
def test_rate_is_checked(rate):
    with pytest.raises(ValueError, match="`rate` must lie in"):
        DropPath(rate)


def test_contract(rng):
    make, x = functools.partial(DropPath, 0.4, seed=2), rng.standard_normal((4, 5, 3)).astype("float32")
    harness.check_config(make, x)
    harness.check_symbolic_call(make, x)
    harness.check_dtypes(make, x)
    harness.check_mask(make, x)
    harness.check_compiled(make, x)
