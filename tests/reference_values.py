"""Reference values, and derivatives that are taken the same way on every backend.

A reference file holds float64 arrays: inputs `in_*`, the result `out`, a cotangent `upstream`, the gradients `grad_*`
of sum(upstream * out), and `meta`, a JSON string with the settings.
"""

import json
from pathlib import Path

import keras
import numpy as np
import pytest

FOLDER = Path(__file__).parent / "reference"


def load(name):
    """Returns the arrays of `tests/reference/NAME.npz`, `meta` parsed."""
    with np.load(FOLDER / f"{name}.npz") as arrays:
        case = dict(arrays)
    return {**case, "meta": json.loads(str(case["meta"]))}


def cases(prefix):
    """Names of all reference files that begin with `prefix`, for parametrisation."""
    found = sorted(path.stem for path in FOLDER.glob(f"{prefix}*.npz"))
    assert found, f"no reference file begins with {prefix!r}"
    return found


def inputs_of(case):
    """The `in_*` arrays of a case, by name without the prefix."""
    return {key[3:]: value for key, value in case.items() if key.startswith("in_")}


def gradients_of(case):
    """The `grad_*` arrays of a case, by name without the prefix."""
    return {key[5:]: value for key, value in case.items() if key.startswith("grad_")}


TOLERANCE = {"float32": 1e-5, "float64": 1e-10}

# For parametrisation. On JAX there is no more to see operation by operation, only far more to compile.
EAGER_AND_COMPILED = [pytest.param(True, id="compiled")] + (
    [] if keras.backend.backend() == "jax" else [pytest.param(False, id="eager")]
)


def assert_close(actual, expected, tolerance, what=""):
    """Fails unless |actual - expected| <= tolerance * max(1, largest |expected|)."""
    actual, expected = as_float64(actual), as_float64(expected)
    assert actual.shape == expected.shape, f"{what}: shape {actual.shape} instead of {expected.shape}"
    if not expected.size:
        return
    bound = tolerance * max(1.0, np.abs(expected).max())
    worst = np.abs(actual - expected).max()
    assert worst <= bound, f"{what}: differs by {worst:.3g}, allowed {bound:.3g}"


def as_float64(x):
    """Any number, array, variable or tensor as float64 NumPy; bfloat16 too."""
    if isinstance(x, (np.ndarray, np.generic, float, int, list)):
        return np.asarray(x).astype("float64")
    return np.asarray(keras.ops.convert_to_numpy(keras.ops.cast(x, "float64")))


def as_tensors(inputs, dtype=None):
    """Tensors of the arrays in a dict; floating ones in `dtype` if it is given."""
    return {name: _as_tensor(value, dtype) for name, value in inputs.items()}


def _as_tensor(value, dtype):
    value = np.asarray(value)
    floating = np.issubdtype(value.dtype, np.floating)
    return keras.ops.convert_to_tensor(value, dtype=dtype if floating and dtype else str(value.dtype))


def value_and_gradients(function, inputs, upstream, dtype=None, compiled=None):
    """Returns `function(**inputs)` and the gradients of sum(upstream * function(**inputs)), as float64 NumPy.

    Args:
        function: callable on tensors, given by name.
        inputs: dict of arrays; those of integer dtype are not differentiated.
        upstream: array of the shape of the result.
        dtype: string. What floating inputs and the cotangent are cast to. Defaults to the dtype they have.
        compiled: bool. Under jax.jit, tf.function(jit_compile=True), or torch.compile traced forwards and backwards.
            Defaults to what is quickest: `True` on JAX, which otherwise compiles every operation by itself.
    """
    return differentiated(function, inputs, upstream, dtype, compiled)(inputs)


def differentiated(function, inputs, upstream, dtype=None, compiled=None):
    """Returns what computes `value_and_gradients` for any inputs like these; compiled once, if at all."""
    upstream = _as_tensor(upstream, dtype)
    floating = [name for name, value in inputs.items() if np.issubdtype(np.asarray(value).dtype, np.floating)]
    fixed = as_tensors({name: value for name, value in inputs.items() if name not in floating})
    compiled = keras.backend.backend() == "jax" if compiled is None else compiled

    def differentiable(*values):
        return function(**fixed, **dict(zip(floating, values, strict=True)))

    pullback = _pullback(differentiable, compiled)

    def run(inputs):
        tensors = as_tensors({name: inputs[name] for name in floating}, dtype)
        value, gradients = pullback(list(tensors.values()), upstream)
        return as_float64(value), {n: as_float64(g) for n, g in zip(floating, gradients, strict=True)}

    return run


def gradients_of_gradients(function, inputs, upstream, directions, dtype="float64"):
    """Second-order reverse mode: the gradients of <directions, gradient of sum(upstream * function)>, by name.

    They equal the derivative of the first-order gradients along `directions`, which `check_derivatives` compares with.
    """
    tensors, names = as_tensors(inputs, dtype), list(directions)
    fixed = {name: value for name, value in tensors.items() if name not in names}
    upstream = _as_tensor(upstream, dtype)
    directions = [_as_tensor(directions[name], dtype) for name in names]

    def differentiable(*values):
        return function(**fixed, **dict(zip(names, values, strict=True)))

    second = _second_order(differentiable, [tensors[n] for n in names], upstream, directions)
    return {n: as_float64(g) for n, g in zip(names, second, strict=True)}


def check_derivatives(function, inputs, tolerance=1e-6, step=1e-5, seed=0, order=2):
    """First- and second-order reverse-mode derivatives equal central differences along a direction, in float64."""
    rng = np.random.default_rng(seed)
    inputs = {name: np.asarray(value) for name, value in inputs.items()}
    floating = [name for name, value in inputs.items() if np.issubdtype(value.dtype, np.floating)]
    directions = {name: rng.standard_normal(inputs[name].shape) for name in floating}
    upstream = rng.standard_normal(_output_shape(function, as_tensors(inputs, "float64")))

    derivative = differentiated(function, inputs, upstream, "float64")

    def shifted(t):
        return derivative({name: inputs[name] + t * directions[name] for name in floating})

    (above, gradients_above), (below, gradients_below) = shifted(step), shifted(-step)
    _, gradients = shifted(0.0)
    slope = sum((gradients[name] * directions[name]).sum() for name in floating)
    assert_close(np.array(slope), np.sum(upstream * (above - below)) / (2 * step), tolerance, "first derivative")
    if order < 2:
        return
    second = gradients_of_gradients(function, inputs, upstream, directions)
    for name in floating:
        expected = (gradients_above[name] - gradients_below[name]) / (2 * step)
        assert_close(second[name], expected, tolerance, f"second derivative with respect to {name}")


def _output_shape(function, tensors):
    if keras.backend.backend() != "jax":
        return tuple(function(**tensors).shape)
    import jax

    return jax.eval_shape(lambda tensors: function(**tensors), tensors).shape


def _pullback(function, compiled):
    """Returns `(values, upstream) -> (function(*values), its pullback)`."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        def pull(values, upstream):
            value, pullback = jax.vjp(function, *values)
            return value, pullback(upstream)

        return jax.jit(pull) if compiled else pull
    if backend == "tensorflow":
        import tensorflow as tf

        def pull(values, upstream):
            with tf.GradientTape() as tape:
                tape.watch(values)
                value = function(*values)
            gradients = tape.gradient(value, values, output_gradients=upstream, unconnected_gradients="zero")
            return value, gradients

        return tf.function(pull, jit_compile=True) if compiled else pull
    import torch

    if compiled:
        torch.compiler.reset()  # the number of recompilations of one line of code is limited
        function = torch.compile(function, backend="aot_eager", fullgraph=True)

    def pull(values, upstream):
        values = [value.detach().requires_grad_() for value in values]
        value = function(*values)
        return value.detach(), torch.autograd.grad(value, values, upstream, materialize_grads=True)

    return pull


def _second_order(function, values, upstream, directions):
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        def slope(*values):
            gradients = jax.vjp(function, *values)[1](upstream)
            return sum((d * g).sum() for d, g in zip(directions, gradients, strict=True))

        return jax.jit(jax.grad(slope, argnums=tuple(range(len(values)))))(*values)
    if backend == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as outer:
            outer.watch(values)
            with tf.GradientTape() as inner:
                inner.watch(values)
                value = function(*values)
            gradients = inner.gradient(value, values, output_gradients=upstream, unconnected_gradients="zero")
            slope = sum(tf.reduce_sum(d * g) for d, g in zip(directions, gradients, strict=True))
        return outer.gradient(slope, values, unconnected_gradients="zero")
    import torch

    values = [value.detach().requires_grad_() for value in values]
    gradients = torch.autograd.grad(function(*values), values, upstream, create_graph=True, materialize_grads=True)
    slope = sum((d * g).sum() for d, g in zip(directions, gradients, strict=True))
    if not slope.requires_grad:  # linear in everything
        return [torch.zeros_like(value) for value in values]
    return torch.autograd.grad(slope, values, materialize_grads=True)
