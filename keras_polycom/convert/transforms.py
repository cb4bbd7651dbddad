"""What has to be done to a tensor of PyTorch for it to be a weight of ours."""


class Transform:
    """One way to turn a tensor into a weight of ours; `shape` is always that of the weight."""

    def problem(self, tensor, shape):
        """What keeps the tensor from becoming a weight of this shape, or `None`."""
        raise NotImplementedError

    def convert(self, tensor, shape):
        """The array of this shape that the tensor becomes."""
        raise NotImplementedError

    def note(self, tensor, shape):
        """What the user should be told about the conversion, or `None`."""
        return None


class Rearranged(Transform):
    """A tensor that must have one shape, and is transposed, split or reshaped.

    Args:
        expected: function from the shape of our weight to the shape the tensor must have.
        rearrange: function from the tensor and the shape of our weight to the array of that shape.
    """

    def __init__(self, expected, rearrange):
        self.expected = expected
        self.rearrange = rearrange

    def problem(self, tensor, shape):
        expected = tuple(self.expected(shape))
        return None if tensor.shape == expected else f"has the shape {tensor.shape} where {expected} is expected"

    def convert(self, tensor, shape):
        return self.rearrange(tensor, shape)


# Vectors, and tokens (1, 1, width).
SAME = Rearranged(lambda shape: shape, lambda tensor, shape: tensor)

# Linear.weight (out, in) -> Dense.kernel (in, out)
LINEAR = Rearranged(lambda shape: shape[::-1], lambda tensor, shape: tensor.T)

# Conv2d.weight (out, in, height, width) -> Conv2D.kernel (height, width, in, out)
CONVOLUTION = Rearranged(
    lambda shape: (shape[3], shape[2], shape[0], shape[1]), lambda tensor, shape: tensor.transpose(2, 3, 1, 0)
)

# The projection back, Linear.weight (width, width) -> kernel (heads, width / heads, width)
ATTENTION_OUTPUT = Rearranged(
    lambda shape: (shape[2], shape[0] * shape[1]), lambda tensor, shape: tensor.T.reshape(shape)
)


def attention_kernel(part):
    """Third `part` of the fused weight (3 width, width), queries, keys, values -> (width, heads, width / heads)."""
    return Rearranged(
        lambda shape: (3 * shape[1] * shape[2], shape[0]),
        lambda tensor, shape: _third(tensor, part).T.reshape(shape),
    )


def attention_bias(part):
    """Third `part` of the fused bias (3 width,) -> (heads, width / heads)."""
    return Rearranged(
        lambda shape: (3 * shape[0] * shape[1],), lambda tensor, shape: _third(tensor, part).reshape(shape)
    )


def _third(tensor, part):
    size = len(tensor) // 3
    return tensor[part * size : (part + 1) * size]
