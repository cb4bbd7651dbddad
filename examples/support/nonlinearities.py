"""The nonlinearities of multilayer perceptrons by name: all activations of the package, and two of the PLN paper."""

import keras

from keras_polycom import activations
from support.errors import UserError

EPSILON = 1e-5


def _layer_normalization(x, name):
    """Layer normalization over all channels, which is PLN with a single run."""
    return keras.layers.LayerNormalization(epsilon=EPSILON, name=name)(x)


def _sat(x, name):
    """x / sqrt(1 + x^2), the saturating function of lemma 4.2."""
    return x / keras.ops.sqrt(1 + keras.ops.square(x))


OWN = {"ln": _layer_normalization, "sat": _sat}


def apply(nonlinearity, x, name):
    """Puts a nonlinearity behind the symbolic tensor `x`; what it is made of is called `name`."""
    if nonlinearity in OWN:
        return OWN[nonlinearity](x, name)
    return activations.get_layer(nonlinearity, name=name)(x)


def check_name(nonlinearity):
    """Raises `UserError` for an unknown name of `--activation`."""
    if nonlinearity in OWN:
        return
    try:
        activations.get(nonlinearity)
    except ValueError as error:
        known = ", ".join([*OWN, "pln[N]", *activations.names()])
        raise UserError(f"--activation {nonlinearity} is not a known name: choose from {known}.") from error
