"""Which layers of a model surgery may touch."""

import fnmatch

import keras


def as_predicate(only):
    """Makes a function from layer to bool of what a user gives as `only`.

    Args:
        only: `None` for every layer; a layer name, in which `*` and `?` stand for any text; a layer class; a function
            of the layer; or a list of these, of which one must fit.
    """
    if only is None:
        return lambda layer: True
    if isinstance(only, str):
        return lambda layer: fnmatch.fnmatchcase(layer.name, only)
    if isinstance(only, type):
        return lambda layer: isinstance(layer, only)
    if isinstance(only, (list, tuple, set, frozenset)):
        predicates = [as_predicate(one) for one in only]
        return lambda layer: any(predicate(layer) for predicate in predicates)
    if callable(only) and not isinstance(only, keras.layers.Layer):
        return lambda layer: bool(only(layer))
    raise TypeError(
        "`only` must be a layer name (with * and ? for any text), a layer class, a function of the layer, or a list of "
        f"these. Received: {only!r}"
    )
