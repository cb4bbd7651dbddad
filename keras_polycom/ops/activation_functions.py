"""The activation functions of the papers that Keras lacks or defines otherwise, and their short names."""

import keras


def relu2(x):
    """Squared rectifier, `relu(x)^2`."""
    return keras.ops.square(keras.ops.relu(x))


def leaky_relu(x):
    """`x` where positive, else `0.01 x`: the slope of the papers and of PyTorch (Keras's own is 0.2)."""
    return keras.ops.leaky_relu(x, negative_slope=0.01)


def gelu(x):
    """Gaussian error linear unit, `x Phi(x)` with the exact error function, not its tanh approximation."""
    return keras.ops.gelu(x, approximate=False)


def identity(x):
    """Returns `x`."""
    return x


# [MoA]'s names, also those under which the functions answer in `keras_polycom.activations`.
ACTIVATION_FUNCTIONS = {
    "relu": keras.ops.relu,
    "relu2": relu2,
    "leaky_relu": leaky_relu,
    "gelu": gelu,
    "silu": keras.ops.silu,
    "tanh": keras.ops.tanh,
    "identity": identity,
}
