"""Triton kernels of PolyNorm over rows: plain, with coefficients per group of rows, and times a gate.

With y = x s, s = 1 / max(1, max|x|) per row, r_i = 1 / sqrt(mean(y^2i) + epsilon s^2i) and p_i = sum(g y^i):

value = bias + sum_i a_i r_i y^i,    d a_i = r_i p_i,
d x = s (g sum_i i a_i r_i y^(i-1) - sum_i (i a_i / n) r_i^3 p_i y^(2i-1))

The value does not depend on s, which is a constant in the derivative. A program works on a few short rows at once or on
one long row, which is kept in registers (WHOLE) or, beyond a length, read again for every step. Numbers per row and
power are held in `slots`: slot i - 1 belongs to the power i.
"""

import torch
import triton
import triton.language as tl

from keras_polycom.ops.fused.torch_triton_launch import (
    as_rows,
    columns_of,
    compute_dtype,
    device_of,
    load,
    options,
    pick,
    put,
    store,
)

_WHOLE_FORWARD, _WHOLE_BACKWARD = 16384, 8192  # the longest rows that are kept in registers
_COLUMNS = 4096  # of longer rows, at once
_TILE = 2048  # numbers a program works on at least, if there are rows enough
_ROWS_OF_A_GROUP = 256  # summed at once


@triton.jit
def _scale_of(largest, LIMIT: tl.constexpr):
    """1 / max(1, largest); short of the last numbers, whose reciprocals are denormal."""
    return 1.0 / tl.minimum(tl.maximum(largest, 1.0), LIMIT)


@triton.jit
def _row_sums(first, step, slot, SLOTS: tl.constexpr, ORDER: tl.constexpr):
    """The sums of `first step^i` over each row, i from 1 up."""
    sums = tl.zeros((first.shape[0], SLOTS), first.dtype)
    power = first
    for i in tl.static_range(ORDER):
        power = power * step
        sums = put(sums, slot, i, tl.sum(power, axis=1))
    return sums


@triton.jit
def _roots_of(moments, scale, slot, length, EPSILON: tl.constexpr, ORDER: tl.constexpr):
    """The r_i, from sums of y^2i; 1 in slots that are not used."""
    shrink = scale * scale
    epsilon = tl.where(slot[None, :] < ORDER, tl.zeros_like(moments), 1.0)
    epsilon_i = shrink * EPSILON
    for i in tl.static_range(ORDER):
        epsilon = put(epsilon, slot, i, epsilon_i)
        epsilon_i = epsilon_i * shrink
    return 1.0 / tl.sqrt(moments / length + epsilon)


@triton.jit
def _horner(y, weights, slot, ORDER: tl.constexpr):
    """`w_1 + y (w_2 + ...)`."""
    total = tl.zeros_like(y)
    for i in tl.static_range(ORDER):
        total = total * y + pick(weights, slot, ORDER - 1 - i)
    return total


@triton.jit
def _weights_of_rows(
    coefficients_ptr, bias_ptr, index_ptr, row, rows, slot,
    ORDER: tl.constexpr, BIASED: tl.constexpr, GROUPED: tl.constexpr,
):  # fmt: skip
    """Coefficients (rows, slots) and bias (rows, 1) of the groups that the rows belong to."""
    group = tl.zeros_like(row)
    if GROUPED:
        group = tl.load(index_ptr + row, mask=row < rows, other=0)
    used = (slot < ORDER)[None, :] & (row < rows)[:, None]
    coefficients = tl.load(coefficients_ptr + group[:, None] * ORDER + slot[None, :], mask=used, other=0.0)
    bias = tl.zeros_like(tl.sum(coefficients, axis=1))
    if BIASED:
        bias = tl.load(bias_ptr + group, mask=row < rows, other=0.0)
    return coefficients, bias[:, None]


@triton.jit
def _gradient_weights(coefficients, roots, projections, slot, length):
    """d a_i, and the weights of the two polynomials that d x consists of."""
    grad_coefficients = roots * projections
    slopes = coefficients * roots * (slot[None, :] + 1)
    # Multiplied from the left: r^3 alone would leave the range of float32.
    return grad_coefficients, slopes, -slopes / length * grad_coefficients * roots


@triton.jit
def _forward_kernel(
    x_ptr, gate_ptr, coefficients_ptr, bias_ptr, index_ptr, out_ptr, rows, length, x_stride, gate_stride,
    EPSILON: tl.constexpr, LIMIT: tl.constexpr, ORDER: tl.constexpr, SLOTS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, WHOLE: tl.constexpr, GATED: tl.constexpr,
    BIASED: tl.constexpr, GROUPED: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column, slot = tl.arange(0, COLUMNS)[None, :], tl.arange(0, SLOTS)
    inside = (row < rows)[:, None]
    x_row, gate_row, out_row = (row * x_stride)[:, None], (row * gate_stride)[:, None], (row * length)[:, None]
    coefficients, bias = _weights_of_rows(
        coefficients_ptr, bias_ptr, index_ptr, row, rows, slot, ORDER, BIASED, GROUPED
    )
    if WHOLE:
        mask = inside & (column < length)
        y = load(x_ptr, x_row + column, mask, DTYPE)
        scale = _scale_of(tl.max(tl.abs(y), axis=1), LIMIT)
        y = y * scale[:, None]
        moments = _row_sums(tl.full(y.shape, 1.0, DTYPE), y * y, slot, SLOTS, ORDER)
        weights = coefficients * _roots_of(moments, scale, slot, length, EPSILON, ORDER)
        value = bias + y * _horner(y, weights, slot, ORDER)
        if GATED:
            value = value * load(gate_ptr, gate_row + column, mask, DTYPE)
        store(out_ptr, out_row + column, value, mask)
    else:
        largest = tl.zeros((ROWS,), DTYPE)
        for start in range(0, length, COLUMNS):
            x = load(x_ptr, x_row + start + column, inside & (start + column < length), DTYPE)
            largest = tl.maximum(largest, tl.max(tl.abs(x), axis=1))
        scale = _scale_of(largest, LIMIT)
        moments = tl.zeros((ROWS, SLOTS), DTYPE)
        for start in range(0, length, COLUMNS):
            y = load(x_ptr, x_row + start + column, inside & (start + column < length), DTYPE) * scale[:, None]
            moments += _row_sums(tl.full(y.shape, 1.0, DTYPE), y * y, slot, SLOTS, ORDER)
        weights = coefficients * _roots_of(moments, scale, slot, length, EPSILON, ORDER)
        for start in range(0, length, COLUMNS):
            mask = inside & (start + column < length)
            y = load(x_ptr, x_row + start + column, mask, DTYPE) * scale[:, None]
            value = bias + y * _horner(y, weights, slot, ORDER)
            if GATED:
                value = value * load(gate_ptr, gate_row + start + column, mask, DTYPE)
            store(out_ptr, out_row + start + column, value, mask)


@triton.jit
def _backward_kernel(
    upstream_ptr, x_ptr, gate_ptr, coefficients_ptr, bias_ptr, index_ptr, grad_x_ptr, grad_gate_ptr, sums_ptr,
    rows, length, upstream_stride, x_stride, gate_stride,
    EPSILON: tl.constexpr, LIMIT: tl.constexpr, ORDER: tl.constexpr, SLOTS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, WHOLE: tl.constexpr, GATED: tl.constexpr,
    BIASED: tl.constexpr, GROUPED: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """Gradients of x and the gate, and in `sums` those of the coefficients and, in slot ORDER, of the bias.

    `sums` holds one line per row if rows belong to groups, else one per program.
    """
    program = tl.program_id(0).to(tl.int64)
    row = program * ROWS + tl.arange(0, ROWS)
    column, slot = tl.arange(0, COLUMNS)[None, :], tl.arange(0, SLOTS)
    inside = (row < rows)[:, None]
    upstream_row, x_row = (row * upstream_stride)[:, None], (row * x_stride)[:, None]
    gate_row, out_row = (row * gate_stride)[:, None], (row * length)[:, None]
    coefficients, bias = _weights_of_rows(
        coefficients_ptr, bias_ptr, index_ptr, row, rows, slot, ORDER, BIASED, GROUPED
    )
    if WHOLE:
        mask = inside & (column < length)
        y, g = load(x_ptr, x_row + column, mask, DTYPE), load(upstream_ptr, upstream_row + column, mask, DTYPE)
        scale = _scale_of(tl.max(tl.abs(y), axis=1), LIMIT)
        y = y * scale[:, None]
        moments = _row_sums(tl.full(y.shape, 1.0, DTYPE), y * y, slot, SLOTS, ORDER)
        roots = _roots_of(moments, scale, slot, length, EPSILON, ORDER)
        if GATED:
            value = bias + y * _horner(y, coefficients * roots, slot, ORDER)
            store(grad_gate_ptr, out_row + column, g * value, mask)
            g = g * load(gate_ptr, gate_row + column, mask, DTYPE)
        projections = _row_sums(g, y, slot, SLOTS, ORDER)
        total = tl.sum(g, axis=1)
        sums, slopes, pulls = _gradient_weights(coefficients, roots, projections, slot, length)
        gradient = g * _horner(y, slopes, slot, ORDER) + y * _horner(y * y, pulls, slot, ORDER)
        store(grad_x_ptr, out_row + column, gradient * scale[:, None], mask)
    else:
        largest = tl.zeros((ROWS,), DTYPE)
        for start in range(0, length, COLUMNS):
            x = load(x_ptr, x_row + start + column, inside & (start + column < length), DTYPE)
            largest = tl.maximum(largest, tl.max(tl.abs(x), axis=1))
        scale = _scale_of(largest, LIMIT)
        total = tl.zeros((ROWS,), DTYPE)
        moments = tl.zeros((ROWS, SLOTS), DTYPE)
        projections = tl.zeros((ROWS, SLOTS), DTYPE)
        for start in range(0, length, COLUMNS):
            mask = inside & (start + column < length)
            y = load(x_ptr, x_row + start + column, mask, DTYPE) * scale[:, None]
            g = load(upstream_ptr, upstream_row + start + column, mask, DTYPE)
            if GATED:
                g = g * load(gate_ptr, gate_row + start + column, mask, DTYPE)
            moments += _row_sums(tl.full(y.shape, 1.0, DTYPE), y * y, slot, SLOTS, ORDER)
            projections += _row_sums(g, y, slot, SLOTS, ORDER)
            total += tl.sum(g, axis=1)
        roots = _roots_of(moments, scale, slot, length, EPSILON, ORDER)
        sums, slopes, pulls = _gradient_weights(coefficients, roots, projections, slot, length)
        for start in range(0, length, COLUMNS):
            mask = inside & (start + column < length)
            y = load(x_ptr, x_row + start + column, mask, DTYPE) * scale[:, None]
            g = load(upstream_ptr, upstream_row + start + column, mask, DTYPE)
            if GATED:
                value = bias + y * _horner(y, coefficients * roots, slot, ORDER)
                store(grad_gate_ptr, out_row + start + column, g * value, mask)
                g = g * load(gate_ptr, gate_row + start + column, mask, DTYPE)
            gradient = g * _horner(y, slopes, slot, ORDER) + y * _horner(y * y, pulls, slot, ORDER)
            store(grad_x_ptr, out_row + start + column, gradient * scale[:, None], mask)
    sums = put(sums, slot, ORDER, total)
    if GROUPED:
        tl.store(sums_ptr + row[:, None] * SLOTS + slot[None, :], sums, mask=inside)
    else:
        tl.store(sums_ptr + program * SLOTS + slot, tl.sum(sums, axis=0))


@triton.jit
def _sum_groups_kernel(sums_ptr, row_ptr, start_ptr, out_ptr, SLOTS: tl.constexpr, ROWS: tl.constexpr):
    """Sums lines of `sums`: for group n those that `row` names from place start[n] up to start[n + 1]."""
    group = tl.program_id(0).to(tl.int64)
    slot = tl.arange(0, SLOTS)
    total = tl.zeros((SLOTS,), sums_ptr.dtype.element_ty)
    end = tl.load(start_ptr + group + 1)
    for start in range(tl.load(start_ptr + group), end, ROWS):
        place = start + tl.arange(0, ROWS)
        row = tl.load(row_ptr + place, mask=place < end, other=0)
        lines = tl.load(sums_ptr + row[:, None] * SLOTS + slot[None, :], mask=(place < end)[:, None], other=0.0)
        total += tl.sum(lines, axis=0)
    tl.store(out_ptr + group * SLOTS + slot, total)


def forward(x, gate, coefficients, bias, index, epsilon, block):
    x, gate = as_rows(x), None if gate is None else as_rows(gate)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    tile = _tile(x, block or _WHOLE_FORWARD, block or _COLUMNS)
    with device_of(x):
        _forward_kernel[(triton.cdiv(x.shape[0], tile["ROWS"]),)](
            x, gate, coefficients, bias, index, out, *x.shape, x.stride(0), 0 if gate is None else gate.stride(0),
            **_constants(x, gate, coefficients, bias, index, epsilon), **tile,
        )  # fmt: skip
    return out


def backward(upstream, x, gate, coefficients, bias, index, epsilon, block):
    upstream, x, gate = as_rows(upstream), as_rows(x), None if gate is None else as_rows(gate)
    grad_x = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    grad_gate = None if gate is None else torch.empty(x.shape, dtype=gate.dtype, device=x.device)
    tile = _tile(x, block or _WHOLE_BACKWARD, block or _COLUMNS)
    constants = _constants(x, gate, coefficients, bias, index, epsilon)
    programs = triton.cdiv(x.shape[0], tile["ROWS"])
    lines = programs if index is None else x.shape[0]
    sums = torch.empty((lines, constants["SLOTS"]), dtype=coefficients.dtype, device=x.device)
    with device_of(x):
        _backward_kernel[(programs,)](
            upstream, x, gate, coefficients, bias, index, grad_x, grad_gate, sums,
            *x.shape, upstream.stride(0), x.stride(0), 0 if gate is None else gate.stride(0), **constants, **tile,
        )  # fmt: skip
        sums = sums.sum(0, keepdim=True) if index is None else _sum_groups(sums, index, coefficients.shape[0])
    order = coefficients.shape[1]
    gradients = [grad_x, grad_gate, sums[:, :order].clone(), None if bias is None else sums[:, order].clone()]
    return [gradient for gradient in gradients if gradient is not None]


def _sum_groups(sums, index, groups):
    """Lines of `sums` added up for each group, always in the same order."""
    ordered, row = torch.sort(index, stable=True)
    start = torch.searchsorted(ordered, torch.arange(groups + 1, device=index.device))
    out = torch.empty((groups, sums.shape[1]), dtype=sums.dtype, device=sums.device)
    _sum_groups_kernel[(groups,)](sums, row, start, out, SLOTS=sums.shape[1], ROWS=_ROWS_OF_A_GROUP, **options(2048))
    return out


def _tile(x, whole, columns):
    """How much a program works on: `whole` rows in registers if they are not longer, else `columns` at once."""
    if x.dtype == torch.float64:
        whole, columns = whole // 2, columns // 2
    fits = x.shape[1] <= whole
    columns = columns_of(x.shape[1], whole if fits else columns)
    rows = max(1, _TILE // columns) if fits else 1
    return {"ROWS": rows, "COLUMNS": columns, "WHOLE": fits, **options(rows * columns)}


def _constants(x, gate, coefficients, bias, index, epsilon):
    order = coefficients.shape[1]
    return {
        "EPSILON": epsilon,
        "LIMIT": 1 / torch.finfo(coefficients.dtype).tiny,
        "ORDER": order,
        "SLOTS": triton.next_power_of_2(order + 1),
        "GATED": gate is not None,
        "BIASED": bias is not None,
        "GROUPED": index is not None,
        "DTYPE": compute_dtype(x),
    }
