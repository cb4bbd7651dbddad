"""TensorFlow: tf.function with or without XLA, or eager."""

import tensorflow as tf

from support.benchmark.stopwatch import Measurement

COMPILERS = {
    "graph": tf.function(autograph=False),
    "jit": tf.function(autograph=False, jit_compile=True),
    "eager": lambda function: function,
}
SAVED_REMARKS = {
    "graph": "saved: the tensors of the forward graph that the gradient's graph reads.",
    "jit": "saved: the tensors of the forward graph that the gradient's graph reads; XLA may keep fewer.",
    "eager": "saved: empty, since the tape of eager TensorFlow cannot be read.",
}
# Ops that hand a buffer on as it is; output i of IdentityN is its input i.
ALIASES = ("Identity", "IdentityN", "Reshape", "ExpandDims", "Squeeze", "StopGradient")
WITHOUT_VALUES = ("Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike")


class Runner:
    """See `runners`."""

    def __init__(self, mode):
        self.mode = mode
        self.saved_remark = SAVED_REMARKS[mode]

    def _compiled(self, function):
        return COMPILERS[self.mode](function)

    @staticmethod
    def synchronise(outputs):
        tf.test.experimental.sync_devices()
        return outputs

    def trace(self, case):
        if self.mode == "eager":
            case.function(*case.learnable, *case.fixed)
        else:
            function = self._compiled(lambda *values: case.function(*values))
            function.get_concrete_function(*map(_spec, (*case.learnable, *case.fixed)))

    def measurements(self, case, upstream):
        count = len(case.learnable)
        forward = self._compiled(lambda *values: case.function(*values))

        def both(upstream, *values):
            y, tape = _taped(case.function, values, count)
            return y, tape.gradient(y, values[:count], output_gradients=upstream)

        both = self._compiled(both)
        values = (*case.learnable, *case.fixed)

        def backward(taped):
            y, tape = taped
            return tape.gradient(y, values[:count], output_gradients=upstream)

        return {
            "both": Measurement(lambda _: both(upstream, *values)),
            "forward": Measurement(lambda _: forward(*values)),
            "backward": Measurement(backward, setup=lambda: _taped(forward, values, count)),
        }

    def saved_bytes(self, case, upstream):
        if self.mode == "eager":
            return None
        sizes = {}

        def both(upstream, *values):
            graph = tf.compat.v1.get_default_graph()
            y, tape = _taped(case.function, values, len(case.learnable))
            forward = {op.name for op in graph.get_operations()}
            gradients = tape.gradient(y, values[: len(case.learnable)], output_gradients=upstream)
            for tensor in _read_by_others(graph, forward):
                if tensor is not upstream:
                    sizes[tensor.name] = tensor.shape.num_elements() * tensor.dtype.size
            return gradients

        self._compiled(both).get_concrete_function(*map(_spec, (upstream, *case.learnable, *case.fixed)))
        return sum(sizes.values())


def _taped(function, values, count):
    with tf.GradientTape() as tape:
        tape.watch(values[:count])
        y = function(*values)
    return y, tape


def _spec(tensor):
    return tf.TensorSpec(tensor.shape, tensor.dtype)


def _read_by_others(graph, names):
    """Yields the tensors of the ops called `names` whose values the other ops of the graph read."""
    for op in graph.get_operations():
        if op.name in names or op.type in WITHOUT_VALUES:
            continue
        for tensor in op.inputs:
            if tensor.op.name in names and _origin(tensor).op.type != "Const":
                yield _origin(tensor)


def _origin(tensor):
    while tensor.op.type in ALIASES:
        tensor = tensor.op.inputs[tensor.value_index if tensor.op.type == "IdentityN" else 0]
    return tensor
