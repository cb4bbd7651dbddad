"""The activation functions of the papers that Keras lacks or defines otherwise, and their short names."""

import math

import keras


def relu2(x):
    """Squared rectifier, `relu(x)^2`."""
    return keras.ops.square(keras.ops.relu(x))


def leaky_relu(x):
    """`x` where positive, else `0.01 x`: the slope of the papers and of PyTorch (Keras's own is 0.2)."""
    if _is_float64(x):  # TensorFlow rounds the slope to float32
        return keras.ops.where(x > 0, x, 0.01 * x)
    return keras.ops.leaky_relu(x, negative_slope=0.01)


def gelu(x):
    """Gaussian error linear unit, `x Phi(x)` with the exact error function, not its tanh approximation."""
    if _is_float64(x):  # TensorFlow rounds the root of 2 to float32
        return 0.5 * x * (1 + keras.ops.erf(math.sqrt(0.5) * x))
    return keras.ops.gelu(x, approximate=False)


def tanh(x):
    """Hyperbolic tangent."""
    if _is_float64(x):  # Keras computes it in float32 on JAX
        return 2 * keras.ops.sigmoid(2 * x) - 1
    return keras.ops.tanh(x)


def identity(x):
    """Returns `x`."""
    return x


def _is_float64(x):
    return keras.backend.standardize_dtype(getattr(x, "dtype", "float32")) == "float64"  # a list is converted later


# [MoA]'s names, also those under which the functions answer in `keras_polycom.activations`.
ACTIVATION_FUNCTIONS = {
    "relu": keras.ops.relu,
    "relu2": relu2,
    "leaky_relu": leaky_relu,
    "gelu": gelu,
    "silu": keras.ops.silu,
    "tanh": tanh,
    "identity": identity,
}

# Not every public function of keras.activations takes one tensor: the names are listed, not collected.
_KERAS_NAMES = """
celu elu exponential gelu glu hard_shrink hard_sigmoid hard_silu hard_tanh leaky_relu linear log_sigmoid log_softmax
mish relu relu6 selu sigmoid silu soft_shrink softmax softplus softsign sparse_plus sparse_sigmoid sparsemax squareplus
swish tanh tanh_shrink
"""
KERAS_ACTIVATION_NAMES = tuple(name for name in _KERAS_NAMES.split() if hasattr(keras.activations, name))
