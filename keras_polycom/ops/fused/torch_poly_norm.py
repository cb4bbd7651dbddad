"""PolyNorm along the middle of (rows, length) or (rows, length, after): the mathematics, differentiable.

Coefficients and bias come as columns that broadcast: a list of (rows or 1, 1[, 1]), and one of them or `None`. With
y = x s, s = 1 / max(1, max|x|) per row and r_i = 1 / sqrt(mean(y^2i) + epsilon s^2i), the value is sum_i a_i r_i y^i.
It does not depend on s, which is a constant in the derivative of every order.
"""

import torch

from keras_polycom.ops.polynomial import horner, power_sum


def scale_of(x):
    """The reciprocal of max(1, max|x|), one per row; short of the last numbers, whose reciprocals are denormal."""
    largest = torch.linalg.vector_norm(x.detach(), float("inf"), dim=1, keepdim=True)
    return 1 / largest.clamp(1, 1 / torch.finfo(x.dtype).tiny)


def roots_of(y, scale, order, epsilon):
    """The list of `r_i`; `scale` is `None` for 1."""
    square = y * y
    shrink = 1 if scale is None else scale * scale
    power, roots = square, []
    for i in range(order):
        power = power * square if i else power
        epsilon = epsilon * shrink
        roots.append(torch.rsqrt(torch.mean(power, dim=1, keepdim=True) + epsilon))
    return roots


def combine(y, coefficients, roots, bias):
    """The value, from `y` and its statistics."""
    return horner(y, [a * r for a, r in zip(coefficients, roots, strict=True)], bias)


def value(x, coefficients, bias, epsilon):
    """`bias + sum_i a_i norm(x^i)`, at every magnitude, in the dtype of the coefficients."""
    y, scale = _scaled(x, coefficients[0].dtype)
    return combine(y, coefficients, roots_of(y, scale, len(coefficients), epsilon), bias)


def pull_back(y, scale, coefficients, roots, upstream):
    """Gradients from statistics: of x, and one per row of every coefficient and of the bias.

    With p_i = sum(g y^i) over a row of n numbers:

    d a_i = r_i p_i,    d y = g sum_i i a_i r_i y^(i-1) - sum_i (i a_i / n) r_i^3 p_i y^(2i-1),    d x = s d y
    """
    power, projections = upstream, []
    for _ in coefficients:
        power = power * y
        projections.append(torch.sum(power, dim=1, keepdim=True))
    grad_coefficients = [r * p for r, p in zip(roots, projections, strict=True)]
    slopes, pulls = slopes_and_pulls(coefficients, roots, grad_coefficients, y.shape[1])
    grad_x = upstream * power_sum(y, slopes) + y * power_sum(y * y, pulls)
    grad_bias = torch.sum(upstream, dim=1, keepdim=True)
    return grad_x if scale is None else grad_x * scale, grad_coefficients, grad_bias


def slopes_and_pulls(coefficients, roots, grad_coefficients, length):
    """`i a_i r_i` and `-(i a_i / n) r_i^3 p_i`; multiplied from the left, as r^3 would leave the range of float32."""
    slopes = [i * a * r for i, (a, r) in enumerate(zip(coefficients, roots, strict=True), start=1)]
    pulls = [s / -length * c * r for s, c, r in zip(slopes, grad_coefficients, roots, strict=True)]
    return slopes, pulls


def gradients(x, coefficients, epsilon, upstream):
    """`pull_back` with statistics taken anew from `x`, so that its own derivatives are right."""
    y, scale = _scaled(x, coefficients[0].dtype)
    roots = roots_of(y, scale, len(coefficients), epsilon)
    return pull_back(y, scale, coefficients, roots, upstream.to(y.dtype))


def _scaled(x, dtype):
    x = x.to(dtype)
    scale = scale_of(x)
    return x * scale, scale
