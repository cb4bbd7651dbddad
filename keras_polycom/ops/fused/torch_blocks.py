"""Layer normalization of runs of channels with a hand-written derivative that keeps only the input.

Over (rows, runs, length), with gamma and beta of shape (runs, length). With z the normalized values, R what they were
divided by and g the upstream gradient times gamma, d x = (g - mean(g) - z mean(g z)) / R, without centring no mean(g).
"""

import torch

from keras_polycom.ops.fused.shared import ROWS
from keras_polycom.ops.fused.torch_chunks import row_slices
from keras_polycom.ops.fused.torch_compiled import CompiledHalf, wants_compiling
from keras_polycom.ops.fused.torch_modes import is_transformed


def normalize_runs(x, gamma, beta, epsilon, center):
    """`gamma z + beta`.

    Args:
        x: tensor (rows, runs, length), not empty.
        gamma: tensor (runs, length) of the dtype to compute in, or `None` for 1.
        beta: tensor (runs, length) of the dtype to compute in, or `None` for 0.
        epsilon: float, so large that the squares of tiny numbers do not matter beside it.
        center: bool.
    """
    if torch.compiler.is_compiling() or is_transformed(x, gamma, beta) or not _squares_fit(x):
        return _apply(*_scaled_statistics(x, epsilon, center), x.dtype, gamma, beta)
    return _RunNormalization.apply(x, gamma, beta, epsilon, center)


def _squares_fit(x):
    """Whether squares of `x` can be summed as they are; `False` for NaN."""
    low, high = torch.aminmax(x.detach())  # one pass, ten times faster than a norm
    return max(-float(low), float(high)) < torch.finfo(_compute_dtype(x)).max ** 0.45 if low <= high else False


class _RunNormalization(torch.autograd.Function):
    @staticmethod
    def forward(x, gamma, beta, epsilon, center):
        done = None
        if wants_compiling(x):
            done = _compiled_forward.attempt(x.contiguous(), gamma, beta, epsilon, center)
        return _forward_in_chunks(x, gamma, beta, epsilon, center) if done is None else done

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, gamma, beta, *ctx.settings = inputs
        ctx.save_for_backward(x, gamma, beta)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, upstream):
        x, gamma, beta = ctx.saved_tensors
        if upstream is None:
            return None, None, None, None, None
        if torch.is_grad_enabled():  # a derivative of what follows is wanted
            gradients = _pull_back(*_scaled_statistics(x, *ctx.settings), gamma, upstream, ctx.settings[1])
        else:
            gradients = _backward_half(x, gamma, upstream, *ctx.settings)
        grad_x, grad_gamma, grad_beta = gradients
        grad_x = grad_x.to(x.dtype)
        return grad_x, None if gamma is None else grad_gamma, None if beta is None else grad_beta, None, None


def _compute_dtype(x):
    return torch.promote_types(x.dtype, torch.float32)


def _statistics(x, epsilon, center):
    """The normalized values and `1 / R`. The first number of a run is taken off before the mean of what is left."""
    y = x.to(_compute_dtype(x))
    if center:
        y = y - y[..., :1].detach()
        y = y - y.mean(-1, keepdim=True)
    root = torch.rsqrt((y * y).mean(-1, keepdim=True) + epsilon)
    return y * root, root


def _scaled_statistics(x, epsilon, center):
    """As `_statistics`, for numbers of any size: runs are shifted and scaled first, by constants of the derivative."""
    y = x.to(_compute_dtype(x))
    fixed = y.detach()
    if center:
        high, low = 0.5 * fixed.amax(-1, keepdim=True), 0.5 * fixed.amin(-1, keepdim=True)
        y, largest = y - (high + low), high - low
    else:
        largest = fixed.abs().amax(-1, keepdim=True)
    scale = 1 / largest.clamp(1, 1 / torch.finfo(y.dtype).tiny)
    y = y * scale
    if center:
        y = y - y.mean(-1, keepdim=True)
    root = torch.rsqrt((y * y).mean(-1, keepdim=True) + epsilon * (scale * scale))
    return y * root, root * scale


def _apply(z, _, dtype, gamma, beta):
    z = z if gamma is None else z * gamma
    return (z if beta is None else z + beta).to(dtype)


def _pull_back(z, inverse, gamma, upstream, center):
    """Gradients of x, gamma and beta."""
    g = upstream.to(z.dtype)
    grad_gamma, grad_beta = _column_sum(g * z), _column_sum(g)
    g = g if gamma is None else g * gamma
    grad_x = g - z * (g * z).mean(-1, keepdim=True)
    if center:
        grad_x = grad_x - g.mean(-1, keepdim=True)
    return grad_x * inverse, grad_gamma, grad_beta


def _column_sum(term):
    """The sum over rows, some at a time."""
    blocks = term.shape[0] // ROWS
    together = term[: blocks * ROWS].reshape(blocks, ROWS, *term.shape[1:])
    return together.sum(1).sum(0) + term[blocks * ROWS :].sum(0)


def _forward(x, gamma, beta, epsilon, center):
    return _apply(*_statistics(x, epsilon, center), x.dtype, gamma, beta)


def _backward(x, gamma, upstream, epsilon, center):
    grad_x, *rest = _pull_back(*_statistics(x, epsilon, center), gamma, upstream, center)
    return grad_x.to(x.dtype), *rest


_compiled_forward, _compiled_backward = CompiledHalf(_forward, static=2), CompiledHalf(_backward, static=2)


def _backward_half(x, gamma, upstream, epsilon, center):
    done = None
    if wants_compiling(x):
        done = _compiled_backward.attempt(x.contiguous(), gamma, upstream.contiguous(), epsilon, center)
    return done or _backward_in_chunks(x, gamma, upstream, epsilon, center)


def _forward_in_chunks(x, gamma, beta, epsilon, center):
    out = torch.empty(x.shape, dtype=x.dtype)
    for rows in row_slices(x):
        out[rows] = _forward(x[rows], gamma, beta, epsilon, center)
    return out


def _backward_in_chunks(x, gamma, upstream, epsilon, center):
    grad_x, grad_gamma, grad_beta = torch.empty(x.shape, dtype=x.dtype), 0, 0
    for rows in row_slices(x):
        grad_x[rows], of_gamma, of_beta = _backward(x[rows], gamma, upstream[rows], epsilon, center)
        grad_gamma, grad_beta = grad_gamma + of_gamma, grad_beta + of_beta
    return grad_x, grad_gamma, grad_beta
