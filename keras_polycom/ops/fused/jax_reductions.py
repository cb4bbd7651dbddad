"""Sums over rows and columns, several at a time, for the faster versions on JAX."""

import jax
import jax.numpy as jnp
from jax import lax

from keras_polycom.ops.fused.shared import PIECES, ROWS


@jax.custom_jvp
def row_sums(terms):
    """Sums of several (before, axis, after) arrays over the middle axis, kept as (before, 1, after).

    XLA on a CPU makes a pass over memory for every reduction; there all sums are one variadic reduction. Elsewhere
    it joins them itself.
    """
    if jax.default_backend() != "cpu":
        return [jnp.sum(term, axis=1, keepdims=True) for term in terms]
    before, length, after = terms[0].shape
    pieces = next((n for n in PIECES if length % n == 0), 1) if after == 1 else 1
    if pieces > 1:
        terms = [term.reshape(before, pieces, length // pieces) for term in terms]
    zeros = tuple(jnp.zeros((), term.dtype) for term in terms)
    sums = lax.reduce(tuple(terms), zeros, _add, (1,))
    if pieces > 1:
        sums = [jnp.sum(s, axis=1) for s in sums]
    return [s.reshape(before, 1, after) for s in sums]


@row_sums.defjvp
def _row_sums_jvp(primals, tangents):
    (terms,), (tangents,) = primals, tangents
    return row_sums(terms), [jnp.sum(tangent, axis=1, keepdims=True) for tangent in tangents]


def column_sums(terms):
    """Sums of several (rows, runs, size) arrays over the first axis."""
    rows, *shape = terms[0].shape
    together = rows // ROWS * ROWS if jax.default_backend() == "cpu" else 0
    sums = [jnp.sum(term[together:], axis=0) for term in terms]
    if together:
        blocks = row_sums([term[:together].reshape(together // ROWS, ROWS, -1) for term in terms])
        sums = [s + jnp.sum(block, axis=0).reshape(shape) for s, block in zip(sums, blocks, strict=True)]
    return sums


def _add(left, right):
    return tuple(a + b for a, b in zip(left, right, strict=True))
