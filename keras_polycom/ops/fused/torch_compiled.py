"""Compiling the halves of an op, forward and backward, the first time a big input meets them on a CPU."""

import functools
import logging
import os
import shutil

import torch

from keras_polycom import config

SMALLEST = 2**20  # elements of an input for which a wait of seconds is worth its while

_log = logging.getLogger("keras_polycom")


@functools.cache
def has_compiler():
    """Whether a C++ compiler is found where PyTorch looks for one; if not, says so once."""
    found = any(shutil.which(name) for name in (os.environ.get("CXX"), "g++", "clang++") if name)
    if not found:
        _log.warning("No C++ compiler found (CXX, g++, clang++): fast roads on the CPU stay eager, which costs more.")
    return found


def wants_compiling(x):
    """Whether the halves of an op on `x` are to be compiled."""
    return x.numel() >= SMALLEST and config.compile_halves() and has_compiler()


class CompiledHalf:
    """A function of contiguous tensors, lists of them and numbers that is compiled on first use, for all sizes at once.

    `attempt` returns its result, or `None` where it can't be compiled, which is logged once.

    Args:
        function: callable, made of torch operations only.
        static: integer, an axis of the first tensor that is compiled anew for every size: a short one, to be summed
            over. Defaults to `None`.
    """

    def __init__(self, function, static=None):
        self._function = function
        self._static = static
        self._compiled = None
        self._broken = False

    def attempt(self, x, *args):
        if self._broken:
            return None
        try:
            compiled = self._compile()
            if self._static is not None:
                x = x.detach()  # the mark stays on the tensor, which is not ours
                torch._dynamo.mark_static(x, self._static)
            return compiled(x, *args)
        except self._errors as error:
            self._broken = True
            _log.warning("A fast road stays eager, as compiling it failed: %s", str(error).strip().splitlines()[0])
            return None

    def _compile(self):
        if self._compiled is None:  # torch.compile loads modules for seconds: not before it is needed
            self._compiled = torch.compile(self._function, fullgraph=True, dynamic=True)
            self._errors = (torch._dynamo.exc.TorchDynamoException, torch._dynamo.exc.FailOnRecompileLimitHit)
        return self._compiled
