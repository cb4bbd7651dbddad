"""What is written of the learning rate, and that asking for it costs no memory."""

import keras
import numpy as np
import pytest
from support import training
from support.learning_rate import LearningRate


def built(rate, scaled=False):
    optimizer = keras.optimizers.Adam(rate)
    if scaled:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    optimizer.build([keras.Variable(np.ones(2, "float32"))])
    return optimizer


@pytest.mark.parametrize("scaled", [False, True], ids=["plain", "scaled loss"])
def test_it_is_the_schedule_at_the_step(scaled):
    schedule = training.warmup_cosine(1.0, 10, 4)
    optimizer = built(schedule, scaled)
    rate = LearningRate(optimizer)
    for step in (0, 3, 7, 10):
        optimizer.iterations.assign(step)
        assert rate() == pytest.approx(float(schedule(step)), abs=1e-7)


def test_a_constant_one_is_a_number_too():
    assert LearningRate(built(0.25))() == 0.25


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="only JAX compiles branches outside of functions")
def test_asking_again_compiles_nothing(caplog):
    import jax

    optimizer = built(training.warmup_cosine(1.0, 10, 4))
    rate = LearningRate(optimizer)
    rate()
    optimizer.iterations.assign(5)
    with jax.log_compiles():
        float(optimizer.learning_rate)
        assert "Compiling" in caplog.text  # what used to happen in every epoch
        caplog.clear()
        rate()
    assert "Compiling" not in caplog.text
