"""The layers and operations of models inside of models."""

import keras


def is_nested(operation):
    """Whether this is a model whose layers can be listed: a functional or sequential one."""
    return isinstance(operation, keras.Sequential) or (
        isinstance(operation, keras.Model) and hasattr(operation, "operations")
    )


def operations(model):
    return model.layers if isinstance(model, keras.Sequential) else model.operations


def with_paths(model, prefix=""):
    """Yields every layer and operation that is not a model, with its path, in the order in which they compute."""
    for operation in operations(model):
        path = f"{prefix}{operation.name}"
        if is_nested(operation):
            yield from with_paths(operation, f"{path}/")
        else:
            yield operation, path


def pairs(old, new):
    """Yields the layers of two models of one architecture side by side, found by name, a model before its layers."""
    yield old, new
    if is_nested(old):
        partners = {operation.name: operation for operation in operations(new)}
        for operation in operations(old):
            if isinstance(operation, keras.layers.Layer) and not isinstance(operation, keras.layers.InputLayer):
                yield from pairs(operation, partners[operation.name])
