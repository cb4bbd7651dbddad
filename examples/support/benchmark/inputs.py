"""The tensors that go into an op and come back into its derivative, drawn once and shared by all rows."""

import functools

import keras

DTYPES = ("float32", "bfloat16", "float16", "float64")


def allow(dtype):
    """Makes JAX keep float64, which it otherwise turns into float32."""
    if dtype == "float64" and keras.backend.backend() == "jax":
        import jax

        jax.config.update("jax_enable_x64", True)


class Inputs:
    """Standard normal tensors.

    Args:
        shape: tuple of integers, that of `x`.
        dtype: string, that of `x`, `z` and `upstream`. Weights are in float32, as the layers keep them under a mixed
            policy, or in float64 with a float64 `x`.
        seed: integer. Defaults to `0`.
    """

    def __init__(self, shape, dtype, seed=0):
        self.shape = tuple(shape)
        self.dtype = dtype
        self._generator = keras.random.SeedGenerator(seed)

    @functools.cached_property
    def x(self):
        return self._normal(self.shape, self.dtype)

    @functools.cached_property
    def z(self):
        """A second tensor like `x`, for gated units."""
        return self._normal(self.shape, self.dtype)

    @functools.cached_property
    def upstream(self):
        """The gradient that comes from above."""
        return self._normal(self.shape, self.dtype)

    @property
    def x_bytes(self):
        count = 1
        for size in self.shape:
            count *= size
        return count * {"float64": 8, "float32": 4}.get(self.dtype, 2)

    def weights(self, *shape):
        return self._normal(shape, "float64" if self.dtype == "float64" else "float32")

    def indices(self, count, shape):
        """Integers from 0 to `count` - 1."""
        return keras.random.randint(shape, 0, count, dtype="int32", seed=self._generator)

    def _normal(self, shape, dtype):
        return keras.ops.cast(keras.random.normal(shape, dtype="float32", seed=self._generator), dtype)
