"""Files that are written whole or not at all."""

import contextlib
import json
import os
import pathlib
import shutil

from support.errors import UserError

PARTIAL = ".partial"  # the folder beside a file in which it is written


@contextlib.contextmanager
def whole_file(path, option="--output", keep_as=None):
    """A `with` block that is given a temporary path near `path`, which becomes `path` if the block succeeds.

    Both the content and the name are on the disk when the block is left, so that neither a kill nor a power cut at any
    moment leaves a file that is cut off. What a kill leaves in the folder `PARTIAL`, `clear_partial` removes.

    Args:
        path: path.
        option: string, the option that the path comes from.
        keep_as: path or `None`. What was at `path` before is moved there just before it is replaced.

    Raises:
        UserError: the file cannot be written. What was at `path` before is still there.
    """
    path = pathlib.Path(path)
    temporary = path.parent / PARTIAL / path.name
    with writing(path, option, "what was there before is unchanged"):
        try:
            temporary.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            _sync(temporary)
            if keep_as is not None and path.exists():
                os.replace(path, keep_as)
            os.replace(temporary, path)
            _sync_folder(path.parent)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
                temporary.parent.rmdir()


@contextlib.contextmanager
def writing(path, option="--output", consequence="what was finished is kept"):
    """A `with` block that writes to `path`; an `OSError` in it becomes a `UserError`."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{path} cannot be written ({error.strerror or error}), {consequence}: make room or choose another "
            f"{option}."
        ) from error


def _sync(path):
    """Waits until the content of a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(path):
    with contextlib.suppress(OSError):  # not every system opens folders, nor every file system synchronises them
        _sync(path)


def clear_partial(folder):
    """Removes what a killed process was writing into `folder`."""
    shutil.rmtree(pathlib.Path(folder) / PARTIAL, ignore_errors=True)


def write_text(path, text, **kwargs):
    with whole_file(path, **kwargs) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path, value, **kwargs):
    write_text(path, json.dumps(value, indent=2) + "\n", **kwargs)


def read_json(path):
    """Returns the dict in a JSON file, or `None` where there is no such file."""
    try:
        value = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        if not isinstance(value, dict):
            raise ValueError(f"it holds a {type(value).__name__}, not an object")
        return value
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read ({error}), and with it which runs are finished: put a copy of it back, or start "
            "afresh with --overwrite."
        ) from error
