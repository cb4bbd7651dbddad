import functools

import harness
import keras
import numpy as np
import pytest

from keras_polycom import ops
from keras_polycom.layers import PositionEmbedding, SinCosPositionEmbedding


def test_each_position_gets_its_own_row(rng):
    x = rng.standard_normal((3, 4, 6)).astype("float32")
    layer = PositionEmbedding()
    layer.build(x.shape)
    table = rng.standard_normal((1, 4, 6)).astype("float32")
    layer.table.assign(table)
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(layer(x)), x + table)


@pytest.mark.parametrize("class_token", [False, True])
def test_the_fixed_table_is_added_and_never_trained(class_token):
    layer = SinCosPositionEmbedding(grid=(2, 3), class_token=class_token)
    output = layer(keras.ops.zeros((2, 6 + class_token, 8)))
    expected = ops.sincos_position_table((2, 3), 8, class_token)
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(output)[1], expected)
    layer.trainable = True
    assert not layer.trainable_variables


def test_tokens_that_are_not_the_grid_are_refused():
    with pytest.raises(ValueError, match=r"6 tokens\. Received: an input of 7 tokens"):
        SinCosPositionEmbedding(grid=(2, 3))(keras.ops.zeros((2, 7, 8)))
    with pytest.raises(ValueError, match="known tokens and width"):
        PositionEmbedding().build((2, None, 8))


def test_contract_of_the_learned_table(rng):
    make = functools.partial(
        PositionEmbedding,
        table_initializer="ones",
        table_regularizer=keras.regularizers.L2(0.1),
        table_constraint="max_norm",
    )
    x = rng.standard_normal((4, 5, 3)).astype("float32")
    for check in (
        harness.check_config,
        harness.check_build_without_call,
        harness.check_gradients,
        harness.check_dtypes,
        harness.check_mask,
        harness.check_compiled,
    ):
        check(make, x)
    harness.check_symbolic_call(make, x, dynamic_shape=(5, 3))


def test_contract_of_the_fixed_table(rng):
    make = functools.partial(SinCosPositionEmbedding, grid=(2, 3), class_token=True)
    x = rng.standard_normal((4, 7, 4)).astype("float32")
    for check in (harness.check_config, harness.check_build_without_call, harness.check_dtypes, harness.check_compiled):
        check(make, x)
    harness.check_symbolic_call(make, x, dynamic_shape=(7, 4))
