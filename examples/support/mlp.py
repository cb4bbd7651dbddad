"""Multilayer perceptrons: dense layers of one width with a nonlinearity behind each, and a linear output."""

import keras

from support import nonlinearities
from support.errors import building
from support.initial import uniform


def build(inputs, width, depth, activation, seed):
    """Returns a fresh model from (batch, inputs) to (batch, 1).

    Two calls with one seed differ in nothing but the nonlinearities; the dense layers are named as in every other run.

    Args:
        inputs: integer.
        width, depth: integers, of the hidden layers.
        activation: name that `nonlinearities` knows.
        seed: integer.

    Raises:
        UserError: the nonlinearity does not fit the width.
    """
    keras.utils.set_random_seed(seed)
    x = points = keras.Input((inputs,), name="points")
    with building(f"with {activation}"):
        for number in range(1, depth + 1):
            x = keras.layers.Dense(width, name=f"hidden_{number}", **uniform(x.shape[-1]))(x)
            x = nonlinearities.apply(activation, x, name=f"nonlinearity_{number}")
    outputs = keras.layers.Dense(1, name="output", **uniform(x.shape[-1]))(x)
    return keras.Model(points, outputs, name="mlp")
