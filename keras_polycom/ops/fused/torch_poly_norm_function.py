"""PolyNorm with a hand-written derivative, eager and as torch.compile traces it."""

import torch

from keras_polycom.ops.fused import torch_poly_norm as formula
from keras_polycom.ops.fused import torch_poly_norm_chunks as chunks
from keras_polycom.ops.fused.torch_compiled import CompiledHalf, wants_compiling
from keras_polycom.ops.fused.torch_modes import is_transformed


def poly_norm(x, coefficients, bias, epsilon):
    """PolyNorm over the middle of (rows, length) or (rows, length, after).

    Args:
        x: tensor, not empty.
        coefficients: tensor (rows or 1, order), of the dtype to compute in.
        bias: tensor (rows or 1,), or `None` for 0.
        epsilon: float, so large that the powers of tiny numbers do not matter beside it.
    """
    if is_transformed(x, coefficients, bias):
        return _value(x, coefficients, bias, epsilon)
    if torch.compiler.is_compiling():
        return _TracedPolyNorm.apply(x, coefficients, bias, epsilon)
    return _PolyNorm.apply(x, coefficients, bias, epsilon)[0]


class _PolyNorm(torch.autograd.Function):
    """Returns the value, the scale (a scalar if it is 1 everywhere) and the inverse roots, which are kept with `x`."""

    @staticmethod
    def forward(x, coefficients, bias, epsilon):
        columns = _columns(coefficients, x), _column(bias, x)
        out, roots = _forward_half(x, None, *columns, epsilon)
        scale = roots[-1].new_ones(())
        if not _in_range(roots[-1]):
            scale = formula.scale_of(x.to(coefficients.dtype))
            out, roots = chunks.forward(x, scale, *columns, epsilon)
        return out, scale, torch.stack(roots)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, coefficients, bias, ctx.epsilon = inputs
        _, scale, roots = output
        ctx.mark_non_differentiable(scale, roots)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, coefficients, bias, scale, roots)

    @staticmethod
    def backward(ctx, upstream, *_):
        x, coefficients, bias, scale, roots = ctx.saved_tensors
        if upstream is None:
            return None, None, None, None
        columns = _columns(coefficients, x)
        if torch.is_grad_enabled():  # a derivative of what follows is wanted
            gradients = formula.gradients(x, columns, ctx.epsilon, upstream)
        else:
            scale = scale if scale.dim() else None
            gradients = _backward_half(x, scale, columns, list(roots), upstream, ctx.needs_input_grad[0])
        return *_collect(gradients, x, coefficients, bias), None


class _TracedPolyNorm(torch.autograd.Function):
    """Keeps `x` only: whatever compiles this takes the statistics again in the pass that needs them."""

    @staticmethod
    def forward(x, coefficients, bias, epsilon):
        return _value(x, coefficients, bias, epsilon)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, coefficients, bias, ctx.epsilon = inputs
        ctx.save_for_backward(x, coefficients, bias)

    @staticmethod
    def backward(ctx, upstream):
        x, coefficients, bias = ctx.saved_tensors
        gradients = formula.gradients(x, _columns(coefficients, x), ctx.epsilon, upstream)
        return *_collect(gradients, x, coefficients, bias), None


def _value(x, coefficients, bias, epsilon):
    return formula.value(x, _columns(coefficients, x), _column(bias, x), epsilon).to(x.dtype)


def _columns(coefficients, x):
    return [_column(column, x) for column in coefficients.unbind(1)]


def _column(values, x):
    return None if values is None else values.reshape(-1, *(1,) * (x.dim() - 1))


def _in_range(last_roots):
    """Whether no power has left the comfortable range; `False` for NaN."""
    return bool(last_roots.amin() > torch.finfo(last_roots.dtype).max ** -0.25)


def _forward(x, coefficients, bias, epsilon):
    y = x.to(coefficients[0].dtype)
    roots = formula.roots_of(y, None, len(coefficients), epsilon)
    return formula.combine(y, coefficients, roots, bias).to(x.dtype), roots


def _backward(x, coefficients, roots, upstream):
    y = x.to(coefficients[0].dtype)
    grad_x, *rest = formula.pull_back(y, None, coefficients, roots, upstream.to(y.dtype))
    return grad_x.to(x.dtype), *rest


_compiled_forward, _compiled_backward = CompiledHalf(_forward), CompiledHalf(_backward)


def _forward_half(x, scale, coefficients, bias, epsilon):
    done = None
    if wants_compiling(x):
        done = _compiled_forward.attempt(x.contiguous(), coefficients, bias, epsilon)
    return done or chunks.forward(x, scale, coefficients, bias, epsilon)


def _backward_half(x, scale, coefficients, roots, upstream, needs_x):
    done = None
    if scale is None and wants_compiling(x):
        done = _compiled_backward.attempt(x.contiguous(), coefficients, roots, upstream.contiguous())
    return done or chunks.backward(x, scale, coefficients, roots, upstream, needs_x)


def _collect(gradients, x, coefficients, bias):
    """Sums gradients per row to the shapes of the inputs; everything in the dtype of its input."""
    grad_x, grad_coefficients, grad_bias = gradients
    if coefficients.shape[0] == 1:
        grad_coefficients = torch.stack([c.sum() for c in grad_coefficients])[None]
    else:
        grad_coefficients = torch.stack([c.flatten(1).sum(1) for c in grad_coefficients], dim=1)
    if bias is not None:
        grad_bias = grad_bias.sum().reshape(1) if bias.shape[0] == 1 else grad_bias.flatten(1).sum(1)
    return None if grad_x is None else grad_x.to(x.dtype), grad_coefficients, None if bias is None else grad_bias
