import numpy as np
import pytest

from keras_polycom import ops


def test_columns_fill_the_first_half_and_rows_the_second():
    table = ops.sincos_position_table((3, 3), 8)
    np.testing.assert_allclose(table[1], [0.8415, 0.01, 0.5403, 0.99995, 0, 0, 1, 1], atol=5e-5)
    np.testing.assert_allclose(table[3], [0, 0, 1, 1, 0.8415, 0.01, 0.5403, 0.99995], atol=5e-5)


def test_every_token_of_a_grid_that_is_not_square():
    table = ops.sincos_position_table((2, 3), 8)
    assert table.shape == (6, 8)
    for row in range(2):
        for column in range(3):
            angles = [[column, column / 100], [row, row / 100]]
            expected = np.concatenate([np.concatenate([np.sin(a), np.cos(a)]) for a in angles])
            np.testing.assert_allclose(table[3 * row + column], expected, atol=1e-6)


def test_the_class_token_gets_zeros():
    table = ops.sincos_position_table((2, 3), 8, class_token=True)
    assert not table[0].any()
    np.testing.assert_array_equal(table[1:], ops.sincos_position_table((2, 3), 8))


@pytest.mark.parametrize(
    "grid, width, message",
    [((2, 2), 6, "width=6"), ((2, 2), 0, "width=0"), ((2,), 8, r"grid=\(2,\)"), ((0, 2), 8, r"grid=\(0, 2\)")],
    ids=["width-6", "width-0", "one-axis", "no-rows"],
)
def test_sizes_are_checked(grid, width, message):
    with pytest.raises(ValueError, match=message):
        ops.sincos_position_table(grid, width)
