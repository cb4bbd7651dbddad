"""Learned position tables for grids of another size."""

import math

import numpy as np

from keras_polycom.convert.transforms import Transform


def resize_position_table(table, old_grid, new_grid, prefix=1):
    """Resizes the grid part of a learned position table by bicubic interpolation.

    Formula, per axis of the grid, for new position i of n out of m old ones, with s = m / n and Keys' cubic kernel k
    (a = -1/2), widened to `max(s, 1)` where the grid shrinks:

    ```
    y_i = sum_j k((j + 1/2 - (i + 1/2) s) / max(s, 1)) x_j / sum_j k(...)
    ```

    That is timm's way, `torch.nn.functional.interpolate(mode="bicubic", antialias=True)`, and that of
    `keras.ops.image.resize(interpolation="bicubic", antialias=True)`, in float64 and the same on every backend.

    Args:
        table: array (1, prefix + rows * columns, width), patches row by row.
        old_grid: pair of integers (rows, columns).
        new_grid: pair of integers (rows, columns).
        prefix: integer. Number of rows in front, of class or register tokens, that are copied as they are. Defaults to
            `1`.

    Returns:
        NumPy array (1, prefix + new rows * new columns, width) of the table's dtype.

    Raises:
        ValueError: the table does not have that many rows.

    Example:

    >>> import numpy as np
    >>> from keras_polycom import convert
    >>> table = np.array([7.0, 0.0, 1.0, 2.0, 3.0]).reshape(1, 5, 1)
    >>> convert.resize_position_table(table, (2, 2), (1, 2))[0, :, 0].round(4).tolist()
    [7.0, 1.0, 2.0]

    Source: timm, `resample_abs_pos_embed`; Keys, Cubic convolution interpolation, 1981.
    """
    table = np.asarray(table)
    tokens = prefix + math.prod(old_grid)
    if table.ndim != 3 or table.shape[:2] != (1, tokens):
        raise ValueError(
            f"Expected a table of shape (1, {tokens}, width) for the grid {tuple(old_grid)} behind {prefix} other "
            f"rows. Received: {table.shape}"
        )
    front, patches = table[:, :prefix], table[0, prefix:].astype(np.float64)
    rows, columns = (_interpolation(old, new) for old, new in zip(old_grid, new_grid, strict=True))
    patches = np.einsum("io,jp,opw->ijw", rows, columns, patches.reshape(*old_grid, -1))
    patches = patches.reshape(1, math.prod(new_grid), -1).astype(table.dtype)
    return np.concatenate([front, patches], axis=1)


def _interpolation(old, new):
    """The matrix (new, old) of one axis."""
    scale = old / new
    places = (np.arange(new) + 0.5) * scale
    distance = np.abs(np.arange(old) + 0.5 - places[:, None]) / max(scale, 1.0)
    near = 1.5 * distance**3 - 2.5 * distance**2 + 1
    far = -0.5 * distance**3 + 2.5 * distance**2 - 4 * distance + 2
    weights = np.where(distance < 1, near, np.where(distance < 2, far, 0.0))
    return weights / weights.sum(axis=1, keepdims=True)


def square_grid(patches):
    """The grid (side, side) of that many patches, or `None` if there is none."""
    side = math.isqrt(max(patches, 0))
    return (side, side) if patches > 0 and side * side == patches else None


class LearnedPositions(Transform):
    """Transform of a position table, resized where the model has another grid.

    Args:
        grid: pair of integers, the model's.
        prefix: integer. Rows in front of the patches, in both.
        old_grid: pair of integers, that of the state dict; `None` to take it for square, or for the model's if that has
            as many patches.
    """

    def __init__(self, grid, prefix, old_grid=None):
        self.grid = tuple(grid)
        self.prefix = prefix
        self.old_grid = None if old_grid is None else tuple(old_grid)

    def problem(self, tensor, shape):
        if tensor.ndim != 3 or tensor.shape[0] != 1 or tensor.shape[2] != shape[2]:
            return f"has the shape {tensor.shape} where (1, tokens, {shape[2]}) is expected"
        patches = tensor.shape[1] - self.prefix
        if self.old_grid is not None:
            if math.prod(self.old_grid) != patches:
                return f"has {patches} rows for patches where grid={self.old_grid} has {math.prod(self.old_grid)}"
        elif self._grid_of(tensor) is None:
            rows = f"has {tensor.shape[1]} rows: less {self.prefix} for the class token, that is no square grid"
            if self.prefix and square_grid(patches + 1):
                return f"{rows}, and a table without a row for the class token is not supported"
            return f"{rows}. Give grid=(rows, columns)"
        elif patches == math.prod(self.grid) and square_grid(patches) not in (None, self.grid):
            return (
                f"has rows for {patches} patches, which may be a grid of {square_grid(patches)} or the model's "
                f"{self.grid}. Give grid=(rows, columns)"
            )
        return None

    def convert(self, tensor, shape):
        old = self._grid_of(tensor)
        return tensor if old == self.grid else resize_position_table(tensor, old, self.grid, self.prefix)

    def note(self, tensor, shape):
        old = self._grid_of(tensor)
        if old == self.grid:
            return None
        old, new = (" x ".join(map(str, grid)) for grid in (old, self.grid))
        return f"The position table was resized from {old} to {new} patches (bicubic)."

    def _grid_of(self, tensor):
        patches = tensor.shape[1] - self.prefix
        if self.old_grid is not None:
            return self.old_grid
        return self.grid if patches == math.prod(self.grid) else square_grid(patches)


class FixedPositions(Transform):
    """Transform of a table of sines and cosines, which must be that of the model.

    Args:
        table: array (tokens, width), the model's, with a row for the class token.
        prefix: integer. Rows of the state dict's table that the model does without; they must be zero.
    """

    def __init__(self, table, prefix=0):
        self.table = table
        self.prefix = prefix

    def problem(self, tensor, shape):
        if tensor.shape != (1, *self.table.shape):
            return (
                f"has the shape {tensor.shape} where the model's images have {(1, *self.table.shape)}. A masked "
                "autoencoder's positions are not resized: use make_mae, and `to_classifier(image_shape=...)` for "
                "images of another size"
            )
        if np.abs(tensor[0] - self.table).max() > 1e-4:
            return (
                "is not the table of sines and cosines of the published model, and MAE has no learned positions. The "
                "encoder can be loaded into a ViT (load_vit), which has"
            )
        return None

    def convert(self, tensor, shape):
        return tensor[:, self.prefix :]
