"""Other activations in the layers of a model themselves, where no copy of it can be made."""

import keras

from keras_polycom import activations
from keras_polycom.layers.channels import on_axis
from keras_polycom.layers.nested import nested_layers
from keras_polycom.surgery.instances import give_weights
from keras_polycom.surgery.kinds import Activations, config_of, dtype_of
from keras_polycom.surgery.replace import check_replacements, nothing_replaced
from keras_polycom.surgery.report import CANNOT, KEPT, REPLACED, Site
from keras_polycom.surgery.selection import as_predicate
from keras_polycom.surgery.surgeon import Surgeon


@keras.saving.register_keras_serializable(package="keras_polycom")
class SwappedModel(keras.Model):
    """A model together with the activations that were put into its layers; what it computes is what the model computes.

    Its `.keras` and `.weights.h5` files keep the swap, those of the model inside do not.

    Args:
        model: built model, whose own `get_config` makes it anew.
        swaps: list of dicts with `layer`, its position among all layers of the model; `class_name`, that layer's;
            `attribute`; and `activation`, a config. They are put in.
        **kwargs: `name` of `keras.Model`.

    Attributes:
        model: the model inside, with its methods.
        report: `surgery.Report` of the activations in it.

    Raises:
        ValueError: a swap does not fit the model.
    """

    def __init__(self, model, swaps, **kwargs):
        super().__init__(**kwargs)
        self.model = model
        self._swaps = [dict(swap) for swap in swaps]
        layers = _all_layers(model)
        for swap in self._swaps:
            _put_in(layers, swap)
        _forget_compiled(model)
        self.built = True

    def call(self, inputs, training=None):
        return self.model(inputs, training=training)

    def compute_output_spec(self, inputs, training=None):
        return self.model.compute_output_spec(inputs, training=training)

    def get_config(self):
        model = keras.saving.serialize_keras_object(self.model)
        return {
            "model": {key: value for key, value in model.items() if key != "compile_config"},
            "swaps": [dict(swap) for swap in self._swaps],
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config):
        return cls(keras.saving.deserialize_keras_object(config["model"]), config["swaps"], name=config["name"])


def replace_activations_in_place(model, replacements, *, only=None):
    """Puts other activations into the layers of `model` itself; for models of which no copy can be made.

    It reaches activations that a layer keeps in an attribute (`activation`, or one that ends so) or as a layer of its
    own in an attribute, at every depth, also in layers that make others in their own code, and in subclassed models.
    Its limits:

    - `model` is changed, and what was replaced is gone.
    - A `.keras` file of `model` forgets the swap without a word. Train and save the returned `SwappedModel`, whose file
      keeps it; after loading, its attribute `model` is the model inside.
    - A compiled model is compiled anew with the same settings: its optimizer starts afresh.
    - `ReLU` layers and operations that are nodes of a functional model are out of reach; `replace_activations` replaces
      those. The channels of an activation with an `axis` are the last axis, or those of the layer's own `data_format`.

    Args:
        model: built model.
        replacements: dict, as for `replace_activations`.
        only: as for `replace_activations`. Defaults to `None`.

    Returns:
        A `SwappedModel` that shares the layers of `model`, and whose `report` lists what was replaced.

    Raises:
        ValueError: nothing was replaced, or `model` is not built.
        TypeError: an argument is of the wrong type.

    Example:

    >>> import keras, keras_polycom
    >>> model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, activation="relu")])
    >>> swapped = keras_polycom.surgery.replace_activations_in_place(model, {"relu": "poly_norm"})
    >>> type(model.layers[0].activation).__name__
    'PolyNorm'
    """
    check_replacements(replacements, Activations)
    if not model.built:
        raise ValueError(
            f"The model must be built, so that its layers are there. Received: {model.name}, not built. Call it once."
        )
    surgeon = Surgeon(Activations, replacements, as_predicate(only))
    swaps = []
    for position, layer in enumerate(_all_layers(model)):
        swaps.extend(_swaps_of(layer, position, surgeon))
    if not swaps:
        raise nothing_replaced(surgeon)
    holders = _all_layers(model)
    swapped = SwappedModel(model, swaps, name=f"{model.name}_swapped")
    swapped.report = surgeon.report
    give_weights([getattr(holders[swap["layer"]], swap["attribute"]) for swap in swaps], surgeon.instances)
    if model.compiled:
        config = model.get_compile_config()
        model.compile_from_config(config)
        swapped.compile_from_config(config)
    return swapped


def _all_layers(model):
    return [*nested_layers(model), model]


def _swaps_of(layer, position, surgeon):
    """What is to be put into one layer, and into the report."""
    for attribute, value in sorted(_attributes(layer).items()):
        name = _name_of(attribute, value)
        if name is None:
            continue
        path = f"{layer.path or layer.name}.{attribute}"
        identifier = surgeon.replacements.get(name)
        if identifier is None or not surgeon.selected(layer):
            surgeon.sites.append(Site(path, name, KEPT))
            continue
        made = activations.get_layer(identifier, name=f"{layer.name}_{attribute}", dtype=dtype_of(layer))
        made = on_axis(made, 1 if getattr(layer, "data_format", None) == "channels_first" else -1)
        surgeon.sites.append(Site(path, name, REPLACED, type(made).__name__))
        surgeon.keep(made, identifier)
        yield {
            "layer": position,
            "class_name": type(layer).__name__,
            "attribute": attribute,
            "activation": keras.saving.serialize_keras_object(made),
        }
    name = Activations.name_of(type(layer).__name__, config_of(layer))
    if name in surgeon.replacements and not hasattr(layer, "activation"):
        reason = f"a {type(layer).__name__} layer keeps no activation in an attribute"
        surgeon.sites.append(Site(layer.path or layer.name, name, CANNOT, reason))


def _attributes(layer):
    return {**vars(layer), **vars(layer).get("_modules", {})}  # PyTorch keeps layers in layers in the latter


def _name_of(attribute, value):
    """The name of an activation that is the value of an attribute, or `None` for anything else."""
    if isinstance(value, keras.layers.Layer):
        name = Activations.name_of(type(value).__name__, config_of(value))
        return None if isinstance(value, keras.layers.Activation) else name
    if not callable(value) or not (Activations.is_argument(attribute) or attribute.endswith("activation_fn")):
        return None
    return Activations.name_of_argument(getattr(value, "__name__", None))


def _put_in(layers, swap):
    fits = swap["layer"] < len(layers) and type(layers[swap["layer"]]).__name__ == swap["class_name"]
    if not fits or not hasattr(layers[swap["layer"]], swap["attribute"]):
        raise ValueError(
            f"The model has no {swap['class_name']} with the attribute {swap['attribute']!r} as layer number "
            f"{swap['layer']}: it is not the one whose activations were replaced."
        )
    layer = layers[swap["layer"]]
    made = keras.saving.deserialize_keras_object(swap["activation"])
    layer._tracker.unlock()  # a built layer takes no new weights otherwise
    try:
        layer._tracker.untrack(getattr(layer, swap["attribute"]))  # a former activation that is a layer
        setattr(layer, swap["attribute"], made)
    finally:
        layer._tracker.lock()


def _forget_compiled(model):
    """Functions that Keras has compiled for a model still compute with the old activations."""
    model.train_function = model.test_function = model.predict_function = None
