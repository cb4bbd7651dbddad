"""The curves of a model's activations, initial and learned, and the plot that shows them side by side."""

import functools
import statistics

import keras
import numpy as np

from keras_polycom import activations
from keras_polycom.layers.nested import nested_layers
from support.errors import require
from support.report import new_figure, write_figure

GRID = np.linspace(-3, 3, 121)
ROW = 8192


def activation_layers(model):
    """All activation layers of a model with weights of their own, in order."""
    return [layer for layer in nested_layers(model) if isinstance(layer, _kinds()) and layer.weights]


@functools.cache
def _kinds():
    """The classes of all activations known by name that are layers."""
    made = (activations.get(name) for name in activations.names())
    return tuple({type(activation) for activation in made if isinstance(activation, keras.layers.Layer)})


def response(activation, grid=GRID):
    """The output of an activation for each number of `grid`, one element of a row of standard normal values.

    An activation that looks at its element only does not mind the others; PolyNorm, whose output depends on the whole
    row, is thereby shown as it acts on rows with the moments of a standard normal distribution. The row has `ROW`
    elements, or as many as the layer was built for.

    Args:
        activation: function of a tensor, or layer.
        grid: array (points,).

    Returns:
        Array (points,).
    """
    size = _row_size(activation)
    row = np.array([statistics.NormalDist().inv_cdf((i + 0.5) / size) for i in range(size)])
    row = np.random.default_rng(0).permutation(row)  # neighbours are not alike: some layers look at groups of them
    outputs = []
    for points in np.array_split(np.asarray(grid), 8):
        rows = np.tile(row, (len(points), 1))
        rows[:, 0] = points
        outputs.append(keras.ops.convert_to_numpy(keras.ops.cast(activation(rows.astype("float32")), "float32"))[:, 0])
    return np.concatenate(outputs)


def _row_size(activation):
    """The number of channels the layer was built for, if it was: PolyNorm and its kin work for any."""
    build_config = activation.get_build_config() if isinstance(activation, keras.layers.Layer) else None
    return build_config["input_shape"][activation.axis] if build_config else ROW


def write_activations(path, runs):
    """Draws a panel per run: the initial curve dashed, and one line per layer, coloured by depth.

    Args:
        path: path of a .png.
        runs: dict, label -> `{"initial": curve, "learned": [curve of the first layer, ...]}`, where a fixed function
            has no learned curves.
    """
    figure, axes = new_figure(len(runs), width=4.4)
    for axis, (label, curves) in zip(axes, runs.items(), strict=True):
        _draw(axis, curves["initial"], curves["learned"])
        axis.set_title(label if curves["learned"] else f"{label} (fixed)", fontsize=10)
        axis.set_xlabel("input, in a row of standard normal values")
    axes[0].set_ylabel("output")
    write_figure(path, figure)


def _draw(axis, initial, learned):
    colors = require("matplotlib", "Drawing the plots").colormaps["viridis"]
    for depth, curve in enumerate(learned):
        name = {0: "first layer", len(learned) - 1: "last layer"}.get(depth)
        axis.plot(GRID, curve, color=colors(0.9 * depth / max(len(learned) - 1, 1)), linewidth=1.4, label=name)
    axis.plot(
        GRID, initial, "--" if learned else "-", color="black", linewidth=1.4, label="initial" if learned else None
    )
    if learned:
        axis.legend(frameon=False, fontsize=9, loc="upper left")
