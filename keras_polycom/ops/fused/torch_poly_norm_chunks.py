"""The two halves of PolyNorm, chunk by chunk without temporaries; the mathematics is that of `torch_poly_norm`."""

import torch

from keras_polycom.ops.fused.torch_chunks import Workspace, horner_into, rows_of
from keras_polycom.ops.fused.torch_poly_norm import slopes_and_pulls


def forward(x, scale, coefficients, bias, epsilon):
    """Returns the value in the dtype of `x`, and the list of inverse roots."""
    work = Workspace(x, coefficients[0].dtype)
    out = torch.empty(x.shape, dtype=x.dtype)
    roots = [_column(x, work.dtype) for _ in coefficients]
    for rows in work.slices():
        y = _scaled(work, x[rows], scale, rows, 0)
        _fill_roots(work, y, None if scale is None else scale[rows], [r[rows] for r in roots], epsilon)
        weights = [rows_of(a, rows) * r[rows] for a, r in zip(coefficients, roots, strict=True)]
        total = horner_into(work.buffer(1), y, weights)
        target = work.target(out[rows], 1)
        if bias is None:
            torch.mul(total, y, out=target)
        else:
            torch.addcmul(rows_of(bias, rows), total, y, out=target)
        work.deliver(target, out[rows])
    return out, roots


def backward(x, scale, coefficients, roots, upstream, needs_x):
    """Returns the gradient of `x` (`None` if it is not needed), and columns: one per coefficient, one for the bias."""
    work = Workspace(x, coefficients[0].dtype)
    grad_x = torch.empty(x.shape, dtype=x.dtype) if needs_x else None
    grad_coefficients, grad_bias = [_column(x, work.dtype) for _ in coefficients], _column(x, work.dtype)
    for rows in work.slices():
        y, g = _scaled(work, x[rows], scale, rows, 0), work.raised(upstream[rows], 1)
        chunk_roots, chunk_gradients = [r[rows] for r in roots], [c[rows] for c in grad_coefficients]
        torch.sum(g, dim=1, keepdim=True, out=grad_bias[rows])
        power = g
        for root, gradient in zip(chunk_roots, chunk_gradients, strict=True):
            power = torch.mul(power, y, out=work.buffer(2))
            torch.sum(power, dim=1, keepdim=True, out=gradient).mul_(root)
        if needs_x:
            chunk_coefficients = [rows_of(a, rows) for a in coefficients]
            weights = slopes_and_pulls(chunk_coefficients, chunk_roots, chunk_gradients, x.shape[1])
            target = _pull_back(work, y, g, *weights, work.target(grad_x[rows], 2))
            work.deliver(target if scale is None else target.mul_(scale[rows]), grad_x[rows])
    return grad_x, grad_coefficients, grad_bias


def _column(x, dtype):
    return torch.empty((x.shape[0], 1, *x.shape[2:]), dtype=dtype)


def _scaled(work, x, scale, rows, number):
    y = work.raised(x, number)
    return y if scale is None else torch.mul(y, scale[rows], out=work.buffer(number))


def _fill_roots(work, y, scale, roots, epsilon):
    square = power = torch.mul(y, y, out=work.buffer(1))
    shrink = 1 if scale is None else scale * scale
    for i, root in enumerate(roots):
        power = torch.mul(power, square, out=work.buffer(2)) if i else power
        epsilon = epsilon * shrink
        torch.sum(power, dim=1, keepdim=True, out=root).div_(y.shape[1]).add_(epsilon).rsqrt_()


def _pull_back(work, y, g, slopes, pulls, out):
    slope = horner_into(work.buffer(2), y, slopes).mul_(g)
    square = torch.mul(y, y, out=work.buffer(3))
    pull = horner_into(work.buffer(4), square, pulls)
    return torch.addcmul(slope, pull, y, out=out)
