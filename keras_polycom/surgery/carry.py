"""Weights and training flags from a model to the one that was made of it."""

import collections
import re

import keras
import numpy as np

from keras_polycom.layers.nested import nested_layers
from keras_polycom.surgery.instances import give_weights
from keras_polycom.surgery.walk import is_nested, pairs


def carry_over(old, new, surgeon):
    """Gives `new` the weights, statistics, random states and training flags of `old`, as far as both have them.

    Raises:
        ValueError: a weight that does not belong to a replacement finds no counterpart.
    """
    for layer, partner in pairs(old, new):
        partner.trainable = not layer.trainable  # TensorFlow hands on to the layers inside only what changes
        partner.trainable = layer.trainable
    give_weights(nested_layers(new), surgeon.instances)
    for layer, partner in pairs(old, new):
        if not is_nested(layer):
            _carry_variables(layer, partner, surgeon)


def _carry_variables(old, new, surgeon):
    sources = collections.defaultdict(list)
    for variable, owner in _owned(old):
        sources[_relative(variable, old)].append((variable, owner))
    replaced = surgeon.has_made(new)
    for variable, owner in _owned(new):
        found = sources[_relative(variable, new)]
        source, former = found.pop(0) if found else (None, None)
        same = former is owner and not replaced
        if source is not None and source.shape == variable.shape and (same or variable.name in surgeon.kind.carried):
            variable.assign(
                np.array(keras.ops.convert_to_numpy(source))
            )  # JAX would delete a shared array when it trains
            if source.trainable != variable.trainable:
                variable.trainable = source.trainable
        elif not any(isinstance(layer, owner) for layer in surgeon.made):
            raise ValueError(
                f"The weight {variable.path}, {variable.shape}, of {new.name} finds no counterpart in the model it was "
                "made of: the config of that layer does not rebuild it. Use replace_activations_in_place."
            )


def _owned(layer):
    """The variables of a layer, each with the class of the innermost layer that it belongs to."""
    owners = {id(variable): type(layer) for variable in layer.variables}
    for inner in sorted(nested_layers(layer), key=lambda inner: -len(inner.variables)):
        owners.update({id(variable): type(inner) for variable in inner.variables})
    return [(variable, owners[id(variable)]) for variable in layer.variables]


def _relative(variable, layer):
    """The part of a variable's path inside of its layer, without the numbers that Keras counts up in a process."""
    inside = re.split(rf"(?:^|/){re.escape(layer.name)}/", variable.path, maxsplit=1)[-1]
    return re.sub(r"_\d+(?=/|$)", "", inside)
