"""Second derivatives on PyTorch: `torch.autograd.grad` twice, quicker on a CPU than `torch.func.jvp` twice."""

import torch

JIT_COMPILE = False


def value_and_second_derivative(function, x):
    x = x.detach().requires_grad_(True)
    value = function(x)
    (slope,) = torch.autograd.grad(value.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(slope.sum(), x, create_graph=True, materialize_grads=True)
    return value, second
