import functools

import harness
import keras
import numpy as np
import pytest

from keras_polycom.layers import ClassToken


def test_the_token_comes_first_and_the_rest_is_unchanged(rng):
    x = rng.standard_normal((3, 4, 6)).astype("float32")
    layer = ClassToken()
    layer.build(x.shape)
    layer.token.assign(rng.standard_normal((1, 1, 6)))
    output = keras.ops.convert_to_numpy(layer(x))
    np.testing.assert_array_equal(output[:, 1:], x)
    np.testing.assert_array_equal(output[:, 0], np.tile(keras.ops.convert_to_numpy(layer.token)[0], (3, 1)))


def test_the_token_is_never_masked():
    layer, mask = ClassToken(), keras.ops.array([[True, False], [False, False]])
    assert layer.compute_mask(None) is None
    expected = [[True, True, False], [True, False, False]]
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(layer.compute_mask(None, mask)), expected)


def test_the_shape_is_checked():
    with pytest.raises(ValueError, match=r"Received: \(2, 8\)"):
        ClassToken().build((2, 8))


def test_contract(rng):
    make = functools.partial(
        ClassToken, token_initializer="ones", token_regularizer=keras.regularizers.L2(0.1), token_constraint="max_norm"
    )
    x = rng.standard_normal((4, 5, 3)).astype("float32")
    for check in (
        harness.check_config,
        harness.check_build_without_call,
        harness.check_gradients,
        harness.check_saving,
        harness.check_dtypes,
        harness.check_compiled,
    ):
        check(make, x)
