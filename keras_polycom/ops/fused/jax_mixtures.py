"""Mixtures of activations on JAX: what is kept for the derivative is the branches and the weights.

The derivative is that of the formula, taken anew for a few rows at a time: what it writes down in between stays in the
cache of a CPU, where memory for all rows would cost more than the arithmetic.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax import lax

# Numbers per branch that are worked on together.
_CHUNK = 24 * 1024


@functools.lru_cache(maxsize=256)
def with_functions(formula, *functions):
    """`formula` with its last arguments filled in; the same object for the same arguments, as compilers want it."""
    return lambda *operands: formula(*operands, *functions)


def mix(formula, branches, weights):
    """`formula(*branches, *weights)`, for branches (..., hidden) and weights (n,) or (..., n)."""
    leading, hidden = branches[0].shape[:-1], branches[0].shape[-1]
    count = math.prod(leading)
    weights = [jnp.broadcast_to(weight, (*leading, weight.shape[-1])) for weight in weights]
    rows = [operand.reshape(count, operand.shape[-1]) for operand in (*branches, *weights)]
    return _mix(formula, *rows).reshape(*leading, hidden)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _mix(formula, *rows):
    return formula(*rows)


def _forward(formula, *rows):
    return formula(*rows), rows


@functools.partial(jax.jit, static_argnums=0)
def _backward(formula, rows, upstream):
    def pull(rows_and_upstream):
        *primals, tangent = rows_and_upstream
        return jax.vjp(formula, *primals)[1](tangent)

    everything = (*rows, upstream)
    together = max(1, _CHUNK // upstream.shape[-1])
    if jax.default_backend() != "cpu" or together >= upstream.shape[0]:
        return pull(everything)
    return lax.map(pull, everything, batch_size=together)


_mix.defvjp(_forward, _backward)
