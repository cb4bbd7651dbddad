"""The only place that asks whether the backend in use has a faster version of an op.

A file here is named after its backend and repeats public names of `keras_polycom.ops` with the same signatures. For
an op NAME it holds the function `NAME` and the predicate `NAME_refuses`, which takes the same arguments and returns why
the fast version cannot take them, or `None`. The backend's file is loaded together with this one, before the ops that
dispatch are defined, so it may import `_numerics` and `polynomial` from there at its top, and an op only in a function.
"""

import importlib
import importlib.util

import keras

from keras_polycom import config
from keras_polycom.ops.exporting import is_exporting


def _load_backend_module():
    name = f"{__name__}.{keras.backend.backend()}"
    return importlib.import_module(name) if importlib.util.find_spec(name) else None


_backend_module = _load_backend_module()  # not at the first call, which may be inside a compiler's trace


def _module_for(x):
    """The file that is asked: the backend's, or one that it names for tensors like `x`, as for those on a GPU."""
    choose = getattr(_backend_module, "module_for", None)
    return _backend_module if choose is None else choose(x)


def _refusal(module, name, args, kwargs):
    if not hasattr(module, name):
        return f"the {keras.backend.backend()} backend has no faster version of it"
    if any(keras.utils.is_keras_tensor(arg) for arg in args):
        return "its inputs are symbolic"
    refusal = getattr(module, f"{name}_refuses")(*args, **kwargs)
    return "the model is being exported" if refusal is None and is_exporting() else refusal


def dispatch(plain, *args, **kwargs):
    """Calls the backend's version of `plain` if there is one that takes these inputs, else `plain` itself.

    Raises:
        ValueError: `config.fast_roads()` is `"on"` and there is none.
    """
    if config.fast_roads() == "off":
        return plain(*args, **kwargs)
    name, module = plain.__name__.lstrip("_"), _module_for(args[0])
    refusal = _refusal(module, name, args, kwargs)
    if refusal is None:
        return getattr(module, name)(*args, **kwargs)
    if config.fast_roads() == "on":
        raise ValueError(
            f"A faster version of `{name}` was required by fast_roads='on', but {refusal}. Use 'auto' or 'off'."
        )
    return plain(*args, **kwargs)
