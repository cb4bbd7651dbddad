"""From what a user writes (a name, a class, a config, a maker, an instance) to a fresh object, and to JSON."""

import inspect

import keras


class Registry:
    """Names of one kind of building block, and the single function that makes one.

    Args:
        kind: string. What the names stand for, used in error messages: `"activation"`.
        fallback: callable or `None`. Given a name that is not registered here, returns the object it stands for,
            or raises `ValueError`. Its own names are listed by `fallback_names`.
        fallback_names: sequence of strings. The names `fallback` knows, for error messages.
        functions: bool. Whether a callable that takes the tensor itself (`keras.ops.relu`) is a legal identifier.
    """

    def __init__(self, kind, fallback=None, fallback_names=(), functions=False):
        self.kind = kind
        self._makers = {}
        self._fallback = fallback
        self._fallback_names = tuple(fallback_names)
        self._functions = functions

    def register(self, *names):
        """Decorator: the class or function below answers to `names`."""

        def decorate(maker):
            for name in names:
                if name in self._makers:
                    raise ValueError(f"The {self.kind} name {name!r} is registered already.")
                self._makers[name] = maker
            return maker

        return decorate

    def names(self):
        """All names known, ours first."""
        ours = sorted(self._makers)
        return ours + sorted(set(self._fallback_names) - set(ours))

    def get(self, identifier, **arguments):
        """Makes a fresh object from `identifier`.

        Args:
            identifier: a registered name; a `Layer` class; a config made by `serialize`; a maker, i.e. a callable
                without required arguments other than those in `arguments`; a `Layer` instance, which is cloned with
                its current weights, never shared; for activations also a function of the tensor, returned as it is.
            **arguments: passed to what makes the object, as far as its signature has them (`name`, `dtype`, ...).

        Returns:
            A layer, or for activations possibly a function. Two calls never return the same layer.

        Raises:
            ValueError: unknown name.
            TypeError: not something an object can be made from.
        """
        if isinstance(identifier, str):
            return self._from_name(identifier, arguments)
        if isinstance(identifier, dict):
            return self._from_config(identifier, arguments)
        if isinstance(identifier, keras.layers.Layer):
            return self._clone(identifier, arguments)
        if inspect.isclass(identifier):
            if not issubclass(identifier, keras.layers.Layer):
                raise TypeError(self._refusal(identifier, "a class that is not a keras.layers.Layer"))
            return identifier(**_accepted(identifier, arguments))
        if callable(identifier):
            if self._functions and _required(identifier) - set(arguments):
                return identifier
            made = identifier(**_accepted(identifier, arguments))
            if not callable(made):
                raise TypeError(self._refusal(identifier, f"a maker that returned {made!r}"))
            if isinstance(made, keras.layers.Layer) and made.name != arguments.get("name", made.name):
                return self._clone(made, arguments)  # a maker that takes no name
            return made
        raise TypeError(self._refusal(identifier, f"a {type(identifier).__name__}"))

    def get_layer(self, identifier, **arguments):
        """As `get`, but a plain function comes wrapped in `keras.layers.Activation`."""
        made = self.get(identifier, **arguments)
        if isinstance(made, keras.layers.Layer):
            return made
        return keras.layers.Activation(made, **_accepted(keras.layers.Activation, arguments))

    def serialize(self, identifier, **arguments):
        """Turns any identifier into JSON: a name stays a name, all else becomes a Keras config.

        Args:
            identifier: as in `get`. A class or maker is called once, and the config of what it made is kept.
            **arguments: as in `get`, for classes and makers.
        """
        if identifier is None or isinstance(identifier, (str, dict)):
            return identifier
        if not isinstance(identifier, keras.layers.Layer):
            for name in self.names():
                if identifier in (self._makers.get(name), self._fallback_function(name)):
                    return name
            identifier = self.get(identifier, **arguments)
        return keras.saving.serialize_keras_object(identifier)

    def _from_name(self, name, arguments):
        if name in self._makers:
            maker = self._makers[name]
            if self._functions and not inspect.isclass(maker) and _required(maker) - set(arguments):
                return maker
            return maker(**_accepted(maker, arguments))
        if name in self._fallback_names:
            return self._fallback(name)
        raise ValueError(
            f"Unknown {self.kind} {name!r}. Known names: {', '.join(self.names())}. A Layer class, a config, "
            "a maker or an instance will do as well."
        )

    def _fallback_function(self, name):
        return self._fallback(name) if name in self._fallback_names else None

    def _from_config(self, config, arguments):
        if "config" in config and isinstance(config["config"], dict) and "name" in arguments:
            config = {**config, "config": {**config["config"], "name": arguments["name"]}}
        made = keras.saving.deserialize_keras_object(config)
        if not callable(made):
            raise TypeError(self._refusal(config, "a config that is not one of a layer"))
        return made

    def _clone(self, layer, arguments):
        config = layer.get_config()
        if "name" in arguments:
            config["name"] = arguments["name"]
        clone = type(layer).from_config(config)
        weights = layer.get_weights()
        if weights and layer.built and not clone.built:
            clone.build_from_config(layer.get_build_config())
        if weights and len(clone.weights) == len(weights):
            clone.set_weights(weights)
        return clone

    def _refusal(self, identifier, what):
        return (
            f"An {self.kind} is given as a name, a keras.layers.Layer class, a config, a maker without arguments or a "
            f"layer instance. Received: {identifier!r}, {what}. Known names: {', '.join(self.names())}."
        )


def _parameters(function):
    try:
        return inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin without a signature takes the tensor
        return [inspect.Parameter("x", inspect.Parameter.POSITIONAL_ONLY)]


def _required(function):
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {p.name for p in _parameters(function) if p.default is p.empty and p.kind not in kinds}


def _accepted(function, arguments):
    parameters = list(_parameters(function))
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return arguments
    names = {p.name for p in parameters}
    return {name: value for name, value in arguments.items() if name in names}
