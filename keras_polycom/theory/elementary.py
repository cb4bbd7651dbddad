"""Two scalar functions that a single layer normalization computes exactly [PLN, lemmas 4.1 and 4.2, appendix A.8]."""

import numpy as np

from keras_polycom.ops._numerics import check_count, check_epsilon
from keras_polycom.theory.networks import Affine, Normalization, block_diagonal, build_network


def sign_network(units=1, norm_size=2, dtype=None):
    """The sign function as a PLN-Net with one group per unit.

    Statement (lemma 4.1): for every n >= 2 and epsilon = 0 there are a vector u and a read-out r with

    ```
    r . LN[n](x u) = sign(x)    for all real x,    sign(0) = 0
    ```

    Construction: u = (1, -1, 1, -1, ...), with a 0 at the end for odd n; the read-out takes half the difference of the
    first two, times the root mean square of u. Both maps have no bias. For even n every step is exact in floating
    point.

    Args:
        units: integer, at least 1. The function is applied to each of so many inputs. Defaults to `1`.
        norm_size: integer, n, at least 2. Defaults to `2`.
        dtype: dtype or dtype policy of the layers. Defaults to the global policy.

    Returns:
        `keras.Sequential` from (batch, units) to (batch, units).

    Example:

    >>> import keras
    >>> from keras_polycom import theory
    >>> model = theory.sign_network()
    >>> [float(v) for v in keras.ops.convert_to_numpy(model(keras.ops.array([[-2.5], [0.0], [1e-3]])))[:, 0]]
    [-1.0, 0.0, 1.0]
    """
    check_count(units, "units")
    check_count(norm_size, "norm_size", at_least=2)
    u = np.zeros(norm_size)
    u[: norm_size // 2 * 2] = np.tile([1.0, -1.0], norm_size // 2)
    read_out = np.zeros(norm_size)
    read_out[:2] = np.array([0.5, -0.5]) * np.sqrt(np.mean(u**2))
    return _elementwise(u, np.zeros(norm_size), read_out, units, epsilon=0.0, dtype=dtype)


def phi_network(units=1, norm_size=3, epsilon=0.0, dtype=None):
    """The function phi(x) = x / sqrt(1 + x^2) as a PLN-Net with one group per unit.

    Statement (lemma 4.2 and appendix A.8): for every n >= 3 and epsilon >= 0 there are vectors a, c and a number A with

    ```
    (a / n) . LN[n](A x a + c) = phi(x)    for all real x
    ```

    Construction: a and c have mean zero, are orthogonal, and |a|^2 = |c|^2 = n; A = sqrt(1 + epsilon). The variance of
    A x a + c is then A^2 x^2 + 1, and A^2 x^2 + 1 + epsilon = A^2 (x^2 + 1). The read-out has no bias.

    Args:
        units: integer, at least 1. The function is applied to each of so many inputs. Defaults to `1`.
        norm_size: integer, n, at least 3. Defaults to `3`.
        epsilon: float, that of the normalization, at least 0. Defaults to `0.0`.
        dtype: dtype or dtype policy of the layers. Defaults to the global policy.

    Returns:
        `keras.Sequential` from (batch, units) to (batch, units).

    Example:

    >>> import keras
    >>> from keras_polycom import theory
    >>> model = theory.phi_network(norm_size=4, epsilon=0.5)
    >>> [round(float(v), 4) for v in keras.ops.convert_to_numpy(model(keras.ops.array([[-1.0], [0.75]])))[:, 0]]
    [-0.7071, 0.6]
    """
    check_count(units, "units")
    check_count(norm_size, "norm_size", at_least=3)
    a, c = np.zeros(norm_size), np.zeros(norm_size)
    a[:2] = np.array([1.0, -1.0]) * np.sqrt(norm_size / 2)
    c[:3] = np.array([1.0, 1.0, -2.0]) * np.sqrt(norm_size / 6)
    slope = np.sqrt(1 + check_epsilon(epsilon))
    return _elementwise(slope * a, c, a / norm_size, units, epsilon=epsilon, dtype=dtype)


def _elementwise(direction, offset, read_out, units, epsilon, dtype):
    """x -> read_out . LN(x direction + offset) on each of `units` inputs."""
    into = Affine(block_diagonal(direction[None, :], units), np.tile(offset, units))
    out = Affine(block_diagonal(read_out[:, None], units), np.zeros(units))
    return build_network([into, out], [Normalization(len(direction), epsilon=epsilon)], dtype)
