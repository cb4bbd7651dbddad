"""Replacements that were given as instances keep the weights of these, wherever a config made them anew."""

# What a place decides, not the instance.
_OF_THE_PLACE = ("name", "dtype", "trainable")


def give_weights(layers, instances):
    """Gives the layers that were made again from the config of an instance its weights.

    Args:
        layers: list of layers, of which those with a trained past get that back afterwards.
        instances: list of the layers the surgeon made of instances, each with its weights.
    """
    by_name = {layer.name: layer for layer in instances}
    for layer in layers:
        alike = [by_name.get(layer.name), *instances]
        source = next((made for made in alike if made is not None and _is_alike(made, layer)), layer)
        if source is not layer:
            layer.set_weights(source.get_weights())


def _is_alike(made, layer):
    if type(made) is not type(layer) or len(made.weights) != len(layer.weights):
        return False
    return _settings(made) == _settings(layer)


def _settings(layer):
    return {key: value for key, value in layer.get_config().items() if key not in _OF_THE_PLACE}
