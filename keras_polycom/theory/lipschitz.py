"""The shallow universal approximator of a Lipschitz function [PLN, theorem 4.2]."""

import math

import numpy as np

from keras_polycom.ops._numerics import check_count
from keras_polycom.theory.networks import Affine, Normalization, build_network


def lipschitz_network(function, lipschitz, error, norm_size=2, dtype=None):
    """A shallow PLN-Net that approximates a Lipschitz function on [0, 1] uniformly.

    Statement (theorem 4.2): if |f(x) - f(y)| <= L |x - y| on [0, 1], then for every error > 0 and n >= 2 a PLN[n]-Net
    with one hidden layer of

    ```
    N = floor(L / (2 error)) + 1
    ```

    groups stays within `error` of f everywhere on [0, 1].

    Construction: the network is a staircase, equal to f((2j - 1) / (2N)), the value at the midpoint, on
    ((j - 1) / N, j / N]. Each group computes one step, the sign of x - j / N for j = 1 ... N - 1 (`sign_network`),
    whose height is the difference of two neighbouring values; the group left over is the step at -1 / N, on all along.
    No point of an interval is further than 1 / (2N) from its middle, and L / (2N) < error; at a step, where the sign is
    0, the network has the mean of the two values, which is as near.

    Args:
        function: callable on a float, `f`.
        lipschitz: float, at least 0, `L`.
        error: float, above 0.
        norm_size: integer, n, at least 2. Defaults to `2`.
        dtype: dtype or dtype policy of the layers; the bound is that of exact arithmetic, to which rounding adds about
            N units in the last place. Defaults to the global policy.

    Returns:
        `keras.Sequential` from (batch, 1) to (batch, 1).

    Raises:
        ValueError: an argument out of range.

    Example:

    >>> import keras
    >>> from keras_polycom import theory
    >>> model = theory.lipschitz_network(lambda x: x * x, lipschitz=2.0, error=0.1)
    >>> model.layers[0].units // 2
    11
    >>> abs(float(keras.ops.convert_to_numpy(model(keras.ops.array([[0.3]])))[0, 0]) - 0.09) < 0.1
    True
    """
    if not 0 <= lipschitz < math.inf or not 0 < error < math.inf:
        raise ValueError(
            "`lipschitz` must be a finite number of at least 0 and `error` one above 0. Received: "
            f"lipschitz={lipschitz!r}, error={error!r}"
        )
    check_count(norm_size, "norm_size", at_least=2)
    groups = count_groups(lipschitz, error)
    values = np.array([function((2 * j - 1) / (2 * groups)) for j in range(1, groups + 1)], dtype="float64")
    steps = np.array([-1.0, *range(1, groups)]) / groups
    heights = np.diff(values, prepend=0.0)

    # Group j holds the step (1 + sign(x - steps[j])) / 2 times its height.
    direction = np.zeros(norm_size)
    direction[:2] = 1.0, -1.0
    read_out = direction / 2 * np.sqrt(2 / norm_size)
    into = Affine(np.tile(direction, groups)[None, :], -np.kron(steps, direction))
    out = Affine(np.kron(heights / 2, read_out)[:, None], np.array([np.sum(heights) / 2]))
    return build_network([into, out], [Normalization(norm_size)], dtype)


def count_groups(lipschitz, error):
    """`floor(lipschitz / (2 error)) + 1`, the least N with `lipschitz / (2 N) < error` also where division rounds."""
    groups = math.floor(lipschitz / (2 * error)) + 1
    return groups if lipschitz < 2 * groups * error else groups + 1
