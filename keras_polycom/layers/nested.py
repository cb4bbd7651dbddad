"""All layers inside a layer: the one place that asks Keras for them by a name that is not public."""


def nested_layers(layer):
    """The layers in a layer or model, at every depth, without itself.

    `model.layers` lists only the first depth, and a layer that is not a model has no public list at all.
    """
    return list(layer._flatten_layers(include_self=False))
