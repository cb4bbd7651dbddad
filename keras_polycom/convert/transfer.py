"""Comparing a state dict with the weights it is for, all at once, and only then writing it."""

import re
import warnings
from typing import NamedTuple

import keras
import numpy as np

IGNORED = re.compile(r"(^|\.)num_batches_tracked$")  # a counter that Keras's batch normalization does not have
ACTIVATION = re.compile(r"(^|_)activation(_\d+)?$")  # names of layers that are activations of a model


class Summary(NamedTuple):
    """What loading a state dict did; `print` shows it.

    Attributes:
        loaded: paths of the weights that were written.
        kept: paths of the weights that keep the values they had: those of the activations, and a head left out.
        left_out: names of the tensors that were left out on purpose.
        notes: sentences about what was changed on the way, such as a resized position table.
    """

    loaded: tuple
    kept: tuple
    left_out: tuple
    notes: tuple

    def __str__(self):
        lines = [f"{len(self.loaded)} weights loaded.", *self.notes]
        if self.kept:
            lines.append(f"{len(self.kept)} weights keep their values: {', '.join(self.kept)}")
        if self.left_out:
            lines.append(f"{len(self.left_out)} tensors left out: {', '.join(self.left_out)}")
        return "\n".join(lines)


def beginnings(ignore):
    """The argument `ignore` as a list; a single string is one beginning."""
    return [ignore] if isinstance(ignore, str) else list(ignore)


def check_layers(model, kind, *names):
    """Raises `TypeError` unless `model` is a model with layers of these names, as a `kind` of this package has."""
    own = [layer.name for layer in model.layers] if isinstance(model, keras.Model) else []
    absent = [name for name in names if name not in own]
    if absent:
        raise TypeError(
            f"Expected a keras_polycom.models.{kind}, or a model with its layers. Received: a {type(model).__name__} "
            f"without {', '.join(absent)}"
        )


def named_weights(model):
    """The weights of a model by the name of their layer and their path inside it, and those of its activations.

    Returns:
        Two dicts of variables by path: all weights but those of activations, and those of activations.
    """
    weights, activations = {}, {}
    for layer in model.layers:
        inner = getattr(layer, "activation", None)
        of_activation = {id(v) for v in inner.weights} if isinstance(inner, keras.layers.Layer) else set()
        for variable in layer.weights:
            chosen = activations if id(variable) in of_activation or ACTIVATION.search(layer.name) else weights
            chosen[_path(variable, layer)] = variable
    return weights, activations


def _path(variable, layer):
    # A child that its layer made before it was built has a path that does not begin with the layer's.
    inside = variable.path.rsplit(f"{layer.name}/", 1)[-1]
    return f"{layer.name}/{inside}"


def transfer(name, weights, rows, state, *, kept=(), left_out=(), problems=(), hints=()):
    """Writes the tensors of a state dict into weights, if every one of both has its counterpart.

    Args:
        name: string. What is loaded into, for messages.
        weights: dict of variables by path, all of which must be written.
        rows: the table of names, a list of `Row`.
        state: dict of arrays by name, all of which must be used.
        kept: paths of weights that keep their values.
        left_out: names or beginnings of names of tensors that are left out.
        problems: sentences about what else does not fit.
        hints: pairs of a pattern and a sentence, which ends the error message if a line of it has the pattern.

    Returns:
        A `Summary`.

    Raises:
        ValueError: anything missing, unused or misshapen, and `problems`; all are listed, and nothing was written.
    """
    omitted = [tensor for tensor in state if tensor.startswith(tuple(left_out))]
    used = {tensor: array for tensor, array in state.items() if tensor not in omitted and not IGNORED.search(tensor)}
    known = [row for row in rows if row.weight in weights]
    fitting = [row for row in known if row.tensor in used]
    named = {row.weight for row in known}
    missing = _by_tensor(weights, [(row, "") for row in known if row.tensor not in used])
    missing += [f"nothing stands for {path} {tuple(weights[path].shape)}" for path in weights if path not in named]
    unused = [f"{tensor} {used[tensor].shape}" for tensor in used if tensor not in {row.tensor for row in known}]
    problems_of = [(row, row.transform.problem(used[row.tensor], _shape(row, weights))) for row in fitting]
    misshapen = _by_tensor(weights, [(row, f" {problem}") for row, problem in problems_of if problem])
    _raise_all(name, problems, hints, Missing=missing, Unused=unused, Misshapen=misshapen)

    values = [(weights[row.weight], _value(row, weights, used)) for row in fitting]
    notes = [note for row in fitting if (note := row.transform.note(used[row.tensor], _shape(row, weights)))]
    for note in notes:
        warnings.warn(note, stacklevel=3)
    for variable, value in values:
        variable.assign(value)
    return Summary(tuple(row.weight for row in fitting), tuple(kept), tuple(omitted), tuple(notes))


def _shape(row, weights):
    return tuple(weights[row.weight].shape)


def _by_tensor(weights, found):
    """One sentence per tensor from pairs of a row and what is said of its tensor."""
    meant = {}
    for row, text in found:
        meant.setdefault(f"{row.tensor}{text}", []).append(f"{row.weight} {_shape(row, weights)}")
    return [f"{beginning} (for {', '.join(paths)})" for beginning, paths in meant.items()]


def _value(row, weights, state):
    # A copy: JAX would share the memory with the caller's array and overwrite it in training.
    return np.array(row.transform.convert(state[row.tensor], _shape(row, weights)), order="C")


def _raise_all(name, problems, hints, **findings):
    lines = [f"- Setting: {problem}" for problem in problems]
    for kind, found in findings.items():
        lines += [f"- {kind}: {text}" for text in found]
    if lines:
        counts = ", ".join(f"{len(found)} {kind.lower()}" for kind, found in findings.items())
        advice = [sentence for pattern, sentence in hints if any(re.search(pattern, line) for line in lines)]
        raise ValueError(
            "\n".join([f"The state dict does not fit {name!r} ({counts}). Nothing was written.", *lines, *advice])
        )


def epsilon_problems(model, kind, epsilon):
    """Sentences about the normalizations of a model that are not of the class `kind`, or have another epsilon."""
    problems = []
    for layer in model.layers:
        if not re.search(r"(^|_)norm(_\d+)?$", layer.name):
            continue
        if not isinstance(layer, kind):
            problems.append(f"{layer.name} is a {type(layer).__name__} where the weights are of a {kind.__name__}")
        elif not np.isclose(layer.epsilon, epsilon, rtol=1e-3, atol=0):
            problems.append(
                f"{layer.name} has epsilon={layer.epsilon:g} where the weights were trained with {epsilon:g}"
            )
    return problems
