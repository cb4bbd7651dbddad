"""Files that are written whole or not at all."""

import contextlib
import json
import os
import pathlib

from support.errors import UserError


@contextlib.contextmanager
def whole_file(path, option="--output"):
    """A `with` block that is given a temporary path beside `path`, which becomes `path` if the block succeeds.

    `option` is the one that the path comes from.

    Raises:
        UserError: the file cannot be written. What was at `path` before is still there.
    """
    path = pathlib.Path(path)
    temporary = path.with_name(f".partial-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(
            f"{path} cannot be written ({error.strerror or error}), what was there before is unchanged: make room or "
            f"choose another {option}."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_text(path, text, **kwargs):
    with whole_file(path, **kwargs) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path, value, **kwargs):
    write_text(path, json.dumps(value, indent=2) + "\n", **kwargs)


def read_json(path):
    """Returns the content of a JSON file, or `None` where there is no such file."""
    try:
        return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}): delete it, or start afresh with --overwrite.") from error
