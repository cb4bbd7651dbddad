"""Initializers, or the values themselves, as arguments of layers."""

from collections.abc import Sequence

import keras
import numpy as np


def get_initializer(identifier, argument, *shapes):
    """Returns a Keras initializer that can be saved.

    Args:
        identifier: anything `keras.initializers.get` takes, or the values as a sequence, an array or a tensor.
        argument: string. The name of the argument, for error messages.
        *shapes: tuples of integers. The shapes that values may have; none where they are known only later.

    Raises:
        ValueError: the values are not finite numbers, or have another shape.
    """
    if not _holds_values(identifier):
        return keras.initializers.get(identifier)
    if not isinstance(identifier, (Sequence, np.ndarray)):
        identifier = keras.ops.convert_to_numpy(identifier)
    try:
        values = np.array(identifier, "float64")
    except (TypeError, ValueError) as error:
        raise ValueError(f"`{argument}` given as values must hold numbers. Received: {identifier!r}") from error
    if not np.isfinite(values).all() or (shapes and values.shape not in shapes):
        shape = f" of the shape {' or '.join(map(str, dict.fromkeys(shapes)))}" if shapes else ""
        raise ValueError(
            f"`{argument}` given as values must hold finite numbers{shape}. Received: {values.tolist()}, of the shape "
            f"{values.shape}"
        )
    return keras.initializers.Constant(values.tolist())


def _holds_values(identifier):
    if isinstance(identifier, (Sequence, np.ndarray)):
        return not isinstance(identifier, str)
    return keras.ops.is_tensor(identifier) or isinstance(identifier, keras.Variable)
