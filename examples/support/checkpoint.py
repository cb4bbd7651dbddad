"""Exact checkpoints: every variable of a model and its optimizer, and the run's record, in one file.

The one before is kept beside it, and used where the newest turns out to be damaged.
"""

import hashlib
import json
import os
import struct
import sys
import zipfile
import zlib

import keras
import numpy as np

from support.errors import UserError, sentence_of
from support.files import whole_file
from support.settings import refuse_others

RECORD = "record"
DIGEST = "digest"
# What readers raise when the file does not hold what was written: of the archive, of its members, of the record.
DAMAGE = (OSError, EOFError, ValueError, KeyError, RuntimeError, struct.error, zipfile.BadZipFile, zlib.error)


class DamagedCheckpoint(UserError):
    """A file that does not hold what was written to it."""


def previous(path):
    """Where the checkpoint before the one at `path` is kept."""
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def remove(path):
    """Removes a checkpoint and the one before it."""
    path.unlink(missing_ok=True)
    previous(path).unlink(missing_ok=True)


def save(path, model, record):
    """Writes the state of a compiled model and `record`, a dict of JSON values, whole or not at all.

    What was at `path` becomes the previous checkpoint.
    """
    arrays = {f"{i:05d} {v.name}": keras.ops.convert_to_numpy(v) for i, v in enumerate(_variables(model))}
    arrays[RECORD] = np.frombuffer(json.dumps(record).encode(), "uint8")
    arrays[DIGEST] = _digest(arrays)
    with whole_file(path, keep_as=previous(path)) as temporary, open(temporary, "wb") as file:
        np.savez(file, **arrays)


def restore(path, model, settings):
    """Puts the newest state that is whole into a model that was built and compiled the same way.

    A damaged checkpoint is named on stderr, and gives way to the one before it.

    Args:
        path: path of the newest checkpoint.
        model: compiled model whose optimizer is built.
        settings: dict of JSON values, which must be what the record has under `settings`.

    Returns:
        The record; `None` where there is no checkpoint.

    Raises:
        UserError: no checkpoint is whole, or the one that is belongs to other settings or to another model. The model
            is then unchanged.
    """
    refused = []
    for candidate in filter(os.path.exists, (path, previous(path))):
        try:
            record = _load(candidate, model, settings)
        except DamagedCheckpoint as error:
            refused.append(str(error))
            continue
        if refused:
            print(f"warning: {refused[0]}, and refused; {candidate.name}, the one before it, is used.", file=sys.stderr)
        if candidate != path:
            os.replace(candidate, path)
        return record
    if refused:
        them = "it" if len(refused) == 1 else "both"
        raise UserError(f"{'; '.join(refused)}: delete {them}, or start with --overwrite.")
    return None


def _load(path, model, settings):
    arrays = _read(path)
    record = json.loads(arrays.pop(RECORD).tobytes())
    refuse_others(f"The checkpoint {path}", record["settings"], settings)
    variables = _variables(model)
    saved = [(name.split(" ", 1)[1], array.shape) for name, array in arrays.items()]
    if saved != [(variable.name, tuple(variable.shape)) for variable in variables]:
        raise UserError(f"The checkpoint {path} belongs to another model: choose another --output, or --overwrite.")
    for variable, value in zip(variables, arrays.values(), strict=True):
        variable.assign(value)
    return record


def _read(path):
    """Returns the arrays of a file that holds exactly what `save` wrote."""
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()  # before any array is read, whose header may ask for anything
        if damaged is not None:
            raise zipfile.BadZipFile(f"wrong checksum of {damaged}")
        with np.load(path) as archive:
            arrays = {name: archive[name] for name in archive.files}
        if not np.array_equal(arrays.pop(DIGEST), _digest(arrays)):
            raise ValueError("its arrays are not those that were written")
        return arrays
    except DAMAGE as error:
        raise DamagedCheckpoint(f"The checkpoint {path} is damaged ({sentence_of(error)})") from error


def _variables(model):
    return [*model.variables, *model.optimizer.variables]


def _digest(arrays):
    """32 bytes that follow from the names, types, shapes and values of arrays."""
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype} {array.shape};".encode())
        digest.update(array.tobytes())
    return np.frombuffer(digest.digest(), "uint8")
