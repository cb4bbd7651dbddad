"""Activations by name: ours first, then Keras's.

`get` is what every model and block of this package uses on its `activation=` argument.
"""

import keras

from keras_polycom import ops
from keras_polycom.ops.activation_functions import KERAS_ACTIVATION_NAMES
from keras_polycom.registry import Registry

registry = Registry(
    "activation",
    fallback=keras.activations.get,
    fallback_names=KERAS_ACTIVATION_NAMES,
    functions=True,
)

for _name, _function in ops.ACTIVATION_FUNCTIONS.items():
    registry.register(_name)(_function)

register = registry.register
names = registry.names
get = registry.get
get_layer = registry.get_layer
serialize = registry.serialize
