"""Triton kernels of PolyReLU: `bias + sum_i a_i relu(x)^i`, number by number in the order of memory."""

import torch
import triton
import triton.language as tl

from keras_polycom.ops.fused.torch_triton_launch import compute_dtype, device_of, load, options, store

_BLOCK = 2048


@triton.jit
def _horner(x, coefficients_ptr, ORDER: tl.constexpr, SLOPE: tl.constexpr):
    """`a_1 + x (a_2 + ...)`; with SLOPE the derivative of x times that."""
    total = tl.zeros_like(x)
    for i in tl.static_range(ORDER):
        coefficient = tl.load(coefficients_ptr + (ORDER - 1 - i))
        if SLOPE:
            coefficient = coefficient * (ORDER - i)
        total = total * x + coefficient
    return total


@triton.jit
def _forward_kernel(
    x_ptr, coefficients_ptr, bias_ptr, out_ptr, size,
    ORDER: tl.constexpr, BIASED: tl.constexpr, BLOCK: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    offset = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offset < size
    x = load(x_ptr, offset, mask, DTYPE)
    rectified = tl.where(x <= 0, 0.0, x)  # not the maximum, which drops NaN
    value = rectified * _horner(rectified, coefficients_ptr, ORDER, False)
    if BIASED:
        value += tl.load(bias_ptr)
    store(out_ptr, offset, value, mask)


@triton.jit
def _backward_kernel(
    upstream_ptr, x_ptr, coefficients_ptr, grad_x_ptr, sums_ptr, size,
    ORDER: tl.constexpr, SLOTS: tl.constexpr, BLOCK: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """The gradient of x, and the sums of `g relu(x)^i` over this block in slot i."""
    program = tl.program_id(0).to(tl.int64)
    offset = program * BLOCK + tl.arange(0, BLOCK)
    mask = offset < size
    x, g = load(x_ptr, offset, mask, DTYPE), load(upstream_ptr, offset, mask, DTYPE)
    rectified = tl.where(x <= 0, 0.0, x)
    slope = _horner(rectified, coefficients_ptr, ORDER, True)
    store(grad_x_ptr, offset, tl.where(x <= 0, 0.0, g * slope), mask)
    slot = tl.arange(0, SLOTS)
    power = g
    sums = tl.where(slot == 0, tl.sum(power, axis=0), 0.0)
    for i in tl.static_range(ORDER):
        power = power * rectified
        sums += tl.where(slot == i + 1, tl.sum(power, axis=0), 0.0)
    tl.store(sums_ptr + program * SLOTS + slot, sums)


def forward(x, coefficients, bias, block):
    out = torch.empty_like(x)
    x = _like(x, out)
    block = block or _BLOCK
    with device_of(x):
        _forward_kernel[(triton.cdiv(x.numel(), block),)](
            x, coefficients, bias, out, x.numel(),
            ORDER=coefficients.numel(), BIASED=bias is not None, BLOCK=block, DTYPE=compute_dtype(x),
            **options(block),
        )  # fmt: skip
    return out


def backward(upstream, x, coefficients, bias, block):
    grad_x, order, block = torch.empty_like(x), coefficients.numel(), block or _BLOCK
    x, upstream = _like(x, grad_x), _like(upstream, grad_x)
    programs, slots = triton.cdiv(x.numel(), block), triton.next_power_of_2(order + 1)
    sums = torch.empty((programs, slots), dtype=coefficients.dtype, device=x.device)
    with device_of(x):
        _backward_kernel[(programs,)](
            upstream, x, coefficients, grad_x, sums, x.numel(),
            ORDER=order, SLOTS=slots, BLOCK=block, DTYPE=compute_dtype(x), **options(block),
        )  # fmt: skip
    sums = sums.sum(0)
    gradients = [grad_x, sums[1 : order + 1].clone()]
    return gradients if bias is None else [*gradients, sums[:1].clone()]


def _like(x, pattern):
    """`x` laid out in memory as `pattern` is, without gaps: one offset then means one element in both."""
    if x.stride() == pattern.stride():
        return x
    return torch.empty_like(pattern, dtype=x.dtype).copy_(x)
