"""PyTorch: eager, or torch.compile without a graph break."""

import os
import shutil
import sys

import torch

from support.benchmark.stopwatch import Measurement
from support.errors import UserError


class Runner:
    """See `runners`."""

    saved_remark = "saved: the storages of the tensors that autograd keeps."

    def __init__(self, mode):
        self.mode = mode
        if mode == "compile":
            _check_compiler()
            # One function here has many versions: of both roads, with and without gradients, for each op.
            torch._dynamo.config.recompile_limit = 1000

    def _compiled(self, function):
        return torch.compile(function, fullgraph=True, dynamic=False) if self.mode == "compile" else function

    @staticmethod
    def synchronise(outputs):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return outputs

    @torch.no_grad()
    def trace(self, case):
        case.function(*case.learnable, *case.fixed)

    def measurements(self, case, upstream):
        function = self._compiled(case.function)
        learnable = _leaves(case)

        def forward_with_graph():
            return function(*learnable, *case.fixed)

        @torch.no_grad()
        def forward(_):
            return function(*learnable, *case.fixed)

        def backward(y):
            return torch.autograd.grad(y, learnable, upstream)

        def both(_):
            y = forward_with_graph()
            return y, backward(y)

        return {
            "both": Measurement(both),
            "forward": Measurement(forward),
            "backward": Measurement(backward, setup=forward_with_graph),
        }

    def saved_bytes(self, case, upstream):
        del upstream
        sizes = {}

        def pack(tensor):
            storage = tensor.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
            return tensor  # kept until all are counted, so that no address is given twice

        function = self._compiled(case.function)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            y = function(*_leaves(case), *case.fixed)
        del y
        return sum(sizes.values())


def _leaves(case):
    return tuple(tensor.detach().requires_grad_() for tensor in case.learnable)


def _check_compiler():
    compiler = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    if not torch.cuda.is_available() and shutil.which(compiler.split()[0]) is None:
        raise UserError(
            f"--backend-mode compile needs a C++ compiler, and {compiler} is not found: install one, name it in the "
            "environment variable CXX, or choose --backend-mode eager."
        )
