"""PolyReLU and PolyNorm on JAX: what is kept for the derivative is the input and a few numbers per row."""

import functools
import math

import jax
import jax.numpy as jnp
from jax import lax

from keras_polycom.ops.fused.jax_reductions import row_sums
from keras_polycom.ops.polynomial import horner, power_sum


@jax.custom_vjp
def poly_relu(x, coefficients, bias):
    """`bias + sum_i coefficients[i] relu(x)^i`, for coefficients (order,) and bias (1,) of the computation's dtype."""
    return _poly_relu_forward(x, coefficients, bias)[0]


def _poly_relu_forward(x, coefficients, bias):
    rectified = jax.nn.relu(x.astype(coefficients.dtype))
    out = horner(rectified, list(coefficients), bias[0])
    return out.astype(x.dtype), (x, coefficients)


def _poly_relu_backward(saved, upstream):
    x, coefficients = saved
    dtype = coefficients.dtype
    rectified, g = jax.nn.relu(x.astype(dtype)), upstream.astype(dtype)
    terms = [g]
    for _ in range(coefficients.size):
        terms.append(terms[-1] * rectified)
    sums = [jnp.sum(s) for s in row_sums([term.reshape(1, -1, 1) for term in terms])]
    slope = power_sum(rectified, [(i + 1) * a for i, a in enumerate(coefficients)])
    grad_x = jnp.where(x > 0, g * slope, 0)
    return grad_x.astype(x.dtype), jnp.stack(sums[1:]), sums[0].reshape(1)


poly_relu.defvjp(_poly_relu_forward, _poly_relu_backward)


def poly_norm(x, coefficients, bias, axis, epsilon):
    """`bias + sum_i coefficients[i] norm(x^i)` over `axis`.

    `coefficients` is (1, order) or (rows, order), `bias` (1,) or (rows,), where rows are the positions of the axes
    before `axis`.
    """
    before, after = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    rows = x.reshape(before, x.shape[axis], after)
    return _poly_norm(epsilon, rows, coefficients, bias).reshape(x.shape)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _poly_norm(epsilon, x, coefficients, bias):
    return _poly_norm_forward(epsilon, x, coefficients, bias)[0]


@functools.partial(jax.jit, static_argnums=0)
def _poly_norm_forward(epsilon, x, coefficients, bias):
    # The barrier keeps XLA from computing the statistics anew for every element.
    shrink, inverse_roots = lax.optimization_barrier(_statistics(x, coefficients.shape[1], epsilon))
    y = x.astype(coefficients.dtype) * shrink
    weights = [_per_row(coefficients[:, i]) * root for i, root in enumerate(inverse_roots)]
    out = horner(y, weights, _per_row(bias))
    return out.astype(x.dtype), (x, shrink, inverse_roots, coefficients)


@functools.partial(jax.jit, static_argnums=0)
def _poly_norm_backward(epsilon, saved, upstream):
    """With y = t x, r_i the inverse roots, p_i = sum_j g_j y_j^i and n the length of the axis:

    d a_i = r_i p_i,    d y = g sum_i i a_i r_i y^(i-1) - sum_i (i a_i / n) r_i^3 p_i y^(2i-1),    d x = t d y
    """
    x, shrink, inverse_roots, coefficients = saved
    order, dtype = coefficients.shape[1], coefficients.dtype
    y, g = x.astype(dtype) * shrink, upstream.astype(dtype)
    terms = [g]
    for _ in range(order):
        terms.append(terms[-1] * y)
    grad_bias, *projections = row_sums(terms)
    grad_coefficients = [r * p for r, p in zip(inverse_roots, projections, strict=True)]
    weights = [(i + 1) * _per_row(coefficients[:, i]) * r for i, r in enumerate(inverse_roots)]
    # Multiplied from the left: r^3 alone would leave the range of float32.
    pulls = [-w / x.shape[1] * c * r for w, c, r in zip(weights, grad_coefficients, inverse_roots, strict=True)]
    weights, pulls = lax.optimization_barrier((weights, pulls))
    grad_x = (g * power_sum(y, weights) + y * power_sum(y * y, pulls)) * shrink
    grad_coefficients = jnp.stack([_total(c, coefficients.shape[0]) for c in grad_coefficients], axis=1)
    return grad_x.astype(x.dtype), grad_coefficients, _total(grad_bias, coefficients.shape[0])


_poly_norm.defvjp(_poly_norm_forward, _poly_norm_backward)


def _statistics(x, order, epsilon):
    """Returns t and the inverse roots `1 / sqrt(mean(y^2i) + epsilon t^2i)` for `y = t x`, per row.

    t = 1 unless a power leaves the comfortable range, when all rows are taken again with t = 1 / max(1, max|x|). The
    result does not depend on t, which is a constant in the derivative.
    """
    dtype = jnp.promote_types(x.dtype, jnp.float32)
    limits = jnp.finfo(dtype)

    def mean_powers(shrink):
        y = x.astype(dtype) * shrink
        square = y * y
        powers = [square]
        for _ in range(order - 1):
            powers.append(powers[-1] * square)
        return [s / x.shape[1] for s in row_sums(powers)]

    def rescaled(_):
        largest = jnp.max(jnp.abs(x), axis=1, keepdims=True).astype(dtype)
        # At most 1 / tiny: beyond it the reciprocal would be subnormal, and y of up to 4 is small enough.
        shrink = lax.stop_gradient(1 / jnp.clip(largest, 1, 1 / limits.tiny))
        return shrink, mean_powers(shrink)

    means = mean_powers(1)
    in_range = jnp.max(means[-1]) < limits.max**0.5
    shrink, means = lax.cond(in_range, lambda means: (jnp.ones_like(means[0]), means), rescaled, means)
    epsilon_i, inverse_roots = epsilon, []
    for mean in means:
        epsilon_i = epsilon_i * (shrink * shrink)
        inverse_roots.append(1 / jnp.sqrt(mean + epsilon_i))
    return shrink, inverse_roots


def _per_row(values):
    return values[:, None, None]


def _total(per_row, rows):
    """(before, 1, after) summed to (rows,), where rows is `before` or 1."""
    return jnp.sum(per_row, axis=(1, 2)) if rows > 1 else jnp.sum(per_row).reshape(1)
