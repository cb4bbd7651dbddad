"""What every layer of the package must do, checked on the public Keras API.

`check_layer` runs all of it; each check is also a function of its own. `make` is a callable that returns a fresh layer
and passes keyword arguments (`dtype`, `name`) on to it: `functools.partial(PolyNorm, order=2)`.
"""

import inspect
import json
import re
import tempfile
from pathlib import Path

import keras
import numpy as np
from reference_values import as_float64, as_tensors, assert_close

HALF_POLICIES = {"mixed_float16": "float16", "mixed_bfloat16": "bfloat16"}


def check_layer(make, *inputs, dynamic_shape=None, half=True, compiled=True):
    """Runs every check below.

    Args:
        make: callable with keyword arguments, returns a fresh layer.
        *inputs: arrays, the call arguments. Floating ones are float32 at most of ordinary size.
        dynamic_shape: shape of the first input without the batch axis, with `None` where the layer must not need the
            size. Defaults to `None` for all axes but the last.
        half: bool. Whether float16 and bfloat16 policies are tried.
        compiled: bool. Whether the compiled model is compared with the eager call.
    """
    inputs = tuple(np.asarray(x) for x in inputs)
    check_config(make, *inputs)
    check_build_without_call(make, *inputs)
    check_symbolic_call(make, *inputs, dynamic_shape=dynamic_shape)
    check_gradients(make, *inputs)
    check_saving(make, *inputs, dynamic_shape=dynamic_shape)
    check_fit(make, *inputs, dynamic_shape=dynamic_shape)
    check_dtypes(make, *inputs, half=half)
    if inputs[0].ndim >= 3:
        check_mask(make, *inputs)
    if compiled:
        check_compiled(make, *inputs)


def check_config(make, *inputs):
    """The config is JSON, holds every constructor argument, is the same after building, and rebuilds the layer."""
    layer = make()
    config = layer.get_config()
    text = json.dumps(config, sort_keys=True)
    missing = constructor_arguments(type(layer)) - set(config)
    assert not missing, f"{type(layer).__name__}.get_config() lacks {sorted(missing)}"
    call(layer, inputs)
    assert json.dumps(layer.get_config(), sort_keys=True) == text, "building or calling changed the config"
    twin = type(layer).from_config(json.loads(text))
    assert json.dumps(twin.get_config(), sort_keys=True) == text, "the rebuilt layer has another config"
    perturb(layer)
    call(twin, inputs)
    twin.set_weights(layer.get_weights())
    assert_close(call(twin, inputs), call(layer, inputs), 1e-6, "the rebuilt layer")


def check_build_without_call(make, *inputs):
    """`build` alone makes all variables, the same as a call makes, in the same order (CASES 007)."""
    built, called = make(), make()
    built.build(*(x.shape for x in inputs))
    call(called, inputs)
    assert built.built
    assert _described(built) == _described(called)
    perturb(called)
    built.set_weights(called.get_weights())
    assert_close(call(built, inputs), call(called, inputs), 1e-6, "the layer built without a call")


def check_symbolic_call(make, *inputs, dynamic_shape=None):
    """Symbolic calls and calls on arrays agree on shape and dtype; `None` dimensions stay; other sizes are accepted."""
    called = call(make(), inputs)
    symbolic = make()(*_symbols_of(inputs))
    assert tuple(symbolic.shape) == tuple(called.shape)
    assert symbolic.dtype == keras.backend.standardize_dtype(called.dtype)

    model = model_of(make(), inputs, dynamic_shape)
    assert tuple(model.output.shape) == _with_unknown(called.shape, model.inputs[0].shape)
    perturb(model)
    direct = call(model.layers[-1], inputs)
    assert_close(model(list(as_tensors_of(inputs)) if len(inputs) > 1 else inputs[0]), direct, 1e-6, "None dimensions")


def check_gradients(make, *inputs):
    """Every trainable weight gets a gradient that is finite and not zero."""
    layer = make()
    call(layer, inputs)
    perturb(layer)
    for path, gradient in weight_gradients(layer, inputs).items():
        assert gradient is not None, f"no gradient reaches {path}"
        assert np.isfinite(gradient).all(), f"the gradient of {path} is not finite"
        assert np.any(gradient != 0), f"the gradient of {path} is zero"


def check_saving(make, *inputs, dynamic_shape=None):
    """`.keras` files rebuild the model, `.weights.h5` files fill a fresh one that was never called (CASES 004, 031)."""
    model = model_of(make(), inputs, dynamic_shape)
    perturb(model)
    expected = predict(model, inputs)
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model.keras")
        loaded = keras.saving.load_model(Path(folder) / "model.keras")
        model.save_weights(Path(folder) / "model.weights.h5")
        fresh = model_of(make(), inputs, dynamic_shape)
        fresh.load_weights(Path(folder) / "model.weights.h5")
    assert len(loaded.variables) == len(model.variables)
    assert_close(predict(loaded, inputs), expected, 1e-6, ".keras")
    assert_close(predict(fresh, inputs), expected, 1e-6, ".weights.h5")
    assert json.dumps(loaded.layers[-1].get_config()) == json.dumps(model.layers[-1].get_config())


def check_fit(make, *inputs, dynamic_shape=None):
    """One `fit` with an optimizer that was built before the model was called moves every trainable weight."""
    model = model_of(make(), inputs, dynamic_shape)
    optimizer = keras.optimizers.SGD(0.1, momentum=0.5)
    optimizer.build(model.trainable_variables)
    model.compile(optimizer, loss="mse", jit_compile=keras.backend.backend() == "jax")
    perturb(model)
    before = [as_float64(v) for v in model.trainable_variables]
    target = np.random.default_rng(1).standard_normal(predict(model, inputs).shape)
    history = model.fit(_fed(inputs), target, batch_size=len(inputs[0]), epochs=1, verbose=0)
    assert np.isfinite(history.history["loss"][0])
    for variable, former in zip(model.trainable_variables, before, strict=True):
        assert np.isfinite(as_float64(variable)).all(), f"{variable.path} is not finite after a step"
        assert np.any(as_float64(variable) != former), f"{variable.path} did not move"


def check_dtypes(make, *inputs, half=True):
    """Mixed policies: variables float32, output half, no clash; float64 is float64 throughout (CASES 019)."""
    layer = make(dtype="float64")
    call(layer, _in_dtype(inputs, "float64"))
    perturb(layer)
    expected = call(layer, _in_dtype(inputs, "float64"))
    assert keras.backend.standardize_dtype(expected.dtype) == "float64"
    assert {v.dtype for v in layer.trainable_variables} <= {"float64"}
    assert make(dtype="float32").get_config()["dtype"]["config"]["name"] == "float32"
    for policy, dtype in HALF_POLICIES.items() if half else ():
        mixed = make(dtype=policy)
        call(mixed, inputs)
        mixed.set_weights([as_float64(v) if "float" in v.dtype else v.numpy() for v in layer.weights])
        output = call(mixed, inputs)
        assert keras.backend.standardize_dtype(output.dtype) == dtype
        assert {v.dtype for v in mixed.trainable_variables} <= {"float32"}
        assert mixed.get_config()["dtype"]["config"]["name"] == policy
        assert_close(output, as_float64(expected), 0.05 if dtype == "bfloat16" else 0.01, policy)


def check_mask(make, *inputs):
    """A mask passes through unchanged."""
    seen = []

    class Probe(keras.layers.Layer):
        supports_masking = True

        def call(self, inputs, mask=None):
            seen.append(mask)
            return inputs

    steps = np.array(inputs[0], copy=True)
    steps[:, 1] = 0.0
    tensors = as_tensors_of((steps, *inputs[1:]))
    masked = keras.layers.Masking()(tensors[0])
    Probe()(make()(masked, *tensors[1:]))
    assert seen[0] is not None, "the mask stopped at the layer"
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(seen[0]), np.any(steps != 0, axis=-1))


def check_compiled(make, *inputs, tolerance=1e-5):
    """The compiled layer computes what the eager one does."""
    layer = make()
    call(layer, inputs)
    perturb(layer)
    expected = layer(*as_tensors_of(inputs))
    assert_close(compiled_call(layer, inputs), as_float64(expected), tolerance, "compiled")


def check_compiled_training(make, *data, batch_size, loss=None, jit_compile=True):
    """`fit` compiled and fit eagerly, from the same seed, have the same losses and weights (CASES 050, 094).

    Returns the trained model.
    """
    results = []
    for how in ({"jit_compile": jit_compile}, {"jit_compile": False, "run_eagerly": True}):
        keras.utils.set_random_seed(0)
        model = make()
        model.compile(keras.optimizers.SGD(0.05), loss, **how)
        losses = model.fit(*data, batch_size=batch_size, epochs=2, shuffle=False, verbose=0).history["loss"]
        results.append([losses, *(as_float64(v) for v in model.trainable_variables)])
    for compiled, eager in zip(*results, strict=True):
        assert_close(compiled, eager, 1e-5)
    return model


def constructor_arguments(layer_class):
    """Names of all constructor arguments of a layer class, those of its bases as far as it passes `**kwargs` on.

    The arguments of `keras.layers.Layer` and those that begin with an underscore do not count.
    """
    names = set()
    for cls in layer_class.__mro__:
        if cls is keras.layers.Layer:
            break
        if "__init__" not in vars(cls):
            continue
        parameters = inspect.signature(cls.__init__).parameters.values()
        names |= {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return {name for name in names - {"self"} if not name.startswith("_")}


def call(layer, inputs):
    """Calls a layer on arrays: eagerly, but on JAX compiled as a whole.

    There every operation would be compiled by itself, for every shape and dtype; `check_compiled` is where eager calls
    are seen to give the same.
    """
    if keras.backend.backend() != "jax":
        return layer(*as_tensors_of(inputs))
    if not layer.built:
        layer(*_symbols_of(inputs))
    return compiled_call(layer, inputs)


def _symbols_of(inputs):
    return [keras.KerasTensor(x.shape, dtype=str(x.dtype)) for x in map(np.asarray, inputs)]


def as_tensors_of(inputs):
    """The arrays of a sequence as tensors of their own dtype."""
    return list(as_tensors(dict(enumerate(inputs))).values())


def model_of(layer, inputs, dynamic_shape=None):
    """A functional model around one layer, one `Input` per array, all axes `None` but the last where not given."""
    dynamic_shape = dynamic_shape or (*(None,) * (inputs[0].ndim - 2), inputs[0].shape[-1])
    shapes = [dynamic_shape, *(x.shape[1:] for x in inputs[1:])]
    symbols = [keras.Input(shape, dtype=str(x.dtype)) for shape, x in zip(shapes, inputs, strict=True)]
    return keras.Model(symbols if len(symbols) > 1 else symbols[0], layer(*symbols))


def predict(model, inputs):
    """`model.predict` on one batch."""
    return model.predict(_fed(inputs), batch_size=len(inputs[0]), verbose=0)


def perturb(layer, seed=3, scale=0.1):
    """Moves every float weight off its initial value, each by different amounts."""
    rng = np.random.default_rng(seed)
    for variable in layer.trainable_variables:
        variable.assign(as_float64(variable) + scale * rng.standard_normal(tuple(variable.shape)))


def weight_gradients(layer, inputs, seed=5):
    """Gradients of sum(upstream * layer(inputs)) for a random upstream, by path of the trainable weight."""
    tensors = as_tensors_of(inputs)
    upstream = np.random.default_rng(seed).standard_normal(tuple(layer(*tensors).shape))
    upstream = keras.ops.convert_to_tensor(upstream, dtype=layer.compute_dtype)
    gradients = _weight_gradients(layer, tensors, upstream)
    paths = [variable.path for variable in layer.trainable_variables]
    return {p: None if g is None else as_float64(g) for p, g in zip(paths, gradients, strict=True)}


def _weight_gradients(layer, tensors, upstream):
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        def loss(trainable):
            fixed = [v.value for v in layer.non_trainable_variables]
            output, _ = layer.stateless_call(trainable, fixed, *tensors)
            return keras.ops.sum(upstream * output)

        return jax.jit(jax.grad(loss))([v.value for v in layer.trainable_variables])
    if backend == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            loss = keras.ops.sum(upstream * layer(*tensors))
        return tape.gradient(loss, [v.value for v in layer.trainable_variables])
    import torch

    loss = keras.ops.sum(upstream * layer(*tensors))
    values = [v.value for v in layer.trainable_variables]
    return torch.autograd.grad(loss, values, allow_unused=True)


def compiled_call(layer, inputs):
    """Calls a layer under jax.jit, tf.function(jit_compile=True), or torch.compile without graph breaks."""
    tensors = as_tensors_of(inputs)
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        def run(values, tensors):  # `stateless_call` would leave out the policy's casts
            with keras.StatelessScope(state_mapping=zip(layer.variables, values, strict=True)):
                return layer(*tensors)

        return jax.jit(run)([v.value for v in layer.variables], tensors)
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.function(lambda *tensors: layer(*tensors), jit_compile=True)(*tensors)
    import torch

    torch.compiler.reset()  # the number of recompilations of one line of code is limited
    return torch.compile(lambda *tensors: layer(*tensors), backend="aot_eager", fullgraph=True)(*tensors)


def _described(layer):
    return [(_unnumbered(v.path.split("/", 1)[-1]), tuple(v.shape), v.dtype, v.trainable) for v in layer.variables]


def _unnumbered(path):
    return re.sub(r"seed_generator_\d+", "seed_generator", path)  # Keras counts them over the whole process


def _with_unknown(shape, symbolic_shape):
    return tuple(None if s is None else n for n, s in zip(shape, symbolic_shape, strict=True))


def _fed(inputs):
    return list(inputs) if len(inputs) > 1 else inputs[0]


def _in_dtype(inputs, dtype):
    return [x.astype(dtype) if np.issubdtype(x.dtype, np.floating) else x for x in inputs]
