"""Errors that reach the user as one sentence and an exit status, never as a traceback."""

import contextlib
import importlib
import sys


class UserError(Exception):
    """Something the user can put right. The message names the culprit and the remedy."""

    exit_status = 2


class NonFiniteLoss(UserError):
    """The loss became NaN or infinite."""

    exit_status = 3


class Interrupted(UserError):
    """Ctrl-C."""

    exit_status = 130


def sentence_of(error):
    """What an error says, on one line and without a full stop, to stand inside of another sentence."""
    return " ".join(str(error).split()).rstrip(".")


@contextlib.contextmanager
def building(model):
    """A `with` block that builds a model; a `ValueError` in it becomes a `UserError` about the model called `model`."""
    try:
        yield
    except ValueError as error:
        raise UserError(f"The model {model} cannot be built ({sentence_of(error)}): change its options.") from error


def exit_status_of(main, *arguments):
    """Calls `main(*arguments)` and returns its exit status; the sentence of a `UserError` goes to stderr."""
    try:
        main(*arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        print("error: interrupted; what was finished is kept.", file=sys.stderr)
        return Interrupted.exit_status
    return 0


def require(module, purpose):
    """Imports a package that the examples use and the library does not."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = {"sklearn": "scikit-learn", "PIL": "pillow"}.get(module.split(".")[0], module.split(".")[0])
        raise UserError(
            f"{purpose} needs the package {package}, which cannot be imported ({error}): run `pip install {package}`, "
            "or install keras-polycom with its extra `examples`."
        ) from error
