"""A new model of the architecture of another, operated on layer by layer."""

import dataclasses
import itertools

import keras

from keras_polycom.surgery.carry import carry_over
from keras_polycom.surgery.place import Place
from keras_polycom.surgery.report import REPLACED, Report
from keras_polycom.surgery.surgeon import Surgeon, remade
from keras_polycom.surgery.walk import is_nested, with_paths


def examine(model, surgeon):
    """Lets a surgeon without replacements see all of a model."""
    place = Place()
    for operation, path in with_paths(model):
        surgeon.operate(operation, path, place)
        place.see(operation)


def rebuild(model, surgeon):
    """Returns the operated copy of a functional or sequential model, with the weights of the original.

    Raises:
        ValueError: the model's layers cannot be listed, or one of them is not rebuilt by its config.
    """
    if not is_nested(model):
        raise ValueError(
            "Only functional and sequential models can be rebuilt with other layers. Received: "
            f"{type(model).__name__}, whose layers are called in its own code. Use replace_activations_in_place."
        )
    if type(model).compute_loss is not keras.Model.compute_loss or type(model).train_step is not keras.Model.train_step:
        raise ValueError(
            f"{type(model).__name__} trains by code of its own, which a copy made layer by layer would lose: give its "
            "constructor other arguments, or use replace_activations_in_place."
        )
    cloning = _Cloning(model, surgeon)
    if isinstance(model, keras.Sequential):
        new = keras.models.clone_model(model, clone_function=cloning.clone, recursive=True)
    else:
        new = keras.models.clone_model(model, clone_function=cloning.clone, call_function=cloning.call, recursive=True)
    carry_over(model, new, surgeon)
    if model.compiled:
        new.compile_from_config(model.get_compile_config())  # again: the optimizer was built before flags were set
    return new


class _Cloning:
    def __init__(self, model, surgeon):
        self.surgeon = surgeon
        self.paths = {id(operation): path for operation, path in with_paths(model)}
        self.place = Place()
        self.called = set()
        self.names = {path.rpartition("/")[2] for path in self.paths.values()}

    def clone(self, operation):
        path = self.paths.get(id(operation), operation.name)
        new = self.surgeon.operate(operation, path, self.place)
        if new is None:
            new = _copied(operation, path)
        self.place.see(operation)
        return new

    def call(self, operation, *args, **kwargs):
        """Calls a layer of the new model; a replacement gets the tensor only, and is fresh in every place."""
        if not self.surgeon.has_made(operation):
            return operation(*args, **kwargs)
        if id(operation) in self.called:
            operation = type(operation).from_config({**operation.get_config(), "name": self._free_name(operation.name)})
        self.called.add(id(operation))
        return operation(args[0] if args else next(iter(kwargs.values())))

    def _free_name(self, name):
        free = next(f"{name}_{count}" for count in itertools.count(2) if f"{name}_{count}" not in self.names)
        self.names.add(free)
        return free


def _copied(operation, path):
    """A fresh layer of the same config; what has no weights and no config that is safe to load serves two models."""
    if isinstance(operation, keras.layers.Lambda):
        return operation
    try:
        config = operation.get_config()
    except NotImplementedError:
        if isinstance(operation, keras.layers.Layer):
            raise
        return operation
    return remade(operation, config, path)


def rebuild_from_arguments(model, surgeon):
    """Returns one of our own models of the same class, with other constructor arguments.

    Returns:
        The model, or `None` where its arguments do not reach all that is to be replaced, and the `Report`.
    """
    arguments = model.get_config()
    data_format = arguments.pop("data_format")  # of the images; where the channels are inside, the model knows
    edited = surgeon.edited(arguments, model.name, model)
    if edited is arguments:
        return None, None
    new = type(model).from_config({**edited, "data_format": data_format})
    before, after = (_seen(m, surgeon.kind) for m in (model, new))
    if len(before) != len(after) or any(site.found in surgeon.replacements for site in after):
        return None, None
    carry_over(model, new, surgeon)
    if model.compiled:
        new.compile_from_config(model.get_compile_config())
    return new, Report(map(_compared, before, after))


def _seen(model, kind):
    surgeon = Surgeon(kind, {}, lambda layer: True)
    examine(model, surgeon)
    return surgeon.report


def _compared(before, after):
    if before.found == after.found:
        return before
    return dataclasses.replace(before, outcome=REPLACED, detail=after.found)
