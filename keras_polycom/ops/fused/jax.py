"""Faster versions of the ops on JAX, with derivatives of their own.

Reverse mode of every order, forward over reverse (`jax.hessian`), vmap, jit and remat work. Forward mode first
(`jax.jvp` of the op itself) is refused by JAX with a `TypeError`: use `keras_polycom.config.set_fast_roads("off")` for
it.
"""

import importlib

import jax.numpy as jnp

from keras_polycom import config
from keras_polycom.ops.activation_functions import ACTIVATION_FUNCTIONS
from keras_polycom.ops.fused import jax_mixtures, jax_polynomial, jax_runs

# Below it the powers of tiny rows decide the result, and they leave the range of float32.
_SMALLEST_EPSILON = 1e-20

# Fewer numbers than that are not worth the longer compilation.
_WORTHWHILE = 64 * 1024

_FUNCTIONS_OF_A_NUMBER = frozenset(ACTIVATION_FUNCTIONS.values())


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
    refusal = _refusal(x, epsilon)
    if refusal is None and x.shape[-1] % groups[0]:
        refusal = f"{groups[0]} runs of {x.shape[-1]} channels are of unequal sizes"
    return refusal


def mix_activations(h, weights, activations):
    """See `keras_polycom.ops.mix_activations`."""
    return _mixed("_mix_activations", (h,), (weights,), activations)


def mix_activations_refuses(h, weights, activations):
    return _mixture_refusal((h,), activations)


def mix_one_sided(y, z, weights, activations):
    """See `keras_polycom.ops.mix_one_sided`."""
    return _mixed("_mix_one_sided", (y, z), (weights,), activations)


def mix_one_sided_refuses(y, z, weights, activations):
    return _mixture_refusal((y, z), activations)


def mix_bi_sided(y, z, gate_weights, up_weights, activations, up_activations):
    """See `keras_polycom.ops.mix_bi_sided`."""
    return _mixed("_mix_bi_sided", (y, z), (gate_weights, up_weights), activations, up_activations)


def mix_bi_sided_refuses(y, z, gate_weights, up_weights, activations, up_activations):
    return _mixture_refusal((y, z), activations, up_activations)


def mix_quadratic(y, z, weights, activations, up_activations):
    """See `keras_polycom.ops.mix_quadratic`."""
    return _mixed("_mix_quadratic", (y, z), (weights,), activations, up_activations)


def mix_quadratic_refuses(y, z, weights, activations, up_activations):
    return _mixture_refusal((y, z), activations, up_activations)


def _mixed(name, branches, weights, *dictionaries):
    formulas = importlib.import_module("keras_polycom.ops.mix_activations")  # not at the top: it imports the dispatcher
    formula = jax_mixtures.with_functions(getattr(formulas, name), *dictionaries)
    return jax_mixtures.mix(formula, [jnp.asarray(b) for b in branches], [jnp.asarray(w) for w in weights])


def _mixture_refusal(branches, *dictionaries):
    known = all(function in _FUNCTIONS_OF_A_NUMBER for dictionary in dictionaries for function in dictionary)
    return _refusal(branches[0]) if known else "its dictionary holds more than the functions of the papers"


def _raised(x, coefficients, bias, bias_shape):
    """Arrays; the weights in the dtype that is computed in. No bias becomes zeros."""
    x = jnp.asarray(x)
    dtype = jnp.promote_types(x.dtype, jnp.float32)
    bias = jnp.zeros(bias_shape, dtype) if bias is None else jnp.asarray(bias).astype(dtype).reshape(bias_shape)
    return x, jnp.asarray(coefficients).astype(dtype), bias


def _refusal(x, epsilon=1.0):
    x = jnp.asarray(x)
    if epsilon < _SMALLEST_EPSILON:
        return f"epsilon={epsilon} is below {_SMALLEST_EPSILON}"
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return f"its input is of dtype {x.dtype}"
    if not all(isinstance(size, int) for size in x.shape):
        return "sizes of its input are open, as in an export"
    if 0 in x.shape:
        return "its input is empty"
    return "its input is too small for it to pay" if x.size < _WORTHWHILE and config.fast_roads() == "auto" else None
