"""Fixed position tables."""

import numpy as np


def sincos_position_table(grid, width, class_token=False, temperature=10000.0, extent=None):
    """Two-dimensional sine-cosine table for the tokens of a grid of patches.

    Formula, for the token at row i and column j, with the frequencies `w_k = temperature^(-4 k / width)`,
    `k = 0 ... width / 4 - 1`:

    ```
    [sin(j w), cos(j w), sin(i w), cos(i w)]
    ```

    The first half of the width tells the column, the second half the row. With an `extent` the grid is laid over the
    area of a grid of that size: i becomes `(i + 1/2) * extent rows / rows - 1/2`, and j likewise. So a model trained on
    the grid `extent` sees the positions it knows in images of another size.

    Args:
        grid: pair of integers (rows, columns).
        width: integer, a multiple of 4.
        class_token: bool. Whether a row of zeros for the class token comes first. Defaults to `False`.
        temperature: float. Defaults to `10000.0`.
        extent: pair of integers (rows, columns), or `None` for `grid` itself. Defaults to `None`.

    Returns:
        NumPy float32 array (tokens, width), tokens row by row, behind the class token's row if there is one.

    Raises:
        ValueError: `width` is not a positive multiple of 4, or `grid` or `extent` not a pair of positive integers.

    Example:

    >>> from keras_polycom import ops
    >>> table = ops.sincos_position_table((3, 3), 8)
    >>> [round(float(v), 4) for v in table[1]]
    [0.8415, 0.01, 0.5403, 0.9999, 0.0, 0.0, 1.0, 1.0]

    Reference: Vaswani et al., arXiv 1706.03762, section 3.5, per axis as in He et al., Masked Autoencoders Are Scalable
    Vision Learners, arXiv 2111.06377, appendix A.1.
    """
    grid = _checked_grid("grid", grid)
    extent = grid if extent is None else _checked_grid("extent", extent)
    if not isinstance(width, int) or width < 4 or width % 4:
        raise ValueError(f"`width` must be a positive multiple of 4. Received: width={width!r}")
    frequencies = temperature ** -(np.arange(width // 4) / (width / 4))
    places = [(np.arange(n) + 0.5) * (span / n) - 0.5 for n, span in zip(grid, extent, strict=True)]
    rows, columns = np.meshgrid(*places, indexing="ij")
    angles = [np.outer(axis.reshape(-1), frequencies) for axis in (columns, rows)]
    table = np.concatenate([wave(angle) for angle in angles for wave in (np.sin, np.cos)], axis=1)
    if class_token:
        table = np.concatenate([np.zeros((1, width)), table])
    return table.astype("float32")


def _checked_grid(name, grid):
    grid = tuple(grid)
    if len(grid) != 2 or any(not isinstance(n, int) or n < 1 for n in grid):
        raise ValueError(f"`{name}` must be two integers (rows, columns) of at least 1. Received: {name}={grid!r}")
    return grid
