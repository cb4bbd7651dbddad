"""Second derivatives of functions and networks against analytic ones, and what a training step does with them."""

import keras
import numpy as np
import pytest
from support import mlp, pde
from support.pde import helmholtz

from keras_polycom import ops

POINTS = np.linspace(-1.7, 1.7, 23)[:, None]
# phi(x) = x / sqrt(1 + x^2) as layer normalization of a x + c, read out with a / n: lemma 4.2 of the PLN paper, n = 4.
A = np.array([1.0, -1.0, 0.0, 0.0]) * 2**0.5
C = np.array([1.0, 1.0, -2.0, 0.0]) * (2 / 3) ** 0.5


def phi(x, slope=1.0, epsilon=0.0):
    """phi(slope x) by way of `ops.parallel_layer_norm`."""
    direction, offset = (keras.ops.convert_to_tensor(v, dtype=x.dtype) for v in (A, C))
    runs = ops.parallel_layer_norm((1 + epsilon) ** 0.5 * slope * x * direction + offset, 4, epsilon=epsilon)
    return keras.ops.sum(runs * direction / 4, axis=-1, keepdims=True)


def phi_second(x):
    return -3 * x * (1 + x**2) ** -2.5


FUNCTIONS = {
    "pln": (phi, lambda x: x / np.sqrt(1 + x**2), phi_second),
    "pln with epsilon": (lambda x: phi(x, epsilon=0.3), lambda x: x / np.sqrt(1 + x**2), phi_second),
    "rational": (
        lambda x: x * x * x / (1 + x * x),
        lambda x: x**3 / (1 + x**2),
        lambda x: (6 * x - 2 * x**3) / (1 + x**2) ** 3,
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_second_derivative_of_a_function_in_double_precision(name):
    function, value, second = FUNCTIONS[name]
    x = keras.ops.convert_to_tensor(POINTS, dtype="float64")
    ours = [
        keras.ops.convert_to_numpy(keras.ops.stop_gradient(y)) for y in pde.value_and_second_derivative(function, x)
    ]
    assert ours[1].dtype == "float64"
    np.testing.assert_allclose(ours[0], value(POINTS), atol=1e-12)
    np.testing.assert_allclose(ours[1], second(POINTS), atol=1e-11)


@pytest.mark.parametrize("activation", ["tanh", "sat", "relu"])
def test_second_derivative_of_a_network(activation):
    network = mlp.build(1, 9, 1, activation, seed=2)
    w, b, v, _ = (weight.astype("float64") for weight in network.get_weights())
    h = POINTS @ w + b
    second = {"tanh": -2 * np.tanh(h) / np.cosh(h) ** 2, "sat": phi_second(h), "relu": 0 * h}[activation]
    x = keras.ops.convert_to_tensor(POINTS.astype("float32"))
    value, ours = pde.value_and_second_derivative(network, x)
    np.testing.assert_allclose(_array(ours), (second * w**2) @ v, atol=1e-5)
    np.testing.assert_allclose(_array(value), _array(network(x)), atol=1e-6)


def test_second_derivative_of_a_deep_network_with_pln():
    """Against finite differences of the same weights in double precision, in NumPy."""
    network = mlp.build(1, 12, 2, "pln[4]", seed=2)
    w = [weight.astype("float64") for weight in network.get_weights()]

    def forward(x):
        for kernel, bias, gamma, beta in (w[:4], w[4:8]):
            runs = (x @ kernel + bias).reshape(len(x), -1, 4)
            runs = (runs - runs.mean(-1, keepdims=True)) / np.sqrt(runs.var(-1, keepdims=True) + 1e-5)
            x = runs.reshape(len(x), -1) * gamma + beta
        return x @ w[8] + w[9]

    x, step = POINTS[::3], 1e-4
    expected = (forward(x + step) - 2 * forward(x) + forward(x - step)) / step**2
    _, ours = pde.value_and_second_derivative(network, keras.ops.convert_to_tensor(x.astype("float32")))
    np.testing.assert_allclose(_array(ours), expected, atol=1e-3 * np.abs(expected).max())


class Phi(keras.layers.Layer):
    """phi(slope x) with a learnable slope."""

    def build(self, input_shape):
        self.slope = self.add_weight(shape=(), initializer=keras.initializers.Constant(1.3), name="slope")

    def call(self, x):
        return phi(x, keras.ops.convert_to_tensor(self.slope))


def test_a_training_step_follows_the_gradient_of_the_analytic_loss():
    wave_number, weights, slope = 2.0, (0.7, 5.0), 1.3
    problem = helmholtz.HelmholtzProblem(keras.Sequential([keras.Input((1,)), Phi()]), wave_number, weights)
    problem.compile(keras.optimizers.SGD(1e-3), jit_compile=pde.JIT_COMPILE)
    problem.optimizer.build(problem.trainable_variables)
    points = helmholtz.CollocationPoints(40, 10, steps=1, seed=3)
    x, ends = (points.points[name].astype("float64") for name in ("interior", "boundary"))

    def loss(s):
        u = s * x / np.sqrt(1 + (s * x) ** 2)
        source = (wave_number**2 - np.pi**2) * np.sin(np.pi * x)
        boundary = s * ends / np.sqrt(1 + (s * ends) ** 2)
        residual = s**2 * phi_second(s * x) + wave_number**2 * u - source
        return weights[0] * np.mean(residual**2) + weights[1] * np.mean(boundary**2)

    history = problem.fit(points, verbose=0)
    gradient = (loss(slope + 1e-5) - loss(slope - 1e-5)) / 2e-5
    assert history.history["loss"][0] == pytest.approx(loss(slope), rel=1e-4)
    change = _array(problem.trainable_variables[0]) - np.float32(slope)
    assert change == pytest.approx(-1e-3 * gradient, rel=1e-3)


def test_collocation_points_cover_the_interval_and_both_ends():
    points = helmholtz.CollocationPoints(500, 7, steps=3, seed=0)
    assert len(points) == 3 and points[0] == points[2]
    interior, boundary = points[0][0]["interior"], points[0][0]["boundary"]
    assert interior.shape == (500, 1) and -1 <= interior.min() < -0.95 and 0.95 < interior.max() <= 1
    assert boundary.ravel().tolist() == [-1, 1, -1, 1, -1, 1, -1]
    assert not np.array_equal(interior, helmholtz.CollocationPoints(500, 7, steps=3, seed=1).points["interior"])


def test_the_solution_solves_the_equation_and_has_no_error():
    for wave_number in (1.0, 4.0):
        network = keras.Sequential([keras.Input((1,)), keras.layers.Lambda(lambda x: keras.ops.sin(np.pi * x))])
        problem = helmholtz.HelmholtzProblem(network, wave_number, (1.0, 1.0))
        outputs = problem(helmholtz.CollocationPoints(50, 4, steps=1, seed=0).points)
        assert max(np.abs(_array(output)).max() for output in outputs.values()) < 1e-4
        assert helmholtz.relative_error(network) < 1e-6
    assert helmholtz.relative_error(lambda x: 0 * x) == 1


def _array(tensor):
    return keras.ops.convert_to_numpy(keras.ops.stop_gradient(tensor))
