"""Faster versions of the ops on JAX, with derivatives of their own.

Reverse mode of every order, forward over reverse (`jax.hessian`), vmap, jit and remat work. Forward mode first
(`jax.jvp` of the op itself) is refused by JAX with a `TypeError`: use `keras_polycom.config.set_fast_roads("off")` for
it.
"""

import jax.numpy as jnp

from keras_polycom.ops.fused import jax_mixtures, jax_polynomial, jax_runs
from keras_polycom.ops.fused.shared import Mixtures, epsilon_refusal, runs_refusal, size_refusal


def poly_relu(x, coefficients, bias=None):
    """See `keras_polycom.ops.poly_relu`."""
    x, coefficients, bias = _raised(x, coefficients, bias, (1,))
    return jax_polynomial.poly_relu(x, coefficients, bias)


def poly_relu_refuses(x, coefficients, bias=None):
    return _refusal(x)


def poly_norm(x, coefficients, bias=None, axis=-1, epsilon=1e-6):
    """See `keras_polycom.ops.poly_norm`."""
    x, coefficients, bias = _raised(x, coefficients, bias, (1,))
    return jax_polynomial.poly_norm(x, coefficients[None], bias, axis % x.ndim, epsilon)


def poly_norm_refuses(x, coefficients, bias=None, axis=-1, epsilon=1e-6):
    return _refusal(x, epsilon)


def grouped_poly_norm(x, coefficients, bias, group_index, axis=-1, epsilon=1e-6):
    """See `keras_polycom.ops.grouped_poly_norm`."""
    x, coefficients, bias = _raised(x, coefficients, bias, coefficients.shape[:1])
    axis %= x.ndim
    index = jnp.clip(jnp.asarray(group_index), 0, coefficients.shape[0] - 1)
    leading = x.shape[:axis]
    index = jnp.broadcast_to(index.reshape(index.shape + (1,) * (len(leading) - index.ndim)), leading).reshape(-1)
    return jax_polynomial.poly_norm(x, coefficients[index], bias[index], axis, epsilon)


def grouped_poly_norm_refuses(x, coefficients, bias, group_index, axis=-1, epsilon=1e-6):
    return _refusal(x, epsilon)


def block_normalization(x, axes, groups, gamma=None, beta=None, axis=-1, center=True, epsilon=1e-5, mask=None):
    """See `keras_polycom.ops.block_normalization`."""
    x = jnp.asarray(x)
    dtype = jnp.promote_types(x.dtype, jnp.float32)
    gamma, beta = (None if weight is None else jnp.asarray(weight).astype(dtype) for weight in (gamma, beta))
    return jax_runs.normalize_runs(x, gamma, beta, x.shape[-1] // groups[0], center, epsilon)


def block_normalization_refuses(x, axes, groups, gamma=None, beta=None, axis=-1, center=True, epsilon=1e-5, mask=None):
    if mask is not None:
        return "there is a mask"
    if not tuple(axes) == (axis,) == (len(x.shape) - 1,):
        return "it is for runs of the last axis, the channels"
    return _refusal(x, epsilon) or runs_refusal(x.shape[-1], groups[0])


def _mix(formula, branches, weights, dictionaries):
    formula = jax_mixtures.with_functions(formula, *dictionaries)
    return jax_mixtures.mix(formula, [jnp.asarray(b) for b in branches], [jnp.asarray(w) for w in weights])


def _raised(x, coefficients, bias, bias_shape):
    """Arrays; the weights in the dtype that is computed in. No bias becomes zeros."""
    x = jnp.asarray(x)
    dtype = jnp.promote_types(x.dtype, jnp.float32)
    bias = jnp.zeros(bias_shape, dtype) if bias is None else jnp.asarray(bias).astype(dtype).reshape(bias_shape)
    return x, jnp.asarray(coefficients).astype(dtype), bias


def _refusal(x, epsilon=1.0):
    x = jnp.asarray(x)
    if reason := epsilon_refusal(epsilon):
        return reason
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return f"its input is of dtype {x.dtype}"
    if not all(isinstance(size, int) for size in x.shape):
        return "sizes of its input are open, as in an export"
    if 0 in x.shape:
        return "its input is empty"
    return size_refusal(x.size)


_mixtures = Mixtures(_mix, _refusal)
mix_activations, mix_activations_refuses = _mixtures.mix_activations, _mixtures.mix_activations_refuses
mix_one_sided, mix_one_sided_refuses = _mixtures.mix_one_sided, _mixtures.mix_one_sided_refuses
mix_bi_sided, mix_bi_sided_refuses = _mixtures.mix_bi_sided, _mixtures.mix_bi_sided_refuses
mix_quadratic, mix_quadratic_refuses = _mixtures.mix_quadratic, _mixtures.mix_quadratic_refuses
