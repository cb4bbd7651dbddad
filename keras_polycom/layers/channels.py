"""Putting a layer on the channels of its place, whichever axis these are."""


def on_axis(layer, axis, **arguments):
    """The same layer with its default axis, the last, moved to `axis`, and with those `arguments` that it has.

    Args:
        layer: layer that is not used yet. One that has no axis, or was given another axis by the user, keeps it.
        axis: integer.
        **arguments: values of constructor arguments.

    Returns:
        `layer` itself if it is right already, else a new layer of its class with its weights.
    """
    config = layer.get_config()
    if config.get("axis") == -1:
        arguments["axis"] = axis
    changes = {name: value for name, value in arguments.items() if name in config and config[name] != value}
    if not changes:
        return layer
    changed = type(layer).from_config({**config, **changes})
    if layer.weights:
        changed.set_weights(layer.get_weights())
    return changed
