"""What all models share: a config of constructor arguments, and checks on images."""

import json

import keras

from keras_polycom.layers.nested import nested_layers
from keras_polycom.ops._numerics import check_count

DATA_FORMATS = ("channels_last", "channels_first")


class ConfiguredModel(keras.Model):
    """A functional model that is rebuilt from its constructor's arguments.

    A constructor calls `super().__init__(inputs=..., outputs=..., name=...)` and then `_remember` with its arguments,
    resolved and in JSON's types. All but `name`, `dtype` and `trainable` become attributes too.
    """

    def _remember(self, dtype, **arguments):
        # Kept as text: dicts and lists that are attributes of a model get wrapped, and may be edited behind its back.
        self._arguments = json.dumps(arguments)
        self._policy = dtype
        self._dtype_policy = getattr(dtype, "default_policy", dtype)  # compile() asks for it, to scale the loss
        for layer in nested_layers(self):
            # A layer that still holds the map of all policies quantizes and runs, but Keras cannot save it again.
            layer._dtype_policy = _own_policy(layer)
        for name, value in arguments.items():
            setattr(self, name, tuple(value) if isinstance(value, (list, tuple)) else value)

    def get_config(self):
        return {
            **json.loads(self._arguments),
            "dtype": self._serialized_policy(),
            "name": self.name,
            "trainable": self.trainable,
        }

    def _serialized_policy(self):
        """The policy's name; in a quantized model, a map with the layers listed by path that have another policy."""
        default = getattr(self._policy, "default_policy", self._policy)
        policies = {layer.path: _own_policy(layer) for layer in nested_layers(self) if layer.path}
        others = {path: policy for path, policy in policies.items() if policy.name != default.name}
        if not any(policy.quantization_mode for policy in others.values()):
            return default.name  # an instance that was given as an argument carries its policy in its own config
        policy = keras.dtype_policies.DTypePolicyMap(default_policy=default, policy_map=others)
        return keras.dtype_policies.serialize(policy)


def _own_policy(layer):
    policy = layer.dtype_policy
    if not isinstance(policy, keras.dtype_policies.DTypePolicyMap):
        return policy
    return policy[layer.path] if layer.path else policy.default_policy


def with_policies(identifier, dtype):
    """A layer's config takes on a map of policies, as a quantized model has; all other identifiers stay as they are."""
    if not isinstance(identifier, dict) or not isinstance(dtype, keras.dtype_policies.DTypePolicyMap):
        return identifier
    config = {**identifier["config"], "dtype": keras.dtype_policies.serialize(dtype)}
    return {**identifier, "config": config}


def check_data_format(data_format):
    """Returns `data_format`, or Keras's default for `None`; raises `ValueError` for anything unknown."""
    data_format = keras.config.image_data_format() if data_format is None else data_format
    if data_format not in DATA_FORMATS:
        raise ValueError(f"`data_format` must be one of {DATA_FORMATS} or None. Received: data_format={data_format!r}")
    return data_format


def image_sizes(image_shape, data_format):
    """Returns height, width and channels of `image_shape`; height and width may be `None`."""
    shape = tuple(image_shape)
    order = "(height, width, channels)" if data_format == "channels_last" else "(channels, height, width)"
    sizes = shape if data_format == "channels_last" else (*shape[1:], *shape[:1])
    if len(shape) != 3 or not _is_size(sizes[2]) or not all(n is None or _is_size(n) for n in sizes[:2]):
        raise ValueError(
            f"`image_shape` must be {order} for data_format={data_format!r}, integers of at least 1. Received: "
            f"image_shape={image_shape!r}"
        )
    return sizes


def check_sizes(**sizes):
    """Raises `ValueError` that names the first of the arguments that is not an integer of at least 1."""
    for name, size in sizes.items():
        check_count(size, name)


def check_rates(**rates):
    """Raises `ValueError` that names the first of the arguments that does not lie in [0, 1)."""
    for name, rate in rates.items():
        if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 <= rate < 1:
            raise ValueError(f"`{name}` must lie in [0, 1). Received: {name}={rate!r}")


def check_one_of(name, value, allowed):
    """Returns `value`; raises `ValueError` unless it is one of `allowed`."""
    if value not in allowed:
        raise ValueError(f"`{name}` must be one of {', '.join(map(repr, allowed))}. Received: {name}={value!r}")
    return value


def check_head(num_classes, pooling):
    """Returns the number of classes, `None` for no head; raises `ValueError` for a head without pooling."""
    if num_classes is None or (num_classes == 0 and not isinstance(num_classes, bool)):
        return None
    check_count(num_classes, "num_classes")
    if pooling is None:
        raise ValueError(
            f"A classifier needs pooled features. Received: pooling=None with num_classes={num_classes}. Give a "
            "`pooling`, or num_classes=None for a model that outputs the unpooled features."
        )
    return num_classes


def _is_size(value):
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
