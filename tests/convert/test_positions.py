"""Position tables for another grid."""

import keras
import numpy as np
import pytest
from reference_values import assert_close

from keras_polycom import convert

GRIDS = [((4, 4), (6, 6)), ((4, 4), (2, 3)), ((3, 5), (5, 2)), ((14, 14), (10, 10)), ((2, 2), (1, 1))]


def table(grid, prefix=1, width=6, seed=0):
    rows = prefix + grid[0] * grid[1]
    return np.random.default_rng(seed).standard_normal((1, rows, width)).astype("float32")


@pytest.mark.parametrize(("old", "new"), GRIDS, ids=str)
def test_equals_bicubic_resizing_with_antialiasing(old, new):
    """The grid part is what the backend's own image resizing makes of it, and the prefix is copied bit for bit."""
    given = table(old, prefix=2)
    resized = convert.resize_position_table(given, old, new, prefix=2)
    assert resized.shape == (1, 2 + new[0] * new[1], 6) and resized.dtype == np.float32
    np.testing.assert_array_equal(resized[:, :2], given[:, :2])
    images = keras.ops.convert_to_tensor(given[:, 2:].reshape(1, *old, 6))
    expected = keras.ops.image.resize(images, new, interpolation="bicubic", antialias=True, data_format="channels_last")
    assert_close(resized[:, 2:].reshape(1, *new, 6), expected, 1e-5, "grid")


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="compares with a function of torch")
@pytest.mark.parametrize(("old", "new"), GRIDS, ids=str)
def test_equals_timm(old, new):
    import torch

    given = table(old, prefix=0)
    images = torch.tensor(given.reshape(1, *old, 6)).permute(0, 3, 1, 2)
    expected = torch.nn.functional.interpolate(images, new, mode="bicubic", antialias=True, align_corners=False)
    resized = convert.resize_position_table(given, old, new, prefix=0)
    assert_close(resized.reshape(1, *new, 6), expected.permute(0, 2, 3, 1), 1e-5)


def test_the_same_grid_is_the_same_table():
    given = table((3, 5))
    np.testing.assert_array_equal(convert.resize_position_table(given, (3, 5), (3, 5)), given)


def test_a_constant_table_stays_constant():
    given = np.ones((1, 17, 3), "float32")
    assert_close(convert.resize_position_table(given, (4, 4), (7, 3)), np.ones((1, 22, 3)), 1e-6)


@pytest.mark.parametrize("shape", [(1, 16, 4), (1, 18, 4), (2, 17, 4), (17, 4)], ids=str)
def test_refused_tables(shape):
    with pytest.raises(
        ValueError, match=r"shape \(1, 17, width\) for the grid \(4, 4\) behind 1 other rows. Received: \("
    ):
        convert.resize_position_table(np.zeros(shape), (4, 4), (6, 6))
