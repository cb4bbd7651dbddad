"""The papers' activation functions and their derivatives inside Triton kernels, by number."""

import triton
import triton.language as tl

from keras_polycom.ops.fused.torch_triton_launch import put

_BITS = 3  # of a number


def encode(codes):
    """The numbers of a dictionary's functions as one integer, which a kernel takes as a constant."""
    return sum(code << (_BITS * k) for k, code in enumerate(codes))


@triton.jit
def _tanh(x):
    """Odd in x and accurate near 0, where the difference of exponentials would not be."""
    e = tl.exp(-2.0 * tl.abs(x))
    large = (1.0 - e) / (1.0 + e)
    square = x * x
    small = square * (square * (square * (square * (62.0 / 2835.0) - 17.0 / 315.0) + 2.0 / 15.0) - 1.0 / 3.0)
    threshold = 0.2
    if x.dtype == tl.float64:
        threshold = 0.003
    return tl.where(tl.abs(x) < threshold, x + x * small, tl.where(x < 0, -large, large))


@triton.jit
def activate(x, CODE: tl.constexpr):
    """relu, relu2, leaky_relu, gelu, silu, tanh, identity, in the order of `torch_triton.ACTIVATIONS`."""
    value = x
    if CODE == 0:
        value = tl.where(x <= 0, 0.0, x)
    if CODE == 1:
        value = tl.where(x <= 0, 0.0, x * x)
    if CODE == 2:
        value = tl.where(x <= 0, 0.01 * x, x)
    if CODE == 3:
        value = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    if CODE == 4:
        value = x / (1.0 + tl.exp(-x))
    if CODE == 5:
        value = _tanh(x)
    return value


@triton.jit
def slope(x, CODE: tl.constexpr):
    """The derivative of `activate`."""
    value = tl.full(x.shape, 1.0, x.dtype)
    if CODE == 0:
        value = tl.where(x <= 0, 0.0, value)
    if CODE == 1:
        value = tl.where(x <= 0, 0.0, 2.0 * x)
    if CODE == 2:
        value = tl.where(x <= 0, 0.01, value)
    if CODE == 3:
        density = 0.3989422804014327 * tl.exp(-0.5 * x * x)
        value = 0.5 * (1.0 + tl.erf(x * 0.7071067811865476)) + x * density
    if CODE == 4:
        gate = 1.0 / (1.0 + tl.exp(-x))
        value = gate * (1.0 + x * (1.0 - gate))
    if CODE == 5:
        tanh = _tanh(x)
        value = 1.0 - tanh * tanh
    return value


@triton.jit
def mixture(x, weight_ptr, first, inside, CODES: tl.constexpr, START: tl.constexpr, COUNT: tl.constexpr):
    """`sum_k w_k s_k(x)`, k from START up to COUNT; `first` is where the weights of each row begin."""
    total = tl.zeros_like(x)
    for k in tl.static_range(START, COUNT):
        weight = tl.load(weight_ptr + first + (k - START), mask=inside, other=0.0)
        total += weight[:, None] * activate(x, (CODES >> (3 * k)) & 7)
    return total


@triton.jit
def mixture_slope(x, weight_ptr, first, inside, CODES: tl.constexpr, START: tl.constexpr, COUNT: tl.constexpr):
    """The derivative of `mixture`."""
    total = tl.zeros_like(x)
    for k in tl.static_range(START, COUNT):
        weight = tl.load(weight_ptr + first + (k - START), mask=inside, other=0.0)
        total += weight[:, None] * slope(x, (CODES >> (3 * k)) & 7)
    return total


@triton.jit
def put_products(sums, slot, first, g, x, CODES: tl.constexpr, START: tl.constexpr, COUNT: tl.constexpr):
    """`sums` with the row sums of `g s_k(x)` added, from slot `first` on, for k from START up to COUNT."""
    for k in tl.static_range(START, COUNT):
        sums = put(sums, slot, first + (k - START), tl.sum(g * activate(x, (CODES >> (3 * k)) & 7), axis=1))
    return sums
