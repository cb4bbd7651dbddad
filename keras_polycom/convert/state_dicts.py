"""State dicts, from memory or from a file, as NumPy arrays."""

import os
import pickle
import zipfile
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

import keras
import ml_dtypes
import numpy as np

# Where published checkpoints keep their state dict: {"model": ...} (MAE, DeiT), {"state_dict": ...} (timm, Lightning).
NESTS = ("model", "state_dict")

SAFETENSORS_DTYPES = {
    "BOOL": np.bool_,
    "U8": np.uint8,
    "I8": np.int8,
    "I16": np.int16,
    "U16": np.uint16,
    "I32": np.int32,
    "U32": np.uint32,
    "I64": np.int64,
    "U64": np.uint64,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "F32": np.float32,
    "F64": np.float64,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
}


def read_state_dict(source, prefix=""):
    """Reads a state dict into NumPy arrays; no backend but the one that made it is imported.

    | source | needs |
    |---|---|
    | mapping of names to NumPy arrays, torch tensors, Keras tensors or variables | nothing |
    | path of a `.npz` file | nothing |
    | path of a `.safetensors` file | `safetensors` |
    | path of a `.pt`, `.pth` or `.bin` file, read with `weights_only=True` | `torch` |

    A state dict inside a checkpoint, under `"model"` or `"state_dict"`, is found there, and what stands beside it (the
    optimizer, the epoch) is dropped. Floats of less than 32 bits (float16, bfloat16, float8) become float32.

    Args:
        source: mapping or path.
        prefix: string. Only tensors whose names begin with it are kept, under the rest of their names:
            `prefix="module."` undoes DataParallel, `prefix="layers.3.mlp.act_fn."` takes out one activation. Defaults
            to `""`.

    Returns:
        dict of NumPy arrays by name, in the order of the source.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a file that is damaged or of another kind, entries that are not tensors, or no name with `prefix`.
        ImportError: the package that reads the file is not installed.
        TypeError: `source` is neither a mapping nor a path.

    Example:

    >>> import numpy as np
    >>> from keras_polycom import convert
    >>> checkpoint = {"model": {"module.weight": np.ones(3, "float16")}, "epoch": 4}
    >>> state = convert.read_state_dict(checkpoint, prefix="module.")
    >>> list(state), str(state["weight"].dtype)
    (['weight'], 'float32')
    """
    if isinstance(source, Mapping):
        entries, where = source, "The state dict"
    elif isinstance(source, (str, os.PathLike)):
        entries, where = _read_file(Path(source)), f"The file {str(source)!r}"
    else:
        raise TypeError(
            f"A state dict is given as a mapping of names to tensors or as a path. Received: {type(source).__name__}. "
            "Of a torch module, give `module.state_dict()`."
        )
    state = _as_arrays(_unwrapped(entries), where)
    chosen = {name[len(prefix) :]: array for name, array in state.items() if name.startswith(prefix)}
    if not chosen:
        raise ValueError(
            f"{where} has no tensor whose name begins with prefix={prefix!r}. Its names: {', '.join(state) or 'none'}"
        )
    return chosen


def _unwrapped(entries):
    for nest in NESTS:
        if isinstance(entries.get(nest), Mapping):
            return _unwrapped(entries[nest])
    return entries


def _as_arrays(entries, where):
    arrays = {name: _as_array(value) for name, value in entries.items()}
    others = {name: entries[name] for name, array in arrays.items() if array is None or not isinstance(name, str)}
    if others:
        described = ", ".join(f"{name!r} ({type(value).__name__})" for name, value in others.items())
        raise ValueError(
            f"{where} has entries that are not tensors of numbers: {described}. A state dict inside a checkpoint is "
            f"looked for under {' and '.join(map(repr, NESTS))}; give any other one by itself."
        )
    return arrays


def _as_array(value):
    """The value as a NumPy array of bools, integers or floats of at least 32 bits; `None` for anything else."""
    if hasattr(value, "detach") and hasattr(value, "is_floating_point"):  # a torch tensor, whatever the backend is
        value = value.detach().cpu()
        narrow = value.is_floating_point() and value.element_size() < 4  # NumPy has no bfloat16
        value = (value.float() if narrow else value).numpy()
    elif keras.ops.is_tensor(value) or isinstance(value, keras.Variable):
        value = keras.ops.convert_to_numpy(value)
    elif not (isinstance(value, (np.ndarray, np.generic)) or hasattr(value, "__array__")):
        return None
    array = np.asarray(value)
    if array.dtype in (np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
        return array.astype(np.float32)
    return array if array.dtype.kind in "biuf" else None


# === Files ===


def _read_file(path):
    reader = READERS.get(path.suffix)
    if reader is None:
        raise ValueError(
            f"A state dict is read from files ending in {', '.join(READERS)}. Received: {str(path)!r}. Rename the "
            "file, or read it and give the mapping."
        )
    if not path.is_file():
        raise FileNotFoundError(f"There is no state dict at {str(path)!r}: no such file.")
    return reader(path)


def _damaged(path, kind, error):
    reason = str(error).split("WeightsUnpickler error:")[-1].strip().split("\n")[0]  # torch has advice around it
    return ValueError(
        f"{str(path)!r} cannot be read as {kind}: the file is damaged, cut short or of another kind "
        f"({type(error).__name__}: {reason}). Fetch or write it again."
    )


def _read_safetensors(path):
    try:
        from safetensors import SafetensorError, deserialize
    except ImportError as error:
        raise ImportError(
            f"Reading {str(path)!r} needs the package safetensors, which is not installed. Install the extra that has "
            "it: pip install 'keras-polycom[convert]'"
        ) from error
    try:
        tensors = deserialize(path.read_bytes())
    except SafetensorError as error:
        raise _damaged(path, "a safetensors file", error) from error
    unknown = sorted({tensor["dtype"] for _, tensor in tensors} - set(SAFETENSORS_DTYPES))
    if unknown:
        raise ValueError(
            f"{str(path)!r} has tensors of dtype {', '.join(unknown)}. Known dtypes: {', '.join(SAFETENSORS_DTYPES)}"
        )
    return {
        name: np.frombuffer(tensor["data"], SAFETENSORS_DTYPES[tensor["dtype"]]).reshape(tensor["shape"])
        for name, tensor in tensors
    }


def _read_npz(path):
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            return dict(file)
    # A file without zip inside is taken for a single array, which is no context manager, or for a pickle.
    except (ValueError, TypeError, AttributeError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise _damaged(path, "an .npz file", error) from error


def _read_torch(path):
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            f"Reading {str(path)!r} needs PyTorch, which is not installed. Install the extra that has it: "
            "pip install 'keras-polycom[torch]'. Or have somebody write the state dict as .safetensors or .npz."
        ) from error
    try:
        # The checkpoints that MAE's published scripts write hold their command line too, which is plain data.
        with torch.serialization.safe_globals([Namespace]):
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, ValueError, EOFError, OSError, KeyError, pickle.UnpicklingError) as error:
        if "Unsupported global" in str(error) or "Unsupported class" in str(error):
            raise ValueError(
                f"{str(path)!r} holds more than tensors and plain data, and is not unpickled, which could run code of "
                "its author's. Write its state dict into a file of its own, where it was made: "
                f"torch.save(model.state_dict(), path). torch says: {str(error).strip()}"
            ) from error
        raise _damaged(path, "a checkpoint of PyTorch", error) from error
    if not isinstance(loaded, Mapping):
        raise ValueError(f"{str(path)!r} holds a {type(loaded).__name__}, not a state dict.")
    return loaded


READERS = {
    ".safetensors": _read_safetensors,
    ".npz": _read_npz,
    ".pt": _read_torch,
    ".pth": _read_torch,
    ".bin": _read_torch,
}
