"""Models in the ONNX format, from every backend."""

import functools
import importlib
import os
import pathlib
import tempfile

import keras
import numpy as np

from keras_polycom.layers.nested import nested_layers
from keras_polycom.onnx_pooling import narrow_pooling
from keras_polycom.ops.exporting import exporting_scope

LARGEST_FILE = 2**31 - 2**20  # of what protobuf can write, with some room
# What Keras needs for it, beside onnx.
_PACKAGES = {"jax": "jax2onnx", "tensorflow": "tf2onnx", "torch": "onnxscript"}


def export_onnx(model, filepath, opset_version=None):
    """Writes what `model` computes in inference to an ONNX file, with an open batch size.

    On JAX and TensorFlow it is `model.export(filepath, format="onnx")` with what that needs; on PyTorch, where Keras's
    way fails for models with normalization layers, it is `torch.onnx.export` with `dynamo=True`. The faster versions of
    the ops step aside: an ONNX file holds the formulas. For a SavedModel use `model.export(folder)`, and
    `torch.export.export(model, (x,))` for PyTorch's own format: both need nothing else.

    Args:
        model: built Keras model whose inputs are known: functional, sequential, or called once. Its dtype policy must
            be a float32 one; a model trained in mixed precision is brought there by loading its weights into one made
            with `dtype="float32"`.
        filepath: path of the file, which is written whole or not at all. Weights of more than 2 GB, which no ONNX file
            can hold, are beside it.
        opset_version: integer or `None`, the version of ONNX's operations. Defaults to the exporter's own.

    Raises:
        ValueError: the model is not built or not in float32.
        ImportError: the exporter of the backend is not installed: jax2onnx, tf2onnx or onnxscript. The extra `export`
            of this package installs all three.

    Example:

    ```python
    keras_polycom.export_onnx(model, "model.onnx")
    session = onnxruntime.InferenceSession("model.onnx")
    (prediction,) = session.run(None, {session.get_inputs()[0].name: x})
    ```
    """
    _check(model)
    filepath = pathlib.Path(filepath)
    write = _write_with_torch if keras.backend.backend() == "torch" else _write_with_keras
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=filepath.parent) as folder:
        written = pathlib.Path(folder) / filepath.name
        with exporting_scope():
            write(model, str(written), opset_version)
        _join_weights(written)
        for part in sorted(written.parent.iterdir(), key=lambda part: part == written):  # the file itself at last
            os.replace(part, filepath.parent / part.name)


def _join_weights(filepath):
    """Brings weights that an exporter has put into files of their own into the ONNX file, if it can hold them."""
    onnx = importlib.import_module("onnx")
    others = [part for part in filepath.parent.iterdir() if part != filepath]
    if others and filepath.stat().st_size + sum(part.stat().st_size for part in others) < LARGEST_FILE:
        onnx.save(onnx.load(filepath), filepath)
        for part in others:
            part.unlink()


def _check(model):
    if not getattr(model, "built", False) or not model.inputs:
        raise ValueError(
            f"The model must be built and its inputs known. Received: {getattr(model, 'name', model)!r}. Build it with "
            "keras.Input, or wrap it: keras.Model(x, model(x)) with x = keras.Input(...)."
        )
    halves = sorted({layer.name for layer in [model, *nested_layers(model)] if "16" in layer.compute_dtype})
    if halves:
        raise ValueError(
            f"ONNX files are written from float32 models. Received: {model.name}, in which {', '.join(halves[:3])}"
            f"{' and others' if len(halves) > 3 else ''} compute in half precision. Make the model with "
            "dtype='float32' and give it the weights of this one: new.set_weights(model.get_weights())."
        )
    package = _PACKAGES[keras.backend.backend()]
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise ImportError(
            f"Writing ONNX on the {keras.backend.backend()} backend needs the package {package} ({error}): run `pip "
            f"install onnx {package}`, or install keras-polycom with its extra `export`."
        ) from error


def _structure(model):
    """The model's inputs as it is called with them: one tensor, a list or a dict."""
    return model.inputs[0] if isinstance(model, keras.Sequential) else model.input  # the former has one, once called


def _samples(model, batch=2):
    """An input of zeros for each of the model's; sizes that are open are 2, as 1 would be taken for fixed."""
    shapes = [[batch if size is None else size for size in tensor.shape] for tensor in model.inputs]
    return [keras.ops.zeros(shape, tensor.dtype) for shape, tensor in zip(shapes, model.inputs, strict=True)]


def _write_with_keras(model, filepath, opset_version):
    if keras.backend.backend() == "tensorflow":
        _teach_erfc()
    model(keras.tree.pack_sequence_as(_structure(model), _samples(model)), training=False)  # JAX wants one call before
    model.export(filepath, format="onnx", verbose=False, opset_version=opset_version)
    if keras.backend.backend() == "jax":
        narrow_pooling(filepath)


@functools.cache
def _teach_erfc():
    """Tells tf2onnx how to write what TensorFlow's exact GELU is made of: ONNX has the error function only."""
    handler, utils = importlib.import_module("tf2onnx.handler"), importlib.import_module("tf2onnx.utils")

    @handler.tf_op("Erfc")
    class Erfc:
        @classmethod
        def version_9(cls, ctx, node, **kwargs):
            (x,), (dtype,), (shape,) = node.input, node.output_dtypes, node.output_shapes
            (output,) = node.output
            ctx.remove_node(node.name)
            error = ctx.make_node("Erf", [x]).output[0]
            one = np.array(1, utils.map_onnx_to_numpy_type(dtype))
            one = ctx.make_const(f"{node.name}_one", one).output[0]
            ctx.make_node("Sub", [one, error], outputs=[output], name=node.name, dtypes=[dtype], shapes=[shape])


def _write_with_torch(model, filepath, opset_version):
    torch = importlib.import_module("torch")
    structure = _structure(model)

    class Flat(torch.nn.Module):
        """The model as a function of tensors one by one."""

        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, *tensors):
            return self.model(keras.tree.pack_sequence_as(structure, list(tensors)), training=False)

    axes = tuple(
        {axis: torch.export.Dim.DYNAMIC for axis, size in enumerate(tensor.shape) if size is None}
        for tensor in model.inputs
    )
    program = torch.onnx.export(
        Flat().eval(),
        tuple(_samples(model)),
        dynamo=True,
        dynamic_shapes=(axes,),
        input_names=[tensor.name for tensor in model.inputs],
        opset_version=opset_version,
        verbose=False,
    )
    program.save(filepath)
