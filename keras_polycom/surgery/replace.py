"""The public functions: a new model with other activations or normalizations."""

from keras_polycom.models.configured import ConfiguredModel
from keras_polycom.surgery.kinds import Activations, Normalizations
from keras_polycom.surgery.rebuild import examine, rebuild, rebuild_from_arguments
from keras_polycom.surgery.report import CANNOT
from keras_polycom.surgery.selection import as_predicate
from keras_polycom.surgery.surgeon import Surgeon


def replace_activations(model, replacements, *, only=None, return_report=False):
    """Returns a model of the same architecture and weights with other activations; the given model stays as it is.

    Activations are found in `Activation`, `ReLU`, `LeakyReLU` layers and the like, in `keras.ops.relu` and other
    operations of a functional model, and in `activation=` arguments (also `recurrent_activation=` and such), in nested
    models and inside of wrappers such as `TimeDistributed` too. `"relu"` is the plain rectifier; `relu6`, one with a
    slope or a threshold, is another activation. Every place gets an activation of its own. In a convolutional model
    whose channels come first, an activation with an `axis`, as PolyNorm, is put on the channels.

    Weights, moving statistics, states of random generators and `trainable` flags are carried over. A compiled model is
    compiled with the same settings, its optimizer starts anew. With `PolyReLU` started as the rectifier the new model
    predicts what the old one does (see the example).

    Args:
        model: functional or sequential Keras model. A model of a class of its own becomes a plain functional model,
            unless it is one of `keras_polycom.models`; methods of such a class are lost.
        replacements: dict from what is to be replaced (a name such as `"relu"`, a layer class, a function) to the
            replacement: a name, a layer class, a maker, a config or an instance, of which every place gets a copy with
            its current weights.
        only: limits the layers that are touched: a layer name, in which `*` and `?` stand for any text; a layer class;
            a function from layer to bool; or a list of these. Defaults to `None`, all layers.
        return_report: bool. Whether to return a `surgery.Report` too, which lists every activation of the model and
            what became of it. Defaults to `False`.

    Returns:
        The new model, or the pair (model, report).

    Raises:
        ValueError: nothing was replaced; the error lists what there is. Or the model, or a layer in it, cannot be
            rebuilt from its configuration: see `replace_activations_in_place`.
        TypeError: an argument is of the wrong type.

    Example:

    >>> import keras, keras_polycom
    >>> model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, activation="relu"), keras.layers.Dense(2)])
    >>> rectifier = lambda: keras_polycom.PolyReLU(coefficients_initializer=[1.0, 0.0, 0.0])
    >>> new = keras_polycom.replace_activations(model, {"relu": rectifier})
    >>> x = keras.random.normal((3, 8))
    >>> bool(keras.ops.all(keras.ops.abs(new(x) - model(x)) < 1e-6))
    True

    Reference: Zhuo et al., Polynomial Composition Activations, arXiv 2411.03884, section 4, swaps ReLU in a ResNet.
    """
    return _replace(model, replacements, only, return_report, Activations)


def replace_normalizations(model, replacements, *, only=None, return_report=False):
    """Returns a model of the same architecture and weights with other normalization layers.

    Everything is as for `replace_activations`, but for what is found: `LayerNormalization`, `BatchNormalization`,
    `GroupNormalization`, `RMSNormalization` and the normalizations of this package. A replacement takes over the axis,
    and `gamma` and `beta` where it has them in the same shape.

    Args:
        model: functional or sequential Keras model.
        replacements: dict from a layer class, its name (`"LayerNormalization"` or `"layer_norm"`) to the replacement:
            a name such as `"pln[8]"`, a layer class, a maker, a config or an instance.
        only: as in `replace_activations`. Defaults to `None`.
        return_report: bool. Defaults to `False`.

    Returns:
        The new model, or the pair (model, report).

    Raises:
        ValueError: nothing was replaced; or a layer normalizes over several axes together; or its channels are not
            divided by the replacement's `norm_size`.
        TypeError: an argument is of the wrong type.

    Example:

    >>> import keras, keras_polycom
    >>> model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4), keras.layers.LayerNormalization()])
    >>> new, report = keras_polycom.replace_normalizations(model, {"layer_norm": "pln[2]"}, return_report=True)
    >>> [site.detail for site in report.replaced]
    ['ParallelLayerNormalization']

    Reference: Ni et al., Parallel Layer Normalization for Universal Approximation, arXiv 2505.13142.
    """
    return _replace(model, replacements, only, return_report, Normalizations)


def find_activations(model):
    """Returns a `surgery.Report` of every activation in a functional or sequential model; printed, it is a table.

    Example:

    >>> import keras, keras_polycom
    >>> model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, "relu"), keras.layers.Dense(2, "softmax")])
    >>> keras_polycom.surgery.find_activations(model).found()
    'relu (1), softmax (1)'
    """
    return _found(model, Activations)


def find_normalizations(model):
    """Returns a `surgery.Report` of every normalization layer in a functional or sequential model."""
    return _found(model, Normalizations)


def check_replacements(replacements, kind):
    if not isinstance(replacements, dict) or not replacements:
        raise TypeError(
            f"`replacements` must be a dict from names of {kind.plural} to what replaces them, such as "
            f"{kind.example}. Received: {replacements!r}"
        )


def nothing_replaced(surgeon):
    """The error for a model in which nothing was replaced."""
    wanted = ", ".join(map(repr, surgeon.replacements))
    report = surgeon.report
    reasons = "".join(f" {site.path} cannot be replaced: {site.detail}." for site in report.outcomes(CANNOT))
    return ValueError(
        f"No {surgeon.kind.noun} was replaced. Looked for: {wanted}. The model has: {report.found()}.{reasons} Names "
        "and places are listed by "
        f"keras_polycom.surgery.find_{surgeon.kind.plural}(model); `only` may have left out what was meant."
    )


def _replace(model, replacements, only, return_report, kind):
    check_replacements(replacements, kind)
    surgeon = Surgeon(kind, replacements, as_predicate(only))
    new = report = None
    if isinstance(model, ConfiguredModel) and only is None:
        new, report = rebuild_from_arguments(model, Surgeon(kind, replacements, as_predicate(None)))
    if new is None:
        new = rebuild(model, surgeon)
        report = surgeon.report
    if not report.replaced:
        raise nothing_replaced(surgeon)
    return (new, report) if return_report else new


def _found(model, kind):
    surgeon = Surgeon(kind, {}, as_predicate(None))
    examine(model, surgeon)
    return surgeon.report
