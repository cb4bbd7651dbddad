"""What a finished or interrupted experiment leaves: a table, results.json, history.csv and curves.png."""

import csv
import io
import itertools
import os
import platform
from importlib import metadata

import keras
import numpy as np

from support.errors import require
from support.files import whole_file, write_text

PACKAGES = ("keras", "keras-polycom", "jax", "tensorflow", "torch", "triton", "liger-kernel", "numpy", "keras-cv")
# Okabe and Ito's colours, told apart by all eyes, without their yellow.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def environment():
    """Versions and the device, for results.json."""
    return {
        "backend": keras.backend.backend(),
        "versions": {"python": platform.python_version(), **_versions()},
        "device": _device(),
    }


def _versions():
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _device():
    backend = keras.backend.backend()
    processor = f"{_processor()}, {os.cpu_count()} cores"
    if backend == "jax":
        import jax

        accelerators = [device.device_kind for device in jax.devices() if device.platform != "cpu"]
    elif backend == "tensorflow":
        import tensorflow as tf

        accelerators = [device.name for device in tf.config.list_logical_devices() if device.device_type != "CPU"]
    else:
        import torch

        accelerators = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return "; ".join([*accelerators, processor])


def _processor():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def table(header, rows):
    """Text table: the first column to the left, the others to the right."""
    widths = [max(len(str(row[i])) for row in [header, *rows]) for i in range(len(header))]
    lines = [
        "  ".join(str(row[i]).rjust(width) if i else str(row[i]).ljust(width) for i, width in enumerate(widths))
        for row in [header, *rows]
    ]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def write_history(path, histories):
    """Writes one row per epoch of every run: `histories` is a dict, label -> list of rows."""
    fields = list(dict.fromkeys(name for rows in histories.values() for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, ["run", *fields], lineterminator="\n")
    writer.writeheader()
    for label, rows in histories.items():
        writer.writerows({"run": label, **row} for row in rows)
    write_text(path, text.getvalue())


def new_figure(columns, width=5.2, height=4.0):
    """Figure with `columns` axes in a row, drawn without a window system."""
    figure_module = require("matplotlib.figure", "Drawing the plots")
    figure = figure_module.Figure(figsize=(width * columns, height), layout="constrained")
    axes = figure.subplots(1, columns, squeeze=False)[0]
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25, linewidth=0.6)
    return figure, axes


def write_figure(path, figure):
    with whole_file(path) as temporary:
        figure.savefig(temporary, dpi=130, format="png")


def write_curves(path, histories, title, panels, time="epoch"):
    """Draws one panel per quantity, one line per run against the time, each labelled at its end.

    Args:
        path: path of a .png.
        histories: dict, label -> list of rows.
        title: string.
        panels: dict, axis label -> name of the quantity in the rows.
        time: string, the name of what is drawn to the right.
    """
    figure, axes = new_figure(len(panels), width=4.8)
    for axis, (label, name) in zip(axes, panels.items(), strict=True):
        _draw_panel(axis, label, name, {run: rows for run, rows in histories.items() if rows}, time)
    figure.suptitle(title, fontsize=11)
    write_figure(path, figure)


def _draw_panel(axis, label, name, histories, time):
    ends = []
    for (run, rows), color in zip(histories.items(), itertools.cycle(COLORS), strict=False):
        times, values = [row[time] for row in rows], [row[name] for row in rows]
        axis.plot(times, values, color=color, linewidth=1.6, marker="." if len(rows) < 3 else "")
        ends.append((times[-1], values[-1], run, color))
    if name.endswith(("loss", "error")):
        _log_scale_if_wide(axis)
    axis.set_xlabel(time)
    axis.set_ylabel(label)
    axis.xaxis.get_major_locator().set_params(integer=True)
    _label_ends(axis, ends)


def _log_scale_if_wide(axis, ratio=10):
    values = np.concatenate([line.get_ydata() for line in axis.lines])
    if values.min() > 0 and values.max() > ratio * values.min():
        axis.set_yscale("log")


def _label_ends(axis, ends):
    """Writes each label to the right of its line's end, moved where it would overlap another."""
    axis.autoscale_view()
    to_fraction = axis.transData + axis.transAxes.inverted()
    heights = _apart([to_fraction.transform((x, y))[1] for x, y, *_ in ends])
    for height, (_, _, run, color) in zip(heights, ends, strict=True):
        axis.text(1.02, height, run, transform=axis.transAxes, color=color, va="center", fontsize=9)


def _apart(heights, gap=0.06, top=1.0):
    """The same heights in the same order, at least `gap` apart and below `top`."""
    order = np.argsort(heights)
    heights = np.array(heights)
    for lower, upper in itertools.pairwise(order):
        heights[upper] = max(heights[upper], heights[lower] + gap)
    for index in order[::-1]:
        heights[index] = min(heights[index], top)
        top = heights[index] - gap
    return heights
