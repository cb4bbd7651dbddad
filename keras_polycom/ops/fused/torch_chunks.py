"""Rows a few at a time, so that what is computed in between stays in the cache."""

import torch

ELEMENTS = 2**19  # of a chunk: fewer leave threads without work, more leave the cache


def row_slices(x):
    """Slices of rows that cut `x` into chunks."""
    rows = x.shape[0]
    step = max(1, min(rows, ELEMENTS // max(1, x[0].numel())))
    return [slice(start, min(rows, start + step)) for start in range(0, rows, step)]


class Workspace:
    """Cuts (rows, ...) tensors into chunks of rows, and lends buffers of the size of a chunk, by number.

    A buffer is used again for every chunk, and whenever its number is asked for.
    """

    def __init__(self, x, dtype):
        self.shape, self.dtype = tuple(x.shape[1:]), dtype
        self._slices = row_slices(x)
        self._buffers, self._taken = {}, 0

    def slices(self):
        """The rows of each chunk, as slices."""
        for rows in self._slices:
            self._taken = rows.stop - rows.start
            yield rows

    def buffer(self, number):
        """Buffer `number`, as large as the chunk that is worked on."""
        if number not in self._buffers:
            self._buffers[number] = torch.empty((self._slices[0].stop, *self.shape), dtype=self.dtype)
        return self._buffers[number][: self._taken]

    def raised(self, x, number):
        """The rows of `x` in the dtype of the buffers; they are copied, into buffer `number`, only if need be."""
        return x if x.dtype == self.dtype else self.buffer(number).copy_(x)

    def target(self, out, number):
        """Where a result for `out` is computed: in place, or in buffer `number` if `out` is of another dtype."""
        return out if out.dtype == self.dtype else self.buffer(number)

    @staticmethod
    def deliver(target, out):
        """Copies the result to `out`, unless it was computed in place."""
        if target.dtype != out.dtype:
            out.copy_(target)


def rows_of(column, rows):
    """The part of a column (rows or 1, ...) that broadcasts against a chunk."""
    return column if column.shape[0] == 1 else column[rows]


def horner_into(out, y, weights):
    """`w_1 + y (w_2 + ... )` in `out`, which must not be `y`; weights are columns."""
    if len(weights) == 1:
        return out.copy_(weights[0].expand_as(out))
    torch.mul(y, weights[-1], out=out).add_(weights[-2])  # addcmul is slow on two columns
    for weight in weights[-3::-1]:
        torch.addcmul(weight, out, y, out=out)
    return out
