"""Exact checkpoints: every variable of a model and its optimizer, and the run's record, in one file."""

import json
import zipfile
import zlib

import keras
import numpy as np

from support.errors import UserError
from support.files import whole_file

RECORD = "record"


def _variables(model):
    return [*model.variables, *model.optimizer.variables]


def save(path, model, record):
    """Writes the state of a compiled model and `record`, a JSON value, whole or not at all."""
    arrays = {f"{i:05d} {v.name}": keras.ops.convert_to_numpy(v) for i, v in enumerate(_variables(model))}
    arrays[RECORD] = np.frombuffer(json.dumps(record).encode(), "uint8")
    with whole_file(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **arrays)


def load(path, model):
    """Puts the state saved at `path` into a model that was built and compiled the same way.

    Returns:
        The record.

    Raises:
        UserError: the file is damaged or belongs to another model. The model is then unchanged.
    """
    variables = _variables(model)
    try:
        with open(path, "rb") as file:
            archive = np.load(file)
            arrays = {name: archive[name] for name in archive.files}
        record = json.loads(arrays.pop(RECORD).tobytes())
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"The checkpoint {path} is damaged ({error}): delete it, or start with --overwrite.") from error
    values = [arrays[name] for name in sorted(arrays)]
    names = [name.split(" ", 1)[1] for name in sorted(arrays)]
    if [(n, a.shape) for n, a in zip(names, values, strict=True)] != [(v.name, tuple(v.shape)) for v in variables]:
        raise UserError(f"The checkpoint {path} belongs to another model: choose another --output, or --overwrite.")
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
    return record
