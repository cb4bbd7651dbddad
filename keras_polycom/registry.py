"""From what a user writes (a name, a class, a config, a maker, an instance) to a fresh object, and to JSON."""

import inspect
import re

import keras

_BRACKETED = re.compile(r"(\w+)\[(\d+(?:,\s*\d+)*)\]")


class Registry:
    """Names of one kind of building block, and the single function that makes one.

    A name may carry numbers in brackets, as the papers write it: `"pln[4]"` makes what `"pln"` makes, with the argument
    `norm_size=4`. Which arguments the numbers are for is said where the name is registered.

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
        self._brackets = {}
        self._fallback = fallback
        self._fallback_names = tuple(fallback_names)
        self._functions = functions

    def register(self, *names, bracket=()):
        """Decorator: the class or function below answers to `names`.

        Args:
            *names: strings.
            bracket: string or sequence of strings. The arguments of the class or function that integers in brackets
                behind the name stand for: `bracket="norm_size"` for `"pln[4]"`, `bracket=("token_groups",
                "channel_groups")` for `"mix_norm[2,8]"`. Without brackets they keep their defaults. Defaults to none.
        """
        bracket = (bracket,) if isinstance(bracket, str) else tuple(bracket)

        def decorate(maker):
            for name in names:
                if name in self._makers:
                    raise ValueError(f"The {self.kind} name {name!r} is registered already.")
                self._makers[name] = maker
                self._brackets[name] = bracket
            return maker

        return decorate

    def names(self):
        """All names known, ours first."""
        ours = sorted(self._makers)
        return ours + sorted(set(self._fallback_names) - set(ours))

    def get(self, identifier, **arguments):
        """Makes a fresh object from `identifier`.

        Args:
            identifier: a registered name, possibly with numbers (`"pln[4]"`); a `Layer` class; a config made by
                `serialize`; a maker, i.e. a callable without required arguments other than those in `arguments`; a
                `Layer` instance, which is cloned with its current weights and its own dtype policy, never shared; for
                activations also a function of the tensor, returned as it is.
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

        Raises:
            ValueError: a function that would be another one after loading: Keras keeps of `keras.ops.gelu` the name
                only, which then stands for `keras.activations.gelu`.
        """
        if identifier is None or isinstance(identifier, (str, dict)):
            return identifier
        if not isinstance(identifier, keras.layers.Layer):
            for name in self.names():
                if identifier is self._named(name):
                    return name
            identifier = self.get(identifier, **arguments)
        config = keras.saving.serialize_keras_object(identifier)
        if not isinstance(identifier, keras.layers.Layer):
            _refuse_another_function(identifier, config)
        # Keras adds the shapes a layer was built with, but what holds the layer builds it again anyway.
        return {key: value for key, value in config.items() if key != "build_config"}

    def _from_name(self, name, arguments):
        full_name, (name, in_brackets) = name, self._without_brackets(name)
        arguments = {**arguments, **in_brackets}
        if name in self._makers:
            maker = self._makers[name]
            if self._functions and not inspect.isclass(maker) and _required(maker) - set(arguments):
                return maker
            return maker(**_accepted(maker, arguments))
        if name in self._fallback_names:
            return self._fallback(name)
        raise ValueError(
            f"Unknown {self.kind} {full_name!r}. Known names: {', '.join(self._described_names())}. A Layer class, a "
            "config, a maker or an instance will do as well."
        )

    def _without_brackets(self, name):
        """`"pln[4]"` as `"pln"` and `{"norm_size": 4}`; any other name, known or not, as it is."""
        match = _BRACKETED.fullmatch(name)
        if match is None:
            return name, {}
        base, numbers = match[1], [int(number) for number in match[2].split(",")]
        meanings = self._brackets.get(base, ())
        return (base, dict(zip(meanings, numbers, strict=True))) if len(numbers) == len(meanings) else (name, {})

    def _described_names(self):
        """All names known, with the arguments that may stand in brackets."""
        meanings = {name: ",".join(self._brackets.get(name, ())) for name in self.names()}
        return [f"{name} or {name}[{meaning}]" if meaning else name for name, meaning in meanings.items()]

    def _named(self, name):
        """What `name` stands for: the class, function or maker itself."""
        return self._makers[name] if name in self._makers else self._fallback(name)

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
            f"layer instance. Received: {identifier!r}, {what}. Known names: {', '.join(self._described_names())}."
        )


def _refuse_another_function(function, config):
    try:
        loaded = keras.saving.deserialize_keras_object(config)
    except (TypeError, ValueError):  # needs custom_objects or safe_mode=False; loading will say so
        return
    x = keras.ops.linspace(-3.0, 3.0, 12)
    if loaded is not function and keras.ops.any(keras.ops.abs(loaded(x) - function(x)) > 1e-6):
        raise ValueError(
            f"{function!r} cannot be written to a config: what is loaded as {config.get('config')!r} computes other "
            "numbers. Give an activation name, or decorate a function of your own with "
            "@keras.saving.register_keras_serializable()."
        )


def _parameters(function):
    try:
        return inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin without a signature takes the tensor
        return [inspect.Parameter("x", inspect.Parameter.POSITIONAL_ONLY)]


def _required(function):
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {p.name for p in _parameters(function) if p.default is p.empty and p.kind not in kinds}


def _accepted(maker, arguments):
    if inspect.isclass(maker):
        parameters = list(_constructor_parameters(maker))
    else:
        parameters = list(_parameters(maker))
        if any(p.kind is p.VAR_KEYWORD for p in parameters):
            return arguments
    names = {p.name for p in parameters}
    return {name: value for name, value in arguments.items() if name in names}


def _constructor_parameters(cls):
    """Those of `__init__` and, as far as `**kwargs` are handed on, of the base classes' `__init__`."""
    for base in cls.__mro__:
        if "__init__" in vars(base):
            parameters = list(_parameters(vars(base)["__init__"]))
            yield from parameters
            if not any(p.kind is p.VAR_KEYWORD for p in parameters):
                return
