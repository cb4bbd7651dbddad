"""Triton kernels of the mixtures of activations, with weights per row: of one branch, products of two, of all pairs.

A program works on some rows, a stretch of columns at a time; weights of a row get their gradients from one program.
Compilers see the same function of the same number more than once, and compute it once.
"""

import torch
import triton
import triton.language as tl

from keras_polycom.ops.fused.torch_triton_activations import (
    activate,
    encode,
    mixture,
    mixture_slope,
    put_products,
    slope,
)
from keras_polycom.ops.fused.torch_triton_launch import (
    as_rows,
    columns_of,
    compute_dtype,
    device_of,
    load,
    options,
    store,
)

_COLUMNS, _TILE = 1024, 1024  # at once: of a row, and numbers in all


@triton.jit
def _sum_forward_kernel(
    h_ptr, weights_ptr, out_ptr, rows, length, h_stride, weights_stride,
    CODES: tl.constexpr, COUNT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column, inside, first = tl.arange(0, COLUMNS)[None, :], row < rows, row * weights_stride
    for start in range(0, length, COLUMNS):
        mask = inside[:, None] & (start + column < length)
        h = load(h_ptr, (row * h_stride)[:, None] + start + column, mask, DTYPE)
        value = mixture(h, weights_ptr, first, inside, CODES, 0, COUNT)
        store(out_ptr, (row * length)[:, None] + start + column, value, mask)


@triton.jit
def _sum_backward_kernel(
    upstream_ptr, h_ptr, weights_ptr, grad_h_ptr, sums_ptr,
    rows, length, upstream_stride, h_stride, weights_stride,
    CODES: tl.constexpr, COUNT: tl.constexpr, SLOTS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column, inside, first = tl.arange(0, COLUMNS)[None, :], row < rows, row * weights_stride
    slot = tl.arange(0, SLOTS)
    sums = tl.zeros((ROWS, SLOTS), DTYPE)
    for start in range(0, length, COLUMNS):
        mask = inside[:, None] & (start + column < length)
        h = load(h_ptr, (row * h_stride)[:, None] + start + column, mask, DTYPE)
        g = load(upstream_ptr, (row * upstream_stride)[:, None] + start + column, mask, DTYPE)
        sums = put_products(sums, slot, 0, g, h, CODES, 0, COUNT)
        gradient = g * mixture_slope(h, weights_ptr, first, inside, CODES, 0, COUNT)
        store(grad_h_ptr, (row * length)[:, None] + start + column, gradient, mask)
    _store_sums(sums_ptr, sums, row, inside, slot, COUNT)


@triton.jit
def _product_forward_kernel(
    y_ptr, z_ptr, gate_ptr, up_ptr, out_ptr, rows, length, y_stride, z_stride, gate_stride, up_stride,
    GATE_CODES: tl.constexpr, GATE_COUNT: tl.constexpr, UP_CODES: tl.constexpr, UP_COUNT: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column, inside = tl.arange(0, COLUMNS)[None, :], row < rows
    for start in range(0, length, COLUMNS):
        mask = inside[:, None] & (start + column < length)
        y = load(y_ptr, (row * y_stride)[:, None] + start + column, mask, DTYPE)
        z = load(z_ptr, (row * z_stride)[:, None] + start + column, mask, DTYPE)
        gate = mixture(y, gate_ptr, row * gate_stride, inside, GATE_CODES, 0, GATE_COUNT)
        up = mixture(z, up_ptr, row * up_stride, inside, UP_CODES, 0, UP_COUNT)
        store(out_ptr, (row * length)[:, None] + start + column, gate * up, mask)


@triton.jit
def _product_backward_kernel(
    upstream_ptr, y_ptr, z_ptr, gate_ptr, up_ptr, grad_y_ptr, grad_z_ptr, gate_sums_ptr, up_sums_ptr,
    rows, length, upstream_stride, y_stride, z_stride, gate_stride, up_stride,
    GATE_CODES: tl.constexpr, GATE_COUNT: tl.constexpr, GATE_SLOTS: tl.constexpr,
    UP_CODES: tl.constexpr, UP_COUNT: tl.constexpr, UP_SLOTS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column, inside = tl.arange(0, COLUMNS)[None, :], row < rows
    gate_slot, up_slot = tl.arange(0, GATE_SLOTS), tl.arange(0, UP_SLOTS)
    gate_sums, up_sums = tl.zeros((ROWS, GATE_SLOTS), DTYPE), tl.zeros((ROWS, UP_SLOTS), DTYPE)
    for start in range(0, length, COLUMNS):
        mask = inside[:, None] & (start + column < length)
        y = load(y_ptr, (row * y_stride)[:, None] + start + column, mask, DTYPE)
        z = load(z_ptr, (row * z_stride)[:, None] + start + column, mask, DTYPE)
        g = load(upstream_ptr, (row * upstream_stride)[:, None] + start + column, mask, DTYPE)
        pull = g * mixture(z, up_ptr, row * up_stride, inside, UP_CODES, 0, UP_COUNT)
        gate_sums = put_products(gate_sums, gate_slot, 0, pull, y, GATE_CODES, 0, GATE_COUNT)
        gradient = pull * mixture_slope(y, gate_ptr, row * gate_stride, inside, GATE_CODES, 0, GATE_COUNT)
        store(grad_y_ptr, (row * length)[:, None] + start + column, gradient, mask)
        pull = g * mixture(y, gate_ptr, row * gate_stride, inside, GATE_CODES, 0, GATE_COUNT)
        up_sums = put_products(up_sums, up_slot, 0, pull, z, UP_CODES, 0, UP_COUNT)
        gradient = pull * mixture_slope(z, up_ptr, row * up_stride, inside, UP_CODES, 0, UP_COUNT)
        store(grad_z_ptr, (row * length)[:, None] + start + column, gradient, mask)
    _store_sums(gate_sums_ptr, gate_sums, row, inside, gate_slot, GATE_COUNT)
    _store_sums(up_sums_ptr, up_sums, row, inside, up_slot, UP_COUNT)


@triton.jit
def _pairs_forward_kernel(
    y_ptr, z_ptr, weights_ptr, out_ptr, rows, length, y_stride, z_stride, weights_stride,
    GATE_CODES: tl.constexpr, UP_CODES: tl.constexpr, COUNT: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column, inside, first = tl.arange(0, COLUMNS)[None, :], row < rows, row * weights_stride
    for start in range(0, length, COLUMNS):
        mask = inside[:, None] & (start + column < length)
        y = load(y_ptr, (row * y_stride)[:, None] + start + column, mask, DTYPE)
        z = load(z_ptr, (row * z_stride)[:, None] + start + column, mask, DTYPE)
        value = tl.zeros_like(y)
        for k in tl.static_range(COUNT):
            pairs = first + (k * COUNT - k * (k - 1) // 2)  # those of k begin here
            up = mixture(z, weights_ptr, pairs, inside, UP_CODES, k, COUNT)
            value += activate(y, (GATE_CODES >> (3 * k)) & 7) * up
        store(out_ptr, (row * length)[:, None] + start + column, value, mask)


@triton.jit
def _pairs_backward_kernel(
    upstream_ptr, y_ptr, z_ptr, weights_ptr, grad_y_ptr, grad_z_ptr, sums_ptr,
    rows, length, upstream_stride, y_stride, z_stride, weights_stride,
    GATE_CODES: tl.constexpr, UP_CODES: tl.constexpr, COUNT: tl.constexpr, SLOTS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column, inside, first = tl.arange(0, COLUMNS)[None, :], row < rows, row * weights_stride
    slot = tl.arange(0, SLOTS)
    sums = tl.zeros((ROWS, SLOTS), DTYPE)
    for start in range(0, length, COLUMNS):
        mask = inside[:, None] & (start + column < length)
        y = load(y_ptr, (row * y_stride)[:, None] + start + column, mask, DTYPE)
        z = load(z_ptr, (row * z_stride)[:, None] + start + column, mask, DTYPE)
        g = load(upstream_ptr, (row * upstream_stride)[:, None] + start + column, mask, DTYPE)
        grad_y, grad_z = tl.zeros_like(y), tl.zeros_like(z)
        for k in tl.static_range(COUNT):
            pairs = k * COUNT - k * (k - 1) // 2
            pull = g * activate(y, (GATE_CODES >> (3 * k)) & 7)
            sums = put_products(sums, slot, pairs, pull, z, UP_CODES, k, COUNT)
            grad_z += pull * mixture_slope(z, weights_ptr, first + pairs, inside, UP_CODES, k, COUNT)
            up = mixture(z, weights_ptr, first + pairs, inside, UP_CODES, k, COUNT)
            grad_y += slope(y, (GATE_CODES >> (3 * k)) & 7) * up
        store(grad_y_ptr, (row * length)[:, None] + start + column, g * grad_y, mask)
        store(grad_z_ptr, (row * length)[:, None] + start + column, grad_z, mask)
    _store_sums(sums_ptr, sums, row, inside, slot, COUNT * (COUNT + 1) // 2)


@triton.jit
def _store_sums(pointer, sums, row, inside, slot, COUNT: tl.constexpr):
    mask = inside[:, None] & (slot < COUNT)[None, :]
    tl.store(pointer + row[:, None] * COUNT + slot[None, :], sums, mask=mask)


def sum_forward(h, weights, codes, block):
    h, weights = as_rows(h), as_rows(weights)
    out, tile, grid = _new(h), *_tile(h, block)
    with device_of(h):
        _sum_forward_kernel[grid](
            h, weights, out, *h.shape, h.stride(0), weights.stride(0), CODES=encode(codes), COUNT=len(codes), **tile
        )
    return out


def sum_backward(upstream, h, weights, codes, block):
    upstream, h, weights = as_rows(upstream), as_rows(h), as_rows(weights)
    grad_h, sums, tile, grid = _new(h), _new(weights), *_tile(h, block)
    with device_of(h):
        _sum_backward_kernel[grid](
            upstream, h, weights, grad_h, sums, *h.shape, upstream.stride(0), h.stride(0), weights.stride(0),
            CODES=encode(codes), COUNT=len(codes), SLOTS=triton.next_power_of_2(len(codes)), **tile,
        )  # fmt: skip
    return [grad_h, sums]


def product_forward(y, z, gate_weights, up_weights, gate_codes, up_codes, block):
    inputs = [as_rows(x) for x in (y, z, gate_weights, up_weights)]
    out, tile, grid = _new(y), *_tile(y, block)
    with device_of(y):
        _product_forward_kernel[grid](
            *inputs, out, *y.shape, *(x.stride(0) for x in inputs),
            **_coded("GATE", gate_codes), **_coded("UP", up_codes), **tile,
        )  # fmt: skip
    return out


def product_backward(upstream, y, z, gate_weights, up_weights, gate_codes, up_codes, block):
    inputs = [as_rows(x) for x in (upstream, y, z, gate_weights, up_weights)]
    gradients, tile, grid = [_new(x) for x in inputs[1:]], *_tile(y, block, per_thread=4)
    with device_of(y):
        _product_backward_kernel[grid](
            *inputs, *gradients, *y.shape, *(x.stride(0) for x in inputs),
            **_coded("GATE", gate_codes, slots=True), **_coded("UP", up_codes, slots=True), **tile,
        )  # fmt: skip
    return gradients


def pairs_forward(y, z, weights, gate_codes, up_codes, block):
    inputs = [as_rows(x) for x in (y, z, weights)]
    out, tile, grid = _new(y), *_tile(y, block)
    with device_of(y):
        _pairs_forward_kernel[grid](
            *inputs, out, *y.shape, *(x.stride(0) for x in inputs),
            GATE_CODES=encode(gate_codes), UP_CODES=encode(up_codes), COUNT=len(gate_codes), **tile,
        )  # fmt: skip
    return out


def pairs_backward(upstream, y, z, weights, gate_codes, up_codes, block):
    inputs = [as_rows(x) for x in (upstream, y, z, weights)]
    gradients, tile, grid = [_new(x) for x in inputs[1:]], *_tile(y, block, per_thread=4)
    with device_of(y):
        _pairs_backward_kernel[grid](
            *inputs, *gradients, *y.shape, *(x.stride(0) for x in inputs),
            GATE_CODES=encode(gate_codes), UP_CODES=encode(up_codes), COUNT=len(gate_codes),
            SLOTS=triton.next_power_of_2(weights.shape[1]), **tile,
        )  # fmt: skip
    return gradients


def _new(x):
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def _coded(name, codes, slots=False):
    constants = {f"{name}_CODES": encode(codes), f"{name}_COUNT": len(codes)}
    return {**constants, f"{name}_SLOTS": triton.next_power_of_2(len(codes))} if slots else constants


def _tile(x, block, per_thread=8):
    """Rows and columns that a program works on at once, and the grid."""
    columns = columns_of(x.shape[1], block or _COLUMNS)
    rows = max(1, _TILE // columns)
    constants = {"ROWS": rows, "COLUMNS": columns, "DTYPE": compute_dtype(x), **options(rows * columns, per_thread)}
    return constants, (triton.cdiv(x.shape[0], rows),)
