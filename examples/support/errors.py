"""Errors that reach the user as one sentence and an exit status, never as a traceback."""

import contextlib
import errno
import importlib
import os
import signal
import sys
import threading
import traceback

import keras

# What the system says when a write fails through no fault of the program's: no room, no permission, nobody reading.
REFUSED_WRITES = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EPIPE}
_ends_at_once = False  # whether this process is a script's own


class UserError(Exception):
    """Something the user can put right. The message names the culprit and the remedy."""

    exit_status = 2


class NonFiniteLoss(UserError):
    """The loss became NaN or infinite."""

    exit_status = 3


class Interrupted(UserError):
    """Ctrl-C, or SIGTERM if that is the `cause`."""

    exit_status = 130

    def __init__(self, sentence, cause=None):
        terminated = isinstance(cause, Terminated)
        super().__init__(f"{'terminated' if terminated else 'interrupted'}{sentence}")
        if terminated:
            self.exit_status = 128 + signal.SIGTERM


class Terminated(KeyboardInterrupt):
    """SIGTERM: what is done about Ctrl-C is done about it too."""


@contextlib.contextmanager
def termination_raised():
    """A `with` block in which SIGTERM raises `Terminated`. In threads other than the main one it changes nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(number, frame):
        raise Terminated

    former = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


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
        with termination_raised():
            main(*arguments)
    except UserError as error:
        return _leave(error)
    except KeyboardInterrupt as error:
        return _leave(Interrupted("; what was finished is kept.", error))
    except OSError as error:
        if error.errno not in REFUSED_WRITES:
            raise
        return _leave_unheard(error)
    return 0


def run_as_script(main):
    """Calls `main`, which returns an exit status, and ends the process with it, at once where something went wrong.

    An error that stops TensorFlow in the middle of an epoch leaves threads that read ahead. When Python frees what they
    read for, or takes itself down, it waits for them, and they for Python: the process would hang. So nothing is freed:
    whatever had to be written is on the disk by then.
    """
    global _ends_at_once
    _ends_at_once = True
    keras.config.disable_traceback_filtering()  # which frees it before the error gets here
    try:
        status = main()
    except SystemExit:  # of the command line: nothing has begun
        raise
    except BaseException:
        traceback.print_exc()
        _end(1)
    sys.exit(status)


def _end(status):
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(status)


def _leave(error):
    print(f"error: {error}", file=sys.stderr)
    if _ends_at_once:
        _end(error.exit_status)
    return error.exit_status


def _leave_unheard(error):
    """Ends after a failed write that is nobody's else: to stdout, which is not tried again at exit."""
    with contextlib.suppress(OSError), open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    return _leave(UserError(f"the output cannot be written ({error.strerror}); what was finished is kept."))


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
