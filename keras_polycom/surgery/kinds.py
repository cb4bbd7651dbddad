"""The two kinds of things surgery replaces: how each is found and how its replacement is made."""

import keras

from keras_polycom import activations, normalizations
from keras_polycom.layers.channels import on_axis
from keras_polycom.surgery import names


class Activations:
    """Activation layers, operations such as `keras.ops.relu`, and `activation=` arguments."""

    noun = "activation"
    plural = "activations"
    example = '{"relu": keras_polycom.PolyNorm}'
    carried = ()  # the weights a replacement takes over
    key = staticmethod(names.activation_key)
    name_of = staticmethod(names.activation_name)

    @staticmethod
    def is_argument(key):
        return key == "activation" or key.endswith("_activation")

    @staticmethod
    def name_of_argument(value):
        return names.function_name(value)

    @staticmethod
    def make(identifier, config, axis, **arguments):
        return on_axis(activations.get_layer(identifier, **arguments), axis)


class Normalizations:
    """Normalization layers."""

    noun = "normalization"
    plural = "normalizations"
    example = '{"layer_norm": "pln[8]"}'
    carried = ("gamma", "beta")
    key = staticmethod(names.normalization_key)
    name_of = staticmethod(names.normalization_name)

    @staticmethod
    def is_argument(key):
        return key == "normalization"

    @staticmethod
    def name_of_argument(value):
        return names.normalization_of_argument(value)

    @staticmethod
    def make(identifier, config, axis, **arguments):
        """The axis is that of the layer replaced.

        Raises:
            ValueError: that layer normalizes over several axes together.
        """
        axis = config.get("axis", axis)
        if not isinstance(axis, int):
            if len(axis) != 1:
                raise ValueError(f"it normalizes over several axes together, {tuple(axis)}")
            axis = axis[0]
        return on_axis(normalizations.get(identifier, **arguments), axis)


def config_of(operation):
    """The config of a layer or operation, empty where it has none."""
    try:
        return operation.get_config()
    except (AttributeError, NotImplementedError, TypeError):
        return {}


def dtype_of(operation):
    return operation.dtype_policy if isinstance(operation, keras.layers.Layer) else None
