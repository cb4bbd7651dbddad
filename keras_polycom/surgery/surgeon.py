"""Replaces what is found in one layer or operation, by way of its config, and keeps the report."""

import keras

from keras_polycom.layers.nested import nested_layers
from keras_polycom.surgery.kinds import config_of, dtype_of
from keras_polycom.surgery.report import CANNOT, KEPT, REPLACED, Report, Site


class Surgeon:
    """Goes through the layers and operations of a model, one after the other.

    Args:
        kind: `kinds.Activations` or `kinds.Normalizations`.
        replacements: dict from the names of what is to be replaced to what a registry makes a layer from.
        selected: function from layer to bool.

    Attributes:
        report: `Report` of all that was seen so far.
        made: list of the layers made as replacements. Those in configs are made again from there.
        instances: list of those that were made of an instance, with its weights.
    """

    def __init__(self, kind, replacements, selected):
        self.kind = kind
        self.replacements = {kind.key(key): value for key, value in replacements.items()}
        self.selected = selected
        self.sites = []
        self.made = []
        self.instances = []

    @property
    def report(self):
        return Report(self.sites)

    def has_made(self, operation):
        """Whether this very layer is a replacement."""
        return any(operation is layer for layer in self.made)

    def operate(self, operation, path, place):
        """Returns what takes the place of a layer or operation, or `None` if it stays as it is.

        Args:
            operation: layer or operation of a functional model, not a model itself.
            path: string, for the report.
            place: `place.Place`, where in the model it is.
        """
        if isinstance(operation, keras.layers.Lambda):
            self.sites.append(
                Site(path, "unknown", CANNOT if self.replacements else KEPT, "a function of the user's own")
            )
            return None
        class_name, config = type(operation).__name__, config_of(operation)
        name = self.kind.name_of(class_name, config)
        if name is not None:
            axis = place.channel_axis(operation)
            return self._made(name, path, operation, config, axis, operation.name)
        start = len(self.sites)
        edited = self.edited(config, path, operation)
        operated = None if edited is config else remade(operation, edited, path)
        if isinstance(operation, keras.layers.Layer):
            self._report_hidden(operated or operation, path, self.sites[start:])
        return operated

    def _made(self, found, path, operation, config, axis, name):
        """The replacement, called `name`, of what was found in `operation`, or `None` if that is to stay."""
        identifier = self.replacements.get(found)
        if identifier is None or not self.selected(operation):
            self.sites.append(Site(path, found, KEPT))
            return None
        try:
            layer = self.kind.make(identifier, config, axis, name=name, dtype=dtype_of(operation))
        except ValueError as error:
            raise ValueError(f"{found} at {path} cannot be replaced by {identifier!r}: {error}") from error
        self.sites.append(Site(path, found, REPLACED, _described(layer)))
        self.keep(layer, identifier)
        return layer

    def keep(self, layer, identifier):
        """Takes down a layer that was made as a replacement, and of what."""
        self.made.append(layer)
        if isinstance(identifier, keras.layers.Layer) and layer.weights:
            self.instances.append(layer)

    def edited(self, config, path, operation):
        """The config with replacements in its arguments and in the layers it holds; itself if there are none."""
        changes = {}
        for key, value in config.items():
            if self.kind.is_argument(key):
                new = self._edited_argument(key, value, config, path, operation)
            else:
                new = self._edited_value(value, path, operation)
            if new is not value:
                changes[key] = new
        return {**config, **changes} if changes else config

    def _edited_argument(self, key, value, config, path, operation):
        name = self.kind.name_of_argument(value)
        if name is None:
            return value
        axis = 1 if config.get("data_format") == "channels_first" else -1
        made_name = f"{config.get('name', operation.name)}_{key}"
        layer = self._made(name, f"{path}.{key}", operation, config, axis, made_name)
        return value if layer is None else _serialized(layer)

    def _edited_value(self, value, path, operation):
        if isinstance(value, (list, tuple)):
            edited = [self._edited_value(one, path, operation) for one in value]
            changed = any(new is not old for new, old in zip(edited, value, strict=True))
            return type(value)(edited) if changed else value
        if not isinstance(value, dict) or not isinstance(value.get("config"), dict):
            return value
        class_name, config = value.get("class_name", ""), value["config"]
        inner_path = f"{path}/{config['name']}" if "name" in config else path
        name = self.kind.name_of(class_name, config)
        if name is not None:
            layer = self._made(name, inner_path, operation, config, -1, config.get("name"))
            return value if layer is None else _serialized(layer)
        edited = self.edited(config, inner_path, operation)
        return value if edited is config else {**value, "config": edited}

    def _report_hidden(self, layer, path, sites):
        """Reports what a layer makes in its own code: no config leads there."""
        known = {site.found for site in sites if site.outcome != REPLACED} | {self._name_in(made) for made in self.made}
        for sub in nested_layers(layer):
            name = self._name_in(sub)
            if name is None or name in known:
                continue
            wanted = name in self.replacements and self.selected(layer)
            detail = (
                f"made inside of {type(layer).__name__}; replace_activations_in_place may reach it" if wanted else ""
            )
            self.sites.append(Site(f"{path}/{sub.name}", name, CANNOT if wanted else KEPT, detail))

    def _name_in(self, layer):
        config = config_of(layer)
        name = self.kind.name_of(type(layer).__name__, config)
        if name is None and self.kind.is_argument("activation"):
            name = self.kind.name_of_argument(config.get("activation"))
        return name


def remade(operation, config, path):
    """A layer or operation of the same class from a config.

    Raises:
        ValueError: its constructor refuses the config.
    """
    try:
        return type(operation).from_config(config)
    except TypeError as error:
        raise ValueError(
            f"{path} ({type(operation).__name__}) is not rebuilt by its own config ({error}): use "
            "replace_activations_in_place."
        ) from error


def _described(layer):
    if isinstance(layer, keras.layers.Activation):
        return getattr(layer.activation, "__name__", type(layer.activation).__name__)
    return type(layer).__name__


def _serialized(layer):
    config = keras.saving.serialize_keras_object(layer)
    return {key: value for key, value in config.items() if key != "build_config"}
