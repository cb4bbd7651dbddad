"""The Helmholtz equation u'' + k^2 u = f on [-1, 1] with u = 0 at both ends, and a network that learns to solve it.

With f(x) = (k^2 - pi^2) sin(pi x) the solution is u(x) = sin(pi x).
"""

import math

import keras
import numpy as np

from support import pde


def solution(x):
    return np.sin(np.pi * x)


def relative_error(network, points=2001):
    """The L2 norm of network - solution over that of the solution, on equidistant points."""
    x = np.linspace(-1, 1, points)[:, None]
    values = keras.ops.convert_to_numpy(network(x.astype("float32")))
    return float(np.linalg.norm(values - solution(x)) / np.linalg.norm(solution(x)))


class HelmholtzProblem(keras.Model):
    """A network under the loss of the equation, in the mean over interior points, and of the boundary values.

    ```
    loss = w_1 mean((u'' + k^2 u - f)^2) + w_2 mean(u(boundary)^2)
    ```

    It is called on a dict with `interior` and `boundary`, both (points, 1), and returns the `residual` of the equation
    and the values at the `boundary`.

    Args:
        network: model from (points, 1) to (points, 1).
        wave_number: number, k.
        loss_weights: w_1 and w_2.
    """

    def __init__(self, network, wave_number, loss_weights):
        super().__init__(name="helmholtz")
        self.network = network
        self.wave_number = wave_number
        self.loss_weights = tuple(loss_weights)
        self.built = True  # as the network is

    def call(self, inputs):
        x = inputs["interior"]
        u, second = pde.value_and_second_derivative(self.network, x)
        square = self.wave_number**2
        source = (square - math.pi**2) * keras.ops.sin(math.pi * x)
        return {"residual": second + square * u - source, "boundary": self.network(inputs["boundary"])}

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        equation, boundary = (keras.ops.mean(keras.ops.square(y_pred[name])) for name in ("residual", "boundary"))
        return self.loss_weights[0] * equation + self.loss_weights[1] * boundary


class CollocationPoints(keras.utils.PyDataset):
    """The same points in every step: interior ones drawn evenly from [-1, 1], boundary ones at both ends in turn.

    Args:
        interior, boundary: integers, the numbers of points.
        steps: integer, steps per epoch.
        seed: integer.
    """

    def __init__(self, interior, boundary, steps, seed):
        super().__init__()
        drawn = np.random.default_rng(seed).uniform(-1, 1, (interior, 1))
        ends = np.where(np.arange(boundary) % 2, 1.0, -1.0)[:, None]
        self.points = {"interior": drawn.astype("float32"), "boundary": ends.astype("float32")}
        self.steps = steps
        self.epoch = 0
        self.error = None

    def __len__(self):
        return self.steps

    def __getitem__(self, index):
        return (self.points,)
