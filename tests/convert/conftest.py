"""Models that are made quickly: JAX would compile every initializer anew for every shape."""

import keras
import numpy as np
import pytest


@pytest.fixture(autouse=True)
def numpy_initializers(monkeypatch):
    """Random initializers that draw from NumPy; whatever a model starts with is overwritten here, or compared with."""
    rng = np.random.default_rng(5)

    def draw(self, shape, dtype=None):
        return keras.ops.convert_to_tensor(0.1 * rng.standard_normal(shape).astype("float32"), dtype)

    for name in ("VarianceScaling", "RandomUniform", "TruncatedNormal"):
        monkeypatch.setattr(getattr(keras.initializers, name), "__call__", draw)
