"""Puts right what jax2onnx makes of two-dimensional pooling, so that onnxruntime takes it."""

import importlib

LARGEST_RANK = 3  # of the spatial axes that onnxruntime pools over


def narrow_pooling(filepath):
    """Rewrites an ONNX file in which `MaxPool` treats batch and channels as two more spatial axes, with windows of 1.

    In their place come a transposition to (batch, channels, ...) and back, and a pooling over the others alone.
    """
    onnx = importlib.import_module("onnx")
    model = onnx.load(filepath)
    nodes, changed = [], False
    for node in model.graph.node:
        settings = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
        if node.op_type == "MaxPool" and len(settings["kernel_shape"]) > LARGEST_RANK:
            nodes.extend(_narrow(onnx, model.graph, node, settings))
            changed = True
        else:
            nodes.append(node)
    if changed:
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        onnx.save(model, filepath)


def _narrow(onnx, graph, node, settings):
    """The nodes in place of one whose input is (1, 1, axes...), for two axes that are not pooled and the others."""
    rank = len(settings["kernel_shape"])
    pads = settings.get("pads", [0] * 2 * rank)
    columns = (settings["kernel_shape"], settings.get("strides", [1] * rank), pads[:rank], pads[rank:])
    whole = [axis for axis, window in enumerate(zip(*columns, strict=True)) if window == (1, 1, 0, 0)][:2]
    pooled = [axis for axis in range(rank) if axis not in whole]
    order = whole + pooled
    kernel, strides, before, after = ([column[axis] for axis in pooled] for column in columns)

    (x,), (y,) = node.input, node.output
    axes, flat, turned, small, back = (f"{node.name}_{part}" for part in ("axes", "flat", "turned", "small", "back"))
    graph.initializer.append(onnx.helper.make_tensor(axes, onnx.TensorProto.INT64, [2], [0, 1]))
    make = onnx.helper.make_node
    return [
        make("Squeeze", [x, axes], [flat], name=flat),
        make("Transpose", [flat], [turned], perm=order, name=turned),
        make("MaxPool", [turned], [small], kernel_shape=kernel, strides=strides, pads=before + after, name=small),
        make("Transpose", [small], [back], perm=[order.index(axis) for axis in range(rank)], name=back),
        make("Unsqueeze", [back, axes], [y], name=node.name),
    ]
