"""PyTorch operators around Triton kernels: one node for torch.compile and torch.export, with derivatives of any order.

Triton is loaded when an operator first runs, not before.
"""

import importlib

import torch

from keras_polycom.ops.fused.torch_modes import is_transformed

_NAMESPACE = "keras_polycom"


class Operator:
    """The operator `keras_polycom::triton_NAME` and its derivative, `keras_polycom::triton_NAME_backward`.

    Args:
        name: string.
        arguments: string, the operator's arguments as PyTorch declares them, tensors first. The first tensor gives the
            result its shape and dtype.
        kernels: string, the file beside this one that launches the kernels, and what stands before `forward` and
            `backward` in the names of its two functions: `"torch_triton_mixtures.sum_"`. The first takes the arguments;
            the second the upstream gradient before them, and returns a list with the gradient of every floating tensor.
        formula: callable that takes the arguments too: differentiable PyTorch operations for the same value. It serves
            derivatives of the derivative, and transformations such as `torch.func.vmap`.
        keeps_strides: bool. Whether results are laid out as the tensor they belong to is, instead of contiguously.
    """

    def __init__(self, name, arguments, kernels, formula, keeps_strides=False):
        self._formula = formula
        self._tensors = arguments.count("Tensor")
        self._empty = torch.empty_like if keeps_strides else _contiguous
        self._forward = self._define(f"triton_{name}", f"({arguments}) -> Tensor", f"{kernels}forward")
        self._backward = self._define(
            f"triton_{name}_backward", f"(Tensor upstream, {arguments}) -> Tensor[]", f"{kernels}backward"
        )
        self._forward.register_fake(lambda x, *_: self._empty(x))
        self._backward.register_fake(lambda _, *args: [self._empty(t) for t in args if _is_floating(t)])
        self._forward.register_autograd(self._differentiate, setup_context=self._keep)

    def __call__(self, *args):
        if is_transformed(*args[: self._tensors]):
            return self._formula(*args)
        return self._forward(*args)

    @staticmethod
    def _define(name, schema, function):
        module, function = function.split(".")

        def run(*args):
            return getattr(importlib.import_module(f"{__package__}.{module}"), function)(*args)

        return torch.library.custom_op(f"{_NAMESPACE}::{name}", run, mutates_args=(), schema=schema)

    def _keep(self, ctx, inputs, output):
        ctx.save_for_backward(*inputs[: self._tensors])
        ctx.settings = inputs[self._tensors :]

    def _differentiate(self, ctx, upstream):
        tensors, settings = ctx.saved_tensors, ctx.settings
        if torch.is_grad_enabled():  # a derivative of what follows is wanted
            wanted = ctx.needs_input_grad[: self._tensors]
            return *self._differentiable_gradients(tensors, settings, wanted, upstream), *(None for _ in settings)
        gradients = iter(self._backward(upstream, *tensors, *settings))
        return *(next(gradients) if _is_floating(t) else None for t in tensors), *(None for _ in settings)

    def _differentiable_gradients(self, tensors, settings, wanted, upstream):
        # Of aliases, as one of the tensors may have been computed from another.
        aliases = [t.view_as(t) if w else t for t, w in zip(tensors, wanted, strict=True)]
        value = self._formula(*aliases, *settings)
        sources = [alias for alias, w in zip(aliases, wanted, strict=True) if w]
        gradients = iter(torch.autograd.grad(value, sources, upstream, create_graph=True, materialize_grads=True))
        return [next(gradients) if w else None for w in wanted]


def _is_floating(x):
    return isinstance(x, torch.Tensor) and x.is_floating_point()


def _contiguous(x):
    return x.new_empty(x.shape)
