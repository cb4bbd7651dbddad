"""Triton kernels that normalize runs of consecutive channels: `gamma (x - mean) / sqrt(var + epsilon) + beta`.

A program holds some runs of a stretch of rows, one row after the other, so that gradients of gamma and beta can be
summed where they are. A run is shifted by the middle c of its range and scaled by s = 1 / max(1, max|x - c|) before
squares are taken; neither changes the result, and both are constants in the derivative. With z the normalized x, r the
inverse root and h = g gamma:  d x = s r (h - mean(h) - z mean(h z)), without centring the middle term is missing.
"""

import torch
import triton
import triton.language as tl

from keras_polycom.ops.fused.torch_triton_launch import as_rows, compute_dtype, device_of, load, options, store

LARGEST = 4096  # numbers in a run
_TILE = 1024  # numbers a program holds at once
_PROGRAMS = 2048  # enough to keep a GPU busy


@triton.jit
def _normalized(x, used, EPSILON: tl.constexpr, LIMIT: tl.constexpr, SIZE: tl.constexpr, CENTER: tl.constexpr):
    """The normalized runs, 0 where `used` is false, and `s r`, a column."""
    if CENTER:
        high = 0.5 * tl.max(tl.where(used, x, float("-inf")), axis=1)
        low = 0.5 * tl.min(tl.where(used, x, float("inf")), axis=1)
        x = tl.where(used, x - (high + low)[:, None], 0.0)
    scale = 1.0 / tl.minimum(tl.maximum(tl.max(tl.abs(x), axis=1), 1.0), LIMIT)
    y = x * scale[:, None]
    if CENTER:
        y = tl.where(used, y - (tl.sum(y, axis=1) / SIZE)[:, None], 0.0)
    root = 1.0 / tl.sqrt(tl.sum(y * y, axis=1) / SIZE + scale * scale * EPSILON)
    return y * root[:, None], (scale * root)[:, None]


@triton.jit
def _forward_kernel(
    x_ptr, gamma_ptr, beta_ptr, out_ptr, rows, runs, stretch, blocks, x_stride,
    EPSILON: tl.constexpr, LIMIT: tl.constexpr, SIZE: tl.constexpr, COLUMNS: tl.constexpr, RUNS: tl.constexpr,
    CENTER: tl.constexpr, GAMMA: tl.constexpr, BETA: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    run = (program % blocks) * RUNS + tl.arange(0, RUNS)
    used = (tl.arange(0, COLUMNS) < SIZE)[None, :]
    channel = run[:, None] * SIZE + tl.arange(0, COLUMNS)[None, :]
    mask = used & (run < runs)[:, None]
    if GAMMA:
        gamma = load(gamma_ptr, channel, mask, DTYPE)
    if BETA:
        beta = load(beta_ptr, channel, mask, DTYPE)
    first = (program // blocks) * stretch
    for row in range(first, tl.minimum(first + stretch, rows)):
        x = load(x_ptr, row * x_stride + channel, mask, DTYPE)
        value, _ = _normalized(x, used, EPSILON, LIMIT, SIZE, CENTER)
        if GAMMA:
            value = value * gamma
        if BETA:
            value = value + beta
        store(out_ptr, row * (runs * SIZE) + channel, value, mask)


@triton.jit
def _backward_kernel(
    upstream_ptr, x_ptr, gamma_ptr, grad_x_ptr, grad_gamma_ptr, grad_beta_ptr,
    rows, runs, stretch, blocks, upstream_stride, x_stride,
    EPSILON: tl.constexpr, LIMIT: tl.constexpr, SIZE: tl.constexpr, COLUMNS: tl.constexpr, RUNS: tl.constexpr,
    CENTER: tl.constexpr, GAMMA: tl.constexpr, BETA: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """The gradient of x, and those of gamma and beta summed over the rows of this stretch."""
    program = tl.program_id(0).to(tl.int64)
    run = (program % blocks) * RUNS + tl.arange(0, RUNS)
    used = (tl.arange(0, COLUMNS) < SIZE)[None, :]
    channel = run[:, None] * SIZE + tl.arange(0, COLUMNS)[None, :]
    mask = used & (run < runs)[:, None]
    if GAMMA:
        gamma = load(gamma_ptr, channel, mask, DTYPE)
    grad_gamma, grad_beta = tl.zeros((RUNS, COLUMNS), DTYPE), tl.zeros((RUNS, COLUMNS), DTYPE)
    first = (program // blocks) * stretch
    for row in range(first, tl.minimum(first + stretch, rows)):
        g = load(upstream_ptr, row * upstream_stride + channel, mask, DTYPE)
        x = load(x_ptr, row * x_stride + channel, mask, DTYPE)
        z, slope = _normalized(x, used, EPSILON, LIMIT, SIZE, CENTER)
        grad_gamma += g * z
        grad_beta += g
        if GAMMA:
            g = g * gamma
        gradient = g - z * (tl.sum(g * z, axis=1) / SIZE)[:, None]
        if CENTER:
            gradient = gradient - (tl.sum(g, axis=1) / SIZE)[:, None]
        store(grad_x_ptr, row * (runs * SIZE) + channel, gradient * slope, mask)
    line = (program // blocks) * (runs * SIZE)
    if GAMMA:
        tl.store(grad_gamma_ptr + line + channel, grad_gamma, mask=mask)
    if BETA:
        tl.store(grad_beta_ptr + line + channel, grad_beta, mask=mask)


def forward(x, gamma, beta, size, center, epsilon):
    x = as_rows(x)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    constants, stretch, blocks, programs = _geometry(x, gamma, beta, size, center, epsilon, rows_at_least=4)
    with device_of(x):
        _forward_kernel[(programs,)](
            x, gamma, beta, out, x.shape[0], x.shape[1] // size, stretch, blocks, x.stride(0), **constants
        )
    return out


def backward(upstream, x, gamma, beta, size, center, epsilon):
    upstream, x = as_rows(upstream), as_rows(x)
    grad_x = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    # What is summed per stretch of rows is small beside the rows.
    constants, stretch, blocks, programs = _geometry(x, gamma, beta, size, center, epsilon, rows_at_least=16)
    sums = [
        None if w is None else torch.empty((programs // blocks, x.shape[1]), dtype=w.dtype, device=x.device)
        for w in (gamma, beta)
    ]
    with device_of(x):
        _backward_kernel[(programs,)](
            upstream, x, gamma, grad_x, *sums,
            x.shape[0], x.shape[1] // size, stretch, blocks, upstream.stride(0), x.stride(0), **constants,
        )  # fmt: skip
    return [grad_x, *(s.sum(0) for s in sums if s is not None)]


def _geometry(x, gamma, beta, size, center, epsilon, rows_at_least):
    """Constants of a kernel, rows per program, programs per row, and programs in all."""
    rows, channels = x.shape
    columns = triton.next_power_of_2(size)
    runs = max(1, min(_TILE // columns, triton.next_power_of_2(channels // size)))
    blocks = triton.cdiv(channels // size, runs)
    stretch = max(rows_at_least, triton.cdiv(rows * blocks, _PROGRAMS))
    dtype = torch.promote_types(x.dtype, torch.float32)
    constants = {
        "EPSILON": epsilon,
        "LIMIT": 1 / torch.finfo(dtype).tiny,
        "SIZE": size,
        "COLUMNS": columns,
        "RUNS": runs,
        "CENTER": center,
        "GAMMA": gamma is not None,
        "BETA": beta is not None,
        "DTYPE": compute_dtype(x),
        **options(runs * columns, per_thread=8),
    }
    return constants, stretch, blocks, triton.cdiv(rows, stretch) * blocks
