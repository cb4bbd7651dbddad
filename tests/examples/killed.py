"""Runs scripts of examples/, one after another, and kills the process, with SIGKILL, at a chosen moment of the last.

    python killed.py MOMENT SCRIPT ARGUMENT ... [then SCRIPT ARGUMENT ...]

MOMENT is one of
    never
    step:N         after the N-th training step of this process
    half:FILE:N    when half of FILE is written, the N-th time that it is written
    moved:FILE:N   right after FILE has got its name, the N-th time
"""

import collections
import importlib
import os
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "examples"))

from support import startup  # noqa: F401  isort: skip

import keras
from support import errors, files, training


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def arm(moment):
    """Makes the process die at that moment."""
    kind, *rest = moment.split(":")
    if kind == "step":
        training.StepWatch.on_train_batch_end = after(training.StepWatch.on_train_batch_end, int(rest[0]))
    elif kind == "half":
        files._sync = on_file(files._sync, halve_and_die, *rest)
    elif kind == "moved":
        os.replace = on_file(os.replace, call_and_die, *rest)


def after(function, times):
    calls = []

    def counted(*arguments, **options):
        result = function(*arguments, **options)
        calls.append(None)
        if len(calls) == times:
            die()
        return result

    return counted


def on_file(function, action, name, times):
    """`function`, except that its call number `times` for a file of that name is `action`."""
    calls = collections.Counter()

    def watched(*paths):
        calls[os.path.basename(paths[-1])] += 1
        if os.path.basename(paths[-1]) == name and calls[name] == int(times):
            return action(function, *paths)
        return function(*paths)

    return watched


def halve_and_die(function, path):
    os.truncate(path, os.path.getsize(path) // 2)
    die()


def call_and_die(function, *paths):
    function(*paths)
    die()


def split(words):
    """The words before the first `then`, and those behind it."""
    end = words.index("then")
    return words[:end], words[end + 1 :]


def call(words):
    script, *arguments = words
    return importlib.import_module(script).main(arguments)


def main(moment, *words):
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell runs in the background
    if keras.backend.backend() == "jax":
        import jax

        jax.config.update("jax_disable_most_optimizations", True)
    while "then" in words:
        command, words = split(words)
        assert call(command) == 0
    arm(moment)
    errors.run_as_script(lambda: call(words))


if __name__ == "__main__":
    main(*sys.argv[1:])
