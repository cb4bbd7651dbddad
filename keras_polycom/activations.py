"""Activations by name: ours first, then Keras's.

`get` is what every model and block of this package uses on its `activation=` argument.
"""

import keras

from keras_polycom import ops
from keras_polycom.registry import Registry

# Not every public function of keras.activations takes one tensor: the names are listed, not collected.
_KERAS_NAMES = """
celu elu exponential gelu glu hard_shrink hard_sigmoid hard_silu hard_tanh leaky_relu linear log_sigmoid log_softmax
mish relu relu6 selu sigmoid silu soft_shrink softmax softplus softsign sparse_plus sparse_sigmoid sparsemax squareplus
swish tanh tanh_shrink threshold
"""

registry = Registry(
    "activation",
    fallback=keras.activations.get,
    fallback_names=[name for name in _KERAS_NAMES.split() if hasattr(keras.activations, name)],
    functions=True,
)

for _name, _function in ops.ACTIVATION_FUNCTIONS.items():
    registry.register(_name)(_function)

register = registry.register
names = registry.names
get = registry.get
get_layer = registry.get_layer
serialize = registry.serialize
