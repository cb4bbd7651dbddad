"""Liger-Kernel's PolyNorm, a Triton kernel for CUDA, to be measured beside ours where it is installed."""

import importlib.util

import keras

NAME = "liger_poly_norm"


def refusal(mode):
    """Why Liger-Kernel's PolyNorm cannot run here, or `None`."""
    if keras.backend.backend() != "torch":
        return "it is made for PyTorch"
    import torch

    if not torch.cuda.is_available():
        return "it needs a CUDA device"
    if importlib.util.find_spec("liger_kernel") is None:
        return "the package liger-kernel is not installed"
    if mode != "eager":
        return "it is launched by hand, outside of what torch.compile sees (--backend-mode eager has it)"
    return None


def poly_norm(inputs):
    from liger_kernel.ops.poly_norm import LigerPolyNormFunction

    def function(x, coefficients, bias):  # not in place, which would overwrite the upstream gradient
        return LigerPolyNormFunction.apply(x, coefficients, bias, 1e-6, False)

    return function, (inputs.x, inputs.weights(3), inputs.weights())
