"""Normalization of runs of consecutive channels on JAX: what is kept for the derivative is the input alone."""

import functools
import operator

import jax
import jax.numpy as jnp
from jax import lax

from keras_polycom.ops.fused.jax_reductions import column_sums, row_sums

# Up to this size a run is summed element by element, many runs at once; XLA on a CPU would sum one run after another.
_LARGEST_UNROLLED_SIZE = 32


def normalize_runs(x, gamma, beta, size, center, epsilon):
    """`gamma (x - mean) / sqrt(var + epsilon) + beta` in runs of `size` along the last axis, or without the mean.

    `gamma` and `beta` are (channels,) in the dtype that is computed in, or `None`.
    """
    runs = x.reshape(-1, x.shape[-1] // size, size)
    gamma, beta = (None if weight is None else weight.reshape(runs.shape[1:]) for weight in (gamma, beta))
    return _normalize((center, epsilon), runs, gamma, beta).reshape(x.shape)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _normalize(settings, x, gamma, beta):
    return _forward(settings, x, gamma, beta)[0]


@functools.partial(jax.jit, static_argnums=0)
def _forward(settings, x, gamma, beta):
    raised = _raise(x)
    out = _apply(raised, _statistics(raised, *settings))
    out = out if gamma is None else out * gamma
    return (out if beta is None else out + beta).astype(x.dtype), (x, gamma, beta)


@functools.partial(jax.jit, static_argnums=0)
def _backward(settings, saved, upstream):
    """With z the normalized x, h = g gamma, and z = r t (x - mean):  d x = r t (h - mean(h) - z mean(h z))."""
    x, gamma, beta = saved
    raised, g = _raise(x), upstream.astype(_raise(x).dtype)
    statistics = _statistics(raised, *settings)
    h = g if gamma is None else g * gamma
    mean, pull = _mean(_parts(h)), _mean([a * _apply(b, statistics) for a, b in _pairs(h, raised)])
    mean, pull = lax.optimization_barrier((mean, pull))
    z = _apply(raised, statistics)
    shrink, _, _, inverse_root = statistics
    grad_x = ((h - mean if settings[0] else h) - z * pull) * inverse_root * shrink
    grad_gamma, grad_beta = column_sums([g * z, g])
    return grad_x.astype(x.dtype), None if gamma is None else grad_gamma, None if beta is None else grad_beta


_normalize.defvjp(_forward, _backward)


def _raise(x):
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def _statistics(x, center, epsilon):
    """Returns t, c, m and r, one number per run, such that the normalized x is `r (t x - c - m)`.

    c is t times the first element of the run: next to a large mean differences from it are exact. t = 1 unless a
    variance leaves the comfortable range, when it is a power of 2 that brings the run to at most 1. Since the result
    does not depend on them, t and c are constants in the derivative.
    """
    ones = jnp.ones_like(x[:, :, :1])
    reference = lax.stop_gradient(x[:, :, :1]) if center else 0 * ones

    def spread(shrink):
        first = shrink * reference
        parts = [shrink * part - first for part in _parts(x)]
        mean = _mean(parts) if center else 0 * ones
        return first, mean, _mean([jnp.square(part - mean) for part in parts])

    def rescaled(_):
        halves = functools.reduce(jnp.maximum, [jnp.abs(part / 2 - reference / 2) for part in _parts(x)])
        _, exponent = jnp.frexp(jnp.max(lax.stop_gradient(halves), axis=2, keepdims=True))
        limit = jnp.finfo(x.dtype).maxexp - 2  # beyond it the power of 2 would be subnormal
        shrink = jnp.ldexp(ones, -jnp.clip(exponent + 1, 0, limit))
        return shrink, *spread(shrink)

    first, mean, variance = spread(1)
    in_range = jnp.max(variance) < jnp.finfo(x.dtype).max ** 0.5
    shrink, first, mean, variance = lax.cond(
        in_range, lambda *tried: (ones, *tried), lambda *_: rescaled(_), first, mean, variance
    )
    return lax.optimization_barrier((shrink, first, mean, 1 / jnp.sqrt(variance + epsilon * shrink * shrink)))


def _apply(x, statistics):
    shrink, first, mean, inverse_root = statistics
    return (shrink * x - first - mean) * inverse_root


def _parts(x):
    """The elements of each run, one array for each position; for long runs one array of them all."""
    size = x.shape[2]
    return [x[:, :, k : k + 1] for k in range(size)] if size <= _LARGEST_UNROLLED_SIZE else [x]


def _pairs(*arrays):
    return zip(*map(_parts, arrays), strict=True)


def _mean(parts):
    total = functools.reduce(operator.add, parts)
    rows, runs, size = total.shape
    if size == 1:
        return total / len(parts)
    (total,) = row_sums([total.reshape(rows * runs, size, 1)])
    return total.reshape(rows, runs, 1) / size
