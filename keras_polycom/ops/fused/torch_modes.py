"""What a torch.autograd.Function cannot do: be transformed, or differentiated in forward mode more than once."""

import torch
from torch.autograd.forward_ad import unpack_dual


def is_transformed(*tensors):
    """Whether `torch.func` transforms the call, or a tensor carries a forward-mode tangent.

    Then operations that PyTorch knows how to transform are called for, instead of a hand-written derivative: nested
    forward mode through a `Function` is silently wrong, and its tracer cannot vectorise one.
    """
    # Private, for want of a public question. isinstance: torch.compile takes the empty stack's None for an object.
    if isinstance(torch._C._functorch.peek_interpreter_stack(), torch._C._functorch.CInterpreter):
        return True
    return not torch.compiler.is_compiling() and any(_has_tangent(t) for t in tensors if t is not None)


def _has_tangent(x):
    return unpack_dual(x).tangent is not None
