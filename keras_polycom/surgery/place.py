"""Where the channels are, at each place of a model."""


class Place:
    """Follows the layers of a model in the order in which they compute, and remembers the last `data_format`."""

    def __init__(self):
        self._channels_first = False
        self._rank = None

    def see(self, operation):
        """Notes a convolution, pooling layer or the like."""
        data_format = getattr(operation, "data_format", None)
        if data_format in ("channels_first", "channels_last"):
            self._channels_first = data_format == "channels_first"
            self._rank = _rank(operation, "input")

    def channel_axis(self, operation):
        """1 if the output of `operation` still has the channels first that the last convolution put there, else -1."""
        rank = _rank(operation, "output")
        same_rank = None in (rank, self._rank) or rank == self._rank
        return 1 if self._channels_first and same_rank else -1


def _rank(operation, side):
    try:
        return len(getattr(operation, side).shape)
    except (AttributeError, ValueError):  # not part of a graph, or of several tensors
        return None
