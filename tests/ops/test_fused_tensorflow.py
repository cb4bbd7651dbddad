"""What can go wrong on TensorFlow only: functions that are traced once and used again."""

import keras
import numpy as np
import pytest
from reference_values import as_float64, assert_close

from keras_polycom import config, ops

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow's tf.function")


def test_coefficients_for_all_rows_after_coefficients_for_each():
    """Gradients of the bias had one number per row, once a per-expert PolyNorm of the same width had been traced."""
    import tensorflow as tf

    rng = np.random.default_rng(0)
    x, index = tf.constant(rng.standard_normal((7, 6)), "float32"), tf.constant([0, 1, 0, 1, 1, 0, 1])
    per_group = tf.constant([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]), tf.constant([0.1, 0.2])
    shared = tf.constant([0.1, 0.2, 0.3]), tf.constant([0.1])

    def gradients(function, weights):
        def run(x, index):
            with tf.GradientTape() as tape:
                tape.watch((x, *weights))
                y = function(x, *weights, index)
            return tape.gradient(y, (x, *weights))

        open_sizes = [tf.TensorSpec((None, 6)), tf.TensorSpec((None,), tf.int32)]
        return tf.function(run, autograph=False, input_signature=open_sizes)(x, index)

    def both():
        grouped = gradients(ops.grouped_poly_norm, per_group)
        return [as_float64(g) for g in (*grouped, *gradients(lambda x, a, b, index: ops.poly_norm(x, a, b), shared))]

    with config.fast_roads_scope("on"):
        fast = both()
    with config.fast_roads_scope("off"):
        plain = both()
    for actual, expected in zip(fast, plain, strict=True):
        assert_close(actual, expected, 1e-5)
