"""The dictionary of a mixture: a sequence of activations, given by name or as callables."""

from collections.abc import Sequence

import keras

from keras_polycom.ops.activation_functions import ACTIVATION_FUNCTIONS, KERAS_ACTIVATION_NAMES


def check_dictionary(activations, name="activations"):
    """Raises `ValueError` unless `activations` is a sequence of at least one entry, none of them `None`."""
    known = f"Known names: {', '.join(known_names())}; callables and layers will do as well."
    if isinstance(activations, str) or not isinstance(activations, Sequence):
        raise ValueError(f"`{name}` must be a list or tuple of activations. Received: {activations!r}. {known}")
    if not activations:
        raise ValueError(f"`{name}` must hold at least one activation. Received: {activations!r}. {known}")
    if any(activation is None for activation in activations):
        raise ValueError(
            f"`{name}` must not hold None: the function that changes nothing is called 'identity'. Received: "
            f"{activations!r}. {known}"
        )
    return activations


def known_names():
    """The names that stand for a function of one tensor, this package's first."""
    ours = list(ACTIVATION_FUNCTIONS)
    return ours + [name for name in KERAS_ACTIVATION_NAMES if name not in ACTIVATION_FUNCTIONS]


def resolve_dictionary(activations, name="activations"):
    """Returns `activations` as a tuple of callables.

    Raises:
        ValueError: no sequence, an empty one, or an entry that is neither a known name nor a callable.
    """
    return tuple(_resolve(activation, name) for activation in check_dictionary(activations, name))


def _resolve(activation, name):
    if callable(activation) and not isinstance(activation, type):
        return activation
    if isinstance(activation, str):
        if activation in ACTIVATION_FUNCTIONS:
            return ACTIVATION_FUNCTIONS[activation]
        if activation in KERAS_ACTIVATION_NAMES:
            return keras.activations.get(activation)
    raise ValueError(
        f"`{name}` holds {activation!r}, which is neither a callable nor a known name. Known names: "
        f"{', '.join(known_names())}"
    )


def evaluate(activations, x):
    """Returns the list of `s_k(x)`, each computed once, in the dtype of `x`.

    Raises:
        ValueError: an activation that changes the shape.
    """
    return [_evaluate(activation, x) for activation in activations]


def _evaluate(activation, x):
    value = activation(x)
    if not same_shape(tuple(x.shape), tuple(value.shape)):
        raise ValueError(
            f"An activation must keep the shape of its input. Received: {activation!r}, which makes "
            f"{tuple(value.shape)} of {tuple(x.shape)}"
        )
    return keras.ops.cast(value, x.dtype)


def same_shape(one, other):
    """Whether two static shapes agree; `None` agrees with any length."""
    return len(one) == len(other) and all(a == b or None in (a, b) for a, b in zip(one, other, strict=True))
