"""The initial weights of the networks whose nonlinearity is a normalization: small kernels, and biases that are not 0.

Biases matter here. Without them a layer normalization right behind a linear map of one number x gives only the sign of
x, and a rectifier can only bend at the origin.
"""

import keras


def uniform(inputs):
    """Initializers of kernel and bias, both uniform between plus and minus 1 / sqrt(inputs), PyTorch's default.

    Args:
        inputs: integer, what one output adds up: the width of the layer before, times the size of a convolution.

    Returns:
        Dict of arguments of `keras.layers.Dense` and convolutions.
    """
    limit = inputs**-0.5
    return {
        "kernel_initializer": keras.initializers.RandomUniform(-limit, limit),
        "bias_initializer": keras.initializers.RandomUniform(-limit, limit),
    }
