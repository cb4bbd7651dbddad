"""What the activations and normalizations of other people's models are called here."""

import keras

from keras_polycom import activations

# Not activations of a tensor of one shape, or nothing at all.
_NOT_SITES = {"glu", "linear", "identity"}
_NORMALIZATIONS = (
    "BatchNormalization",
    "GroupNormalization",
    "LayerNormalization",
    "RMSNormalization",
    "ParallelLayerNormalization",
    "ParallelLayerScaling",
    "ConvParallelLayerNormalization",
    "MixNormalization",
    "PatchGroupNormalization",
)


def _squeezed(name):
    return name.replace("_", "").lower()


def _by_class_name():
    """`"LeakyReLU"`, `"LeakyRelu"`, `"PolyNorm"`, ... without their capitals -> the name they go by."""
    names = {_squeezed(name): name for name in (*activations.names(), "prelu", "poly_com", "grouped_poly_norm")}
    return {**names, "swish": "silu"}


def activation_name(class_name, config):
    """The name of an activation layer or operation, or `None` for anything else.

    Args:
        class_name: string. Of a layer or of an operation in a functional model.
        config: dict. Its configuration.
    """
    if class_name == "Activation":
        return function_name(config.get("activation"))
    name = _by_class_name().get(_squeezed(class_name))
    if name == "relu":
        return _rectifier_name(config)
    return None if name in _NOT_SITES else name


def function_name(value):
    """The name of what stands in a config under `activation`, or `None` for no activation."""
    if isinstance(value, dict):
        inner = value.get("config")
        if isinstance(inner, dict):
            return activation_name(value.get("class_name"), inner) or value.get("class_name")
        value = inner
    if value is None or value in _NOT_SITES:
        return None
    name = value if isinstance(value, str) else "function of the user's own"
    return _by_class_name().get(_squeezed(name), name)


def _rectifier_name(config):
    slope = config.get("negative_slope") or 0.0
    limit, threshold = config.get("max_value"), config.get("threshold") or 0.0
    if threshold:
        return f"relu with threshold {threshold:g}"
    if limit is not None:
        return "relu6" if limit == 6 and not slope else f"relu up to {limit:g}"
    return "leaky_relu" if slope else "relu"


def normalization_name(class_name, config):
    """The class name of a normalization layer, or `None` for anything else."""
    return class_name if class_name in _NORMALIZATIONS else None


def normalization_of_argument(value):
    """The class name of what stands in a config under `normalization`, or `None` for anything else."""
    if isinstance(value, dict):
        return normalization_name(value.get("class_name"), value)
    return _normalization_aliases().get(_squeezed(value.partition("[")[0])) if isinstance(value, str) else None


def _normalization_aliases():
    aliases = {_squeezed(name): name for name in _NORMALIZATIONS}
    aliases.update({_squeezed(name).replace("ormalization", "orm"): name for name in _NORMALIZATIONS})
    return {**aliases, "pln": _NORMALIZATIONS[4], "pls": _NORMALIZATIONS[5], "cpln": _NORMALIZATIONS[6]}


def normalization_key(key):
    """A user's name for a normalization as its class name: `"layer_norm"`, `"LayerNormalization"` or the class."""
    if isinstance(key, type) and issubclass(key, keras.layers.Layer):
        return key.__name__
    name = _normalization_aliases().get(_squeezed(key)) if isinstance(key, str) else None
    if name is not None:
        return name
    raise ValueError(
        f"What to replace is named by {', '.join(_NORMALIZATIONS)}, by a short form such as 'layer_norm', or by the "
        f"layer class. Received: {key!r}"
    )


def activation_key(key):
    """A user's name for an activation, or its class or function, as the name used here."""
    if isinstance(key, str):
        return _by_class_name().get(_squeezed(key), key)
    name = getattr(key, "__name__", None)
    if name is None:
        raise TypeError(
            f"What to replace is named by a string such as 'relu', a layer class or a function. Received: {key!r}"
        )
    return _by_class_name().get(_squeezed(name), name)
