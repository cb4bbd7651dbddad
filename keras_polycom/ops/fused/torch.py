"""Faster versions of the ops on PyTorch: hand-written derivatives that keep the input and a few numbers per row.

In eager mode on a CPU rows are worked on a few at a time, and for big inputs forward and backward are compiled on first
use where a C++ compiler is found (`keras_polycom.config.set_compile_halves`). torch.compile traces into them.

Derivatives of every order and mode are right, under `torch.func` too. Exporting takes the formulas.
"""

import sys

import torch

from keras_polycom import config
from keras_polycom.ops.fused import (
    torch_blocks,
    torch_mixtures,
    torch_poly_norm_function,
    torch_poly_relu,
    torch_triton,
)
from keras_polycom.ops.fused.shared import epsilon_refusal
from keras_polycom.ops.fused.torch_compiled import wants_compiling
from keras_polycom.ops.fused.torch_inputs import as_index, as_tensor, as_weight


def module_for(x):
    """The file that is asked about `x`: `torch_triton` for CUDA tensors where Triton can be used, else this one."""
    return torch_triton if torch_triton.serves(x) else sys.modules[__name__]


def poly_relu(x, coefficients, bias=None):
    """`a_0 + sum_i a_i relu(x)^i`; see `keras_polycom.ops.poly_relu`."""
    x = as_tensor(x)
    bias = None if bias is None else as_weight(bias, x).reshape(())
    return torch_poly_relu.poly_relu(x, as_weight(coefficients, x), bias)


def poly_relu_refuses(x, coefficients, bias=None):
    return _refusal(x)


def poly_norm(x, coefficients, bias=None, axis=-1, epsilon=1e-6):
    """`a_0 + sum_i a_i norm(x^i)`; see `keras_polycom.ops.poly_norm`."""
    x = as_tensor(x)
    coefficients = as_weight(coefficients, x)[None]
    bias = None if bias is None else as_weight(bias, x).reshape(1)
    return _along(x, coefficients, bias, axis, epsilon)


def poly_norm_refuses(x, coefficients, bias=None, axis=-1, epsilon=1e-6):
    return _refusal(x, epsilon)


def grouped_poly_norm(x, coefficients, bias, group_index, axis=-1, epsilon=1e-6):
    """PolyNorm with coefficients per group; see `keras_polycom.ops.grouped_poly_norm`."""
    x = as_tensor(x)
    coefficients = as_weight(coefficients, x)
    index = as_index(group_index, coefficients.shape[0])
    rows = x.shape[: axis % x.dim()]
    index = index.reshape(*index.shape, *(1,) * (len(rows) - index.dim())).expand(rows).reshape(-1)
    bias = None if bias is None else as_weight(bias, x)[index]
    return _along(x, coefficients[index], bias, axis, epsilon)


def grouped_poly_norm_refuses(x, coefficients, bias, group_index, axis=-1, epsilon=1e-6):
    return _refusal(x, epsilon)


def block_normalization(x, axes, groups, gamma=None, beta=None, axis=-1, center=True, epsilon=1e-5, mask=None):
    """Layer normalization of runs of channels; see `keras_polycom.ops.block_normalization`."""
    x, (runs,) = as_tensor(x), groups
    gamma, beta = (None if w is None else as_weight(w, x).reshape(runs, -1) for w in (gamma, beta))
    rows = x.reshape(-1, runs, x.shape[-1] // runs)
    return torch_blocks.normalize_runs(rows, gamma, beta, epsilon, center).reshape(x.shape)


def block_normalization_refuses(x, axes, groups, gamma=None, beta=None, axis=-1, center=True, epsilon=1e-5, mask=None):
    last = len(x.shape) - 1
    if tuple(axes) != (last,) or axis % len(x.shape) != last or x.shape[last] % groups[0]:
        return "it is for equal runs along the last axis only"
    if mask is not None:
        return "it takes no mask"
    if config.fast_roads() == "auto" and torch.compiler.is_compiling():
        return "torch.compile makes more of the formula"
    return _refusal(x, epsilon)


def mix_activations(h, weights, activations):
    """`sum_k w_k s_k(h)`; see `keras_polycom.ops.mix_activations`."""
    h, names = as_tensor(h), torch_mixtures.names_of(activations)
    pairs = tuple((0, k) for k in range(len(names)))
    return _mixture(h, h, _mixing(weights, h), (torch_mixtures.ONE,), names, pairs)


def mix_activations_refuses(h, weights, activations):
    return _mixture_refusal(h, h, activations)


def mix_one_sided(y, z, weights, activations):
    """`silu(y) sum_k w_k s_k(z)`; see `keras_polycom.ops.mix_one_sided`."""
    y, z, names = as_tensor(y), as_tensor(z), torch_mixtures.names_of(activations)
    pairs = tuple((0, k) for k in range(len(names)))
    return _mixture(y, z, _mixing(weights, z), ("silu",), names, pairs)


def mix_one_sided_refuses(y, z, weights, activations):
    return _mixture_refusal(y, z, activations)


def mix_bi_sided(y, z, gate_weights, up_weights, activations, up_activations):
    """`sum_k r_k s_k(y) sum_l p_l s_l(z)`; see `keras_polycom.ops.mix_bi_sided`."""
    y, z = as_tensor(y), as_tensor(z)
    names = torch_mixtures.names_of(activations), torch_mixtures.names_of(up_activations)
    weights = [_mixing(gate_weights, y), _mixing(up_weights, z)]
    if weights[0].dim() != weights[1].dim():
        weights = [w.expand(*z.shape[:-1], w.shape[-1]) for w in weights]
    return _mixture(y, z, torch.cat(weights, dim=-1), *names, None)


def mix_bi_sided_refuses(y, z, gate_weights, up_weights, activations, up_activations):
    return _mixture_refusal(y, z, (*activations, *up_activations))


def mix_quadratic(y, z, weights, activations, up_activations):
    """`sum_{k<=l} p_kl s_k(y) s_l(z)`; see `keras_polycom.ops.mix_quadratic`."""
    y, z = as_tensor(y), as_tensor(z)
    gate_names, up_names = torch_mixtures.names_of(activations), torch_mixtures.names_of(up_activations)
    pairs = tuple((k, i) for k in range(len(gate_names)) for i in range(k, len(up_names)))
    return _mixture(y, z, _mixing(weights, z), gate_names, up_names, pairs)


def mix_quadratic_refuses(y, z, weights, activations, up_activations):
    return _mixture_refusal(y, z, (*activations, *up_activations))


def _mixing(weights, x):
    """Weights (n,), or with one set per token spread over all leading axes of `x`."""
    weights = as_weight(weights, x)
    return weights if weights.dim() == 1 else weights.expand(*x.shape[:-1], weights.shape[-1])


def _mixture(y, z, weights, *setting):
    rows = y.reshape(-1, y.shape[-1]), z.reshape(-1, z.shape[-1]), weights.reshape(-1, weights.shape[-1])
    return torch_mixtures.mixture(*rows, *setting).reshape(z.shape)


def _mixture_refusal(y, z, activations):
    if torch_mixtures.names_of(activations) is None:
        return "it is for the activations in keras_polycom.ops.ACTIVATION_FUNCTIONS only"
    if y.dtype != z.dtype or len(z.shape) == 0:
        return "its branches differ in dtype or have no axes"
    if config.fast_roads() == "auto" and not torch.compiler.is_compiling() and not wants_compiling(as_tensor(z)):
        return "it pays only where it is compiled, for big inputs"
    return _refusal(y) or _refusal(z)


def _along(x, coefficients, bias, axis, epsilon):
    axis %= x.dim()
    after = x.shape[axis + 1 :]
    rows = (-1, x.shape[axis], after.numel()) if after.numel() > 1 else (-1, x.shape[axis])
    return torch_poly_norm_function.poly_norm(x.reshape(rows), coefficients, bias, epsilon).reshape(x.shape)


def _refusal(x, epsilon=1.0):
    """Why `x` cannot be taken, or `None`."""
    x = as_tensor(x)
    if reason := epsilon_refusal(epsilon):
        return reason
    if not x.is_floating_point():
        return f"its input is of dtype {x.dtype}"
    if x.numel() == 0:
        return "its input is empty"
    return _refusal_of_mode(x)


def _refusal_of_mode(x):
    if torch.compiler.is_exporting() or torch.jit.is_tracing():
        return "it is being exported"
    if torch.compiler.is_compiling():
        return None
    if type(x) not in (torch.Tensor, torch.nn.Parameter):
        return f"its input is a {type(x).__name__}"
    return None if x.device.type == "cpu" else f"its input is on {x.device}"
