"""Random numbers of any shape from a few compiled functions, for tests on JAX.

XLA compiles for a third of a second for every shape that is drawn, which is most of what it takes to build an untrained
model. Outside of a trace as many numbers are drawn as the next power of 2, and the first of them are taken.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np


def use():
    """From here on `jax.random.uniform`, `normal` and `truncated_normal` compile for powers of 2 alone."""
    for name in ("uniform", "normal", "truncated_normal"):
        setattr(jax.random, name, _rounded_up(getattr(jax.random, name)))


def _rounded_up(draw):
    @functools.wraps(draw)
    def drawn(*arguments, shape=None, **options):
        as_asked = functools.partial(draw, *arguments, **options)
        if shape is None:  # left out, or not given by name as Keras does
            return as_asked()
        if not all(isinstance(size, int) for size in shape):
            return as_asked(shape=shape)
        count = math.prod(shape)
        numbers = as_asked(shape=(1 << count.bit_length(),))
        if isinstance(numbers, jax.core.Tracer):
            return as_asked(shape=shape)
        return jnp.asarray(np.asarray(numbers)[:count].reshape(shape))

    return drawn
