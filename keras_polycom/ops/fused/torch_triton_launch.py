"""What the kernels have in common: masks, sums of powers, and where and how wide they are launched."""

import contextlib

import torch
import triton
import triton.language as tl

_DTYPES = {torch.float16: tl.float32, torch.bfloat16: tl.float32, torch.float32: tl.float32, torch.float64: tl.float64}


def compute_dtype(x):
    """The dtype that is computed in, as Triton names it."""
    return _DTYPES[x.dtype]


def device_of(x):
    """A context in which kernels are launched where `x` is, on a machine with several GPUs too."""
    return torch.cuda.device(x.device) if x.is_cuda else contextlib.nullcontext()


def as_rows(x):
    """`x` (rows, length) itself if its rows are contiguous, else a copy."""
    return x if x.stride(1) == 1 or x.shape[1] == 1 else x.contiguous()


def options(elements, per_thread=16):
    """Of the compiler: threads for so many elements, and sums of products rounded once (Triton 3.10 would not)."""
    warps = min(16, max(1, elements // (32 * per_thread)))
    return {"num_warps": warps, "enable_fp_fusion": True}


def columns_of(length, limit):
    """The power of 2 that is worked on together of rows of this length, `limit` at most."""
    return min(limit, triton.next_power_of_2(length))


@triton.jit
def load(pointer, offset, mask, DTYPE: tl.constexpr):
    """Numbers in the dtype that is computed in; 0 outside `mask`."""
    return tl.load(pointer + offset, mask=mask, other=0.0).to(DTYPE)


@triton.jit
def store(pointer, offset, value, mask):
    tl.store(pointer + offset, value.to(pointer.dtype.element_ty), mask=mask)


@triton.jit
def put(values, slot, i, column):
    """`values` (rows, slots) with `column` (rows,) added in slot `i`."""
    return values + tl.where(slot[None, :] == i, column[:, None], 0.0)


@triton.jit
def pick(values, slot, i):
    """Slot `i` of `values` (rows, slots), as a column (rows, 1)."""
    return tl.sum(tl.where(slot[None, :] == i, values, 0.0), axis=1)[:, None]
