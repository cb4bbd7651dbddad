"""PolyReLU with a hand-written derivative that keeps only the input.

It works on (rows, length), where rows have no meaning but that sums over each are exact.
"""

import math

import torch

from keras_polycom.ops.fused.torch_chunks import Workspace, horner_into
from keras_polycom.ops.fused.torch_compiled import CompiledHalf, wants_compiling
from keras_polycom.ops.fused.torch_modes import is_transformed
from keras_polycom.ops.polynomial import horner, power_sum

SMALLEST = 2**16  # elements; below, the few plain operations cost less than a function of our own


def poly_relu(x, coefficients, bias):
    """`bias + sum_i a_i relu(x)^i`.

    Args:
        x: tensor, not empty.
        coefficients: tensor (order,), of the dtype to compute in.
        bias: tensor (), or `None` for 0.
    """
    compiling = torch.compiler.is_compiling()
    if is_transformed(x, coefficients, bias) or (not compiling and x.numel() < SMALLEST):
        return value(x, coefficients, bias)
    function = _TracedPolyReLU if compiling else _PolyReLU
    return function.apply(x.reshape(-1, _length(x)), coefficients, bias).reshape(x.shape)


def _length(x):
    """A length of rows that is good to sum over."""
    divisor = 1 if torch.compiler.is_compiling() else math.gcd(x.numel(), 4096)
    return divisor if divisor >= 64 or not x.dim() else x.shape[-1]


class _PolyReLU(torch.autograd.Function):
    @staticmethod
    def forward(x, coefficients, bias):
        done = _compiled_forward.attempt(x.contiguous(), coefficients, bias) if wants_compiling(x) else None
        return _forward_in_chunks(x, coefficients, bias) if done is None else done

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, upstream):
        x, coefficients, bias = ctx.saved_tensors
        if upstream is None:
            return None, None, None
        if torch.is_grad_enabled():  # a derivative of what follows is wanted
            grad_x, *sums = _gradients(x, coefficients, upstream)
        else:
            grad_x, *sums = _backward_half(x, coefficients, upstream, ctx.needs_input_grad[0])
        return _collect(grad_x, sums, bias)


class _TracedPolyReLU(torch.autograd.Function):
    @staticmethod
    def forward(x, coefficients, bias):
        return value(x, coefficients, bias)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, upstream):
        x, coefficients, bias = ctx.saved_tensors
        grad_x, *sums = _gradients(x, coefficients, upstream)
        return _collect(grad_x, sums, bias)


def value(x, coefficients, bias):
    """The formula, in differentiable operations."""
    rectified = torch.relu(x.to(coefficients.dtype))
    return horner(rectified, coefficients.unbind(), bias).to(x.dtype)


def _gradients(x, coefficients, upstream):
    """The gradient of `x`, and the sums of `g relu(x)^i` over each row, i from 0 up."""
    rectified, power = torch.relu(x.to(coefficients.dtype)), upstream.to(coefficients.dtype)
    slope = power_sum(rectified, [i * a for i, a in enumerate(coefficients.unbind(), start=1)])
    grad_x = torch.where(x > 0, power * slope, 0)
    sums = [torch.sum(power, dim=1)]
    for _ in range(len(coefficients)):
        power = power * rectified
        sums.append(torch.sum(power, dim=1))
    return grad_x.to(x.dtype), *sums


def _collect(grad_x, sums, bias):
    grad_bias, *grad_coefficients = [s.sum() for s in sums]
    return grad_x, torch.stack(grad_coefficients), None if bias is None else grad_bias


_compiled_forward, _compiled_backward = CompiledHalf(value), CompiledHalf(_gradients)


def _backward_half(x, coefficients, upstream, needs_x):
    done = None
    if wants_compiling(x):
        done = _compiled_backward.attempt(x.contiguous(), coefficients, upstream.contiguous())
    return done or _backward_in_chunks(x, coefficients, upstream, needs_x)


def _forward_in_chunks(x, coefficients, bias):
    work = Workspace(x, coefficients.dtype)
    out, weights = torch.empty(x.shape, dtype=x.dtype), list(coefficients)
    for rows in work.slices():
        rectified = torch.relu_(work.buffer(0).copy_(x[rows]))
        total, target = horner_into(work.buffer(1), rectified, weights), work.target(out[rows], 1)
        if bias is None:
            torch.mul(total, rectified, out=target)
        else:
            torch.addcmul(bias, total, rectified, out=target)
        work.deliver(target, out[rows])
    return out


def _backward_in_chunks(x, coefficients, upstream, needs_x):
    work = Workspace(x, coefficients.dtype)
    grad_x = torch.empty(x.shape, dtype=x.dtype) if needs_x else None
    sums = torch.empty((len(coefficients) + 1, x.shape[0]), dtype=work.dtype)
    slopes = [i * a for i, a in enumerate(coefficients, start=1)]
    for rows in work.slices():
        rectified, g = torch.relu_(work.buffer(0).copy_(x[rows])), work.raised(upstream[rows], 1)
        power = g
        torch.sum(g, dim=1, out=sums[0, rows])
        for i in range(1, len(sums)):
            power = torch.mul(power, rectified, out=work.buffer(2))
            torch.sum(power, dim=1, out=sums[i, rows])
        if needs_x:
            slope = horner_into(work.buffer(2), rectified, slopes).mul_(g)
            target = torch.mul(slope, rectified.sign_(), out=work.target(grad_x[rows], 2))
            work.deliver(target, grad_x[rows])
    return grad_x, *sums
