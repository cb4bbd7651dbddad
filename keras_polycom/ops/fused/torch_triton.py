"""Faster versions of the ops on CUDA tensors in PyTorch: Triton kernels, forward and backward.

Each op is one node for torch.compile and torch.export. Between forward and backward only its inputs are kept; numbers
per row are taken anew. Everything is computed in float32 at least, incoming gradients are not written to, and gradients
of weights are summed in a fixed order, so that they are the same every time. Derivatives of the derivative, forward
mode and `torch.func` go through the formulas.

Where TRITON_INTERPRET=1 is in the environment before Keras is imported the functions take CPU tensors too: slowly, for
tests.

`block` limits how many numbers of a row (PolyReLU: of the tensor) a program works on at once, a power of 2; 0 lets the
kernels choose.
"""

import importlib.util
import os
import shutil

import keras
import numpy as np
import torch

from keras_polycom.ops.activation_functions import ACTIVATION_FUNCTIONS
from keras_polycom.ops.fused import torch_poly_norm, torch_poly_relu
from keras_polycom.ops.fused.shared import dictionary_refusal, epsilon_refusal, formulas, runs_refusal
from keras_polycom.ops.fused.torch_inputs import as_index, as_tensor, as_weight
from keras_polycom.ops.fused.torch_triton_operator import Operator

# Those whose kernels exist, in the order of their numbers.
ACTIVATIONS = tuple(
    ACTIVATION_FUNCTIONS[name] for name in ("relu", "relu2", "leaky_relu", "gelu", "silu", "tanh", "identity")
)

_LARGEST_RUN = 4096
_SILU = ACTIVATIONS.index(ACTIVATION_FUNCTIONS["silu"])
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def _missing():
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    if not _INTERPRETED and not any(shutil.which(name) for name in (os.environ.get("CC"), "gcc", "clang") if name):
        return "Triton finds no C compiler (CC, gcc, clang) to build its launchers with"
    return None


_MISSING = _missing()  # not at the first call, which may be inside a compiler's trace


def is_available():
    """Whether Triton is installed and can be used."""
    return _MISSING is None


def serves(x):
    """Whether it is this file that is asked about `x`: a CUDA tensor, where Triton can be used."""
    return is_available() and not keras.utils.is_keras_tensor(x) and as_tensor(x).is_cuda


def poly_relu(x, coefficients, bias=None, block=0):
    """`a_0 + sum_i a_i relu(x)^i`; see `keras_polycom.ops.poly_relu`."""
    x = as_tensor(x)
    bias = None if bias is None else as_weight(bias, x).reshape(1)
    return _poly_relu(x, as_weight(coefficients, x), bias, block)


def poly_relu_refuses(x, coefficients, bias=None):
    return _refusal(x)


def poly_norm(x, coefficients, bias=None, axis=-1, epsilon=1e-6, block=0):
    """`a_0 + sum_i a_i norm(x^i)`; see `keras_polycom.ops.poly_norm`."""
    return _normalized_polynomial(as_tensor(x), None, coefficients, bias, axis, epsilon, block)


def poly_norm_refuses(x, coefficients, bias=None, axis=-1, epsilon=1e-6):
    return _refusal(x, epsilon=epsilon)


def poly_norm_gate(x, y, coefficients, bias=None, axis=-1, epsilon=1e-6, block=0):
    """`poly_norm(x) * y`, the polynomial gated linear unit, without writing down its first factor.

    Args:
        x, coefficients, bias, axis, epsilon: as for `keras_polycom.ops.poly_norm`.
        y: tensor of the shape and dtype of `x`.
    """
    return _normalized_polynomial(as_tensor(x), as_tensor(y), coefficients, bias, axis, epsilon, block)


def poly_norm_gate_refuses(x, y, coefficients, bias=None, axis=-1, epsilon=1e-6):
    return _refusal(x, y, epsilon=epsilon)


def grouped_poly_norm(x, coefficients, bias, group_index, axis=-1, epsilon=1e-6, block=0):
    """PolyNorm with coefficients per group; see `keras_polycom.ops.grouped_poly_norm`."""
    x = as_tensor(x)
    axis %= x.dim()
    coefficients = as_weight(coefficients, x)
    index = as_index(group_index, coefficients.shape[0])
    leading = x.shape[:axis]
    index = index.reshape(*index.shape, *(1,) * (x.dim() - 1 - index.dim()))
    index = index.expand(*leading, *x.shape[axis + 1 :]).reshape(-1)
    bias = None if bias is None else as_weight(bias, x)
    rows, restore = _rows(x, axis)
    return restore(_poly_norm(rows, None, coefficients, bias, index, float(epsilon), block))


def grouped_poly_norm_refuses(x, coefficients, bias, group_index, axis=-1, epsilon=1e-6):
    return _refusal(x, epsilon=epsilon)


def block_normalization(x, axes, groups, gamma=None, beta=None, axis=-1, center=True, epsilon=1e-5, mask=None):
    """Layer normalization of runs of channels; see `keras_polycom.ops.block_normalization`."""
    x = as_tensor(x)
    gamma, beta = (None if weight is None else as_weight(weight, x) for weight in (gamma, beta))
    rows, restore = _rows(x, axis)
    return restore(_runs(rows, gamma, beta, rows.shape[1] // groups[0], bool(center), float(epsilon)))


def block_normalization_refuses(x, axes, groups, gamma=None, beta=None, axis=-1, center=True, epsilon=1e-5, mask=None):
    rank = len(x.shape)
    if [a % rank for a in axes] != [axis % rank]:
        return "it is for runs of channels"
    if mask is not None:
        return "it takes no mask"
    channels, runs = x.shape[axis], groups[0]
    if reason := runs_refusal(channels, runs):
        return reason
    if channels // runs > _LARGEST_RUN:
        return f"runs of {channels // runs} channels are longer than {_LARGEST_RUN}"
    return _refusal(x, epsilon=epsilon)


def mix_activations(h, weights, activations, block=0):
    """`sum_k w_k s_k(h)`; see `keras_polycom.ops.mix_activations`."""
    h = as_tensor(h)
    rows, restore = _rows(h, -1)
    return restore(_mix_sum(rows, _weights_of_rows(weights, h), _codes(activations), block))


def mix_activations_refuses(h, weights, activations):
    return _mixture_refusal((h,), activations)


def mix_one_sided(y, z, weights, activations, block=0):
    """`silu(y) sum_k w_k s_k(z)`; see `keras_polycom.ops.mix_one_sided`."""
    y, z = as_tensor(y), as_tensor(z)
    one = as_weight(np.ones(1), y)
    (rows, restore), (up_rows, _) = _rows(y, -1), _rows(z, -1)
    weights = [_weights_of_rows(one, y), _weights_of_rows(weights, z)]
    return restore(_mix_product(rows, up_rows, *weights, [_SILU], _codes(activations), block))


def mix_one_sided_refuses(y, z, weights, activations):
    return _mixture_refusal((y, z), activations)


def mix_bi_sided(y, z, gate_weights, up_weights, activations, up_activations, block=0):
    """`sum_k r_k s_k(y) sum_l p_l s_l(z)`; see `keras_polycom.ops.mix_bi_sided`."""
    y, z = as_tensor(y), as_tensor(z)
    (rows, restore), (up_rows, _) = _rows(y, -1), _rows(z, -1)
    weights = [_weights_of_rows(gate_weights, y), _weights_of_rows(up_weights, z)]
    return restore(_mix_product(rows, up_rows, *weights, _codes(activations), _codes(up_activations), block))


def mix_bi_sided_refuses(y, z, gate_weights, up_weights, activations, up_activations):
    return _mixture_refusal((y, z), activations, up_activations)


def mix_quadratic(y, z, weights, activations, up_activations, block=0):
    """`sum_{k<=l} p_kl s_k(y) s_l(z)`; see `keras_polycom.ops.mix_quadratic`."""
    y, z = as_tensor(y), as_tensor(z)
    (rows, restore), (up_rows, _) = _rows(y, -1), _rows(z, -1)
    codes = _codes(activations), _codes(up_activations)
    return restore(_mix_pairs(rows, up_rows, _weights_of_rows(weights, z), *codes, block))


def mix_quadratic_refuses(y, z, weights, activations, up_activations):
    return _mixture_refusal((y, z), activations, up_activations)


def _normalized_polynomial(x, gate, coefficients, bias, axis, epsilon, block):
    coefficients = as_weight(coefficients, x)[None]
    bias = None if bias is None else as_weight(bias, x).reshape(1)
    rows, restore = _rows(x, axis)
    gate = None if gate is None else _rows(gate, axis)[0]
    return restore(_poly_norm(rows, gate, coefficients, bias, None, float(epsilon), block))


def _rows(x, axis):
    """`x` as (rows, length of `axis`), and a function that undoes it."""
    moved = x.movedim(axis, -1)
    return moved.reshape(-1, moved.shape[-1]), lambda rows: rows.reshape(moved.shape).movedim(-1, axis)


def _weights_of_rows(weights, x):
    """(n,) or (..., n), in the dtype to compute in, as (rows, n); not copied for every row."""
    weights = as_weight(weights, x)
    return weights.expand(*x.shape[:-1], weights.shape[-1]).reshape(-1, weights.shape[-1])


def _codes(activations):
    return [ACTIVATIONS.index(activation) for activation in activations]


def _mixture_refusal(branches, *dictionaries):
    return dictionary_refusal(*dictionaries, known=ACTIVATIONS) or _refusal(*branches)


def _refusal(x, *others, epsilon=1.0):
    """Why `x`, and others that must be like it, cannot be taken, or `None`."""
    x, others = as_tensor(x), [as_tensor(other) for other in others]
    if _MISSING is not None:
        return _MISSING
    if not x.is_cuda and not (_INTERPRETED and x.device.type == "cpu"):
        return f"it needs a CUDA tensor, and its input is on {x.device}"
    if reason := epsilon_refusal(epsilon):
        return reason
    if x.dtype not in _DTYPES:
        return f"its input is of dtype {x.dtype}"
    if x.numel() == 0:
        return "its input is empty"
    for other in others:
        if (other.dtype, other.shape, other.device) != (x.dtype, x.shape, x.device):
            return "its inputs are not of one shape and dtype on one device"
    return _refusal_of_mode(x)


def _refusal_of_mode(x):
    if torch.jit.is_tracing() or (torch.compiler.is_exporting() and torch.onnx.is_in_onnx_export()):
        return "it is being exported to a format without operators of our own"
    if torch.compiler.is_compiling() or type(x) in (torch.Tensor, torch.nn.Parameter):
        return None
    return f"its input is a {type(x).__name__}"


def _poly_relu_formula(x, coefficients, bias, block):
    return torch_poly_relu.value(x, coefficients, bias)


def _poly_norm_formula(x, gate, coefficients, bias, index, epsilon, block):
    if index is not None:
        coefficients, bias = coefficients[index], None if bias is None else bias[index]
    columns = [column[:, None] for column in coefficients.unbind(1)]
    value = torch_poly_norm.value(x, columns, None if bias is None else bias[:, None], epsilon)
    return (value if gate is None else value * gate).to(x.dtype)


def _runs_formula(x, gamma, beta, size, center, epsilon):
    runs = x.shape[1] // size
    formula = formulas("block_normalization")._block_normalization
    return formula(x, (1,), (runs,), gamma, beta, axis=1, center=center, epsilon=epsilon)


def _mix_sum_formula(h, weights, codes, block):
    return formulas("mix_activations")._mix_activations(h, weights, _functions(codes))


def _mix_product_formula(y, z, gate_weights, up_weights, gate_codes, up_codes, block):
    formula = formulas("mix_activations")._mix_bi_sided
    return formula(y, z, gate_weights, up_weights, _functions(gate_codes), _functions(up_codes))


def _mix_pairs_formula(y, z, weights, gate_codes, up_codes, block):
    return formulas("mix_activations")._mix_quadratic(y, z, weights, _functions(gate_codes), _functions(up_codes))


def _functions(codes):
    return [ACTIVATIONS[code] for code in codes]


_poly_relu = Operator(
    "poly_relu",
    "Tensor x, Tensor coefficients, Tensor? bias, int block",
    kernels="torch_triton_poly_relu.",
    formula=_poly_relu_formula,
    keeps_strides=True,
)
_poly_norm = Operator(
    "poly_norm",
    "Tensor x, Tensor? gate, Tensor coefficients, Tensor? bias, Tensor? index, float epsilon, int block",
    kernels="torch_triton_poly_norm.",
    formula=_poly_norm_formula,
)
_runs = Operator(
    "normalize_runs",
    "Tensor x, Tensor? gamma, Tensor? beta, int size, bool center, float epsilon",
    kernels="torch_triton_runs.",
    formula=_runs_formula,
)
_mix_sum = Operator(
    "mix_sum",
    "Tensor h, Tensor weights, int[] codes, int block",
    kernels="torch_triton_mixtures.sum_",
    formula=_mix_sum_formula,
)
_mix_product = Operator(
    "mix_product",
    "Tensor y, Tensor z, Tensor gate_weights, Tensor up_weights, int[] gate_codes, int[] up_codes, int block",
    kernels="torch_triton_mixtures.product_",
    formula=_mix_product_formula,
)
_mix_pairs = Operator(
    "mix_pairs",
    "Tensor y, Tensor z, Tensor weights, int[] gate_codes, int[] up_codes, int block",
    kernels="torch_triton_mixtures.pairs_",
    formula=_mix_pairs_formula,
)
