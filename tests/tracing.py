"""Sparing JAX the compilation of every single operation, which is most of what an eager test costs there."""

import keras


def traced(function):
    """On JAX the function of tensors under jit, compiled once as a whole; elsewhere the function itself.

    A layer must be built before.
    """
    if keras.backend.backend() != "jax":
        return function
    import jax

    return jax.jit(lambda *args, **kwargs: function(*args, **kwargs))
