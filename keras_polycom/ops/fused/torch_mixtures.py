"""Mixtures of activations of one or two branches with a hand-written derivative that keeps only the branches.

Either `sum_j w_j s_k(y) t_l(z)` over pairs (k, l) of activations, where with a single branch `s = 1`; or, without
pairs, the product of two sums, `sum_k w_k s_k(y) sum_l w_l t_l(z)`. Branches are (rows, hidden), weights (rows or 1,
number of pairs), or those of the two sums one after the other.
"""

import math

import torch

from keras_polycom.ops.activation_functions import ACTIVATION_FUNCTIONS
from keras_polycom.ops.fused.torch_chunks import row_slices, rows_of
from keras_polycom.ops.fused.torch_compiled import CompiledHalf, wants_compiling
from keras_polycom.ops.fused.torch_modes import is_transformed

ONE = "one"


def names_of(activations):
    """The names of the callables in `ACTIVATION_FUNCTIONS`, `None` if there is another one among them."""
    names = {function: name for name, function in ACTIVATION_FUNCTIONS.items()}
    found = tuple(names.get(activation) for activation in activations)
    return None if None in found else found


def mixture(y, z, weights, gate_names, up_names, pairs):
    """`sum_j w_j s_k(y) t_l(z)` over `pairs`, tuples (k, l) of positions in the two tuples of names, or their product.

    Args:
        y: tensor (rows, hidden), or `z` again where the gate is `ONE`.
        z: tensor (rows, hidden).
        weights: tensor (rows or 1, number of pairs, or of names) of the dtype to compute in.
        gate_names: tuple of names, or `(ONE,)`.
        up_names: tuple of names.
        pairs: tuple of pairs of integers, `None` for the product of two sums.
    """
    setting = gate_names, up_names, pairs
    if torch.compiler.is_compiling() or is_transformed(y, z, weights):
        return _forward(z, y, weights, *setting)
    return _Mixture.apply(z, y, weights, *setting)


class _Mixture(torch.autograd.Function):
    @staticmethod
    def forward(z, y, weights, *setting):
        done = None
        if wants_compiling(z):
            done = _compiled_forward.attempt(z.contiguous(), y.contiguous(), weights, *setting)
        return _forward_in_chunks(z, y, weights, *setting) if done is None else done

    @staticmethod
    def setup_context(ctx, inputs, output):
        z, y, weights, *ctx.setting = inputs
        ctx.save_for_backward(z, y, weights)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, upstream):
        z, y, weights = ctx.saved_tensors
        if upstream is None:
            return None, None, None, None, None, None
        half = _backward if torch.is_grad_enabled() else _backward_half
        grad_z, grad_y, grad_weights = half(z, y, weights, upstream, *ctx.setting)
        if weights.shape[0] == 1:
            grad_weights = grad_weights.sum(0, keepdim=True)
        return grad_z, grad_y if ctx.setting[0] != (ONE,) else None, grad_weights, None, None, None


def _value(name, x):
    if name == "gelu":
        return x * _normal_distribution(x)
    return {
        ONE: torch.ones_like,
        "identity": lambda x: x,
        "relu": torch.relu,
        "relu2": lambda x: torch.relu(x).square(),
        "leaky_relu": lambda x: torch.where(x > 0, x, 0.01 * x),
        "silu": lambda x: x * torch.sigmoid(x),
        "tanh": torch.tanh,
    }[name](x)


def _slope(name, x):
    if name == "gelu":
        # 1 / sqrt(2 pi) as a literal: compiled halves take `math.pi` for an argument, and a root of it in every step.
        return _normal_distribution(x) + x * torch.exp(-0.5 * x * x) * 0.3989422804014327
    if name == "silu":
        sigmoid = torch.sigmoid(x)
        return sigmoid * (1 + x * (1 - sigmoid))
    return {
        ONE: torch.zeros_like,
        "identity": torch.ones_like,
        "relu": lambda x: (x > 0).to(x.dtype),
        "relu2": lambda x: 2 * torch.relu(x),
        "leaky_relu": lambda x: torch.where(x > 0, torch.ones_like(x), 0.01),
        "tanh": lambda x: 1 - torch.tanh(x).square(),
    }[name](x)


def _normal_distribution(x):
    return 0.5 * (1 + torch.erf(x * math.sqrt(0.5)))


def _sums(weights, values, pairs, side, count):
    """For each of `count` activations of one side: `sum w_j v` over its pairs, v the values of the other side."""
    return [
        sum(weights[:, j, None] * values[pair[1 - side]] for j, pair in enumerate(pairs) if pair[side] == k)
        for k in range(count)
    ]


def _columns(weights, gate_names):
    """The weights of the two sums, each a list of columns."""
    columns = [weights[:, j, None] for j in range(weights.shape[1])]
    return columns[: len(gate_names)], columns[len(gate_names) :]


def _weighted(function, names, x, columns):
    return sum(column * function(name, x) for name, column in zip(names, columns, strict=True))


def _forward(z, y, weights, gate_names, up_names, pairs):
    raised, gate = z.to(weights.dtype), y.to(weights.dtype)
    if pairs is None:
        gate_weights, up_weights = _columns(weights, gate_names)
        out = _weighted(_value, gate_names, gate, gate_weights) * _weighted(_value, up_names, raised, up_weights)
        return out.to(z.dtype)
    rows = _sums(weights, [_value(name, raised) for name in up_names], pairs, 0, len(gate_names))
    if gate_names == (ONE,):
        return rows[0].to(z.dtype)
    return sum(_value(name, gate) * row for name, row in zip(gate_names, rows, strict=True)).to(z.dtype)


def _backward(z, y, weights, upstream, gate_names, up_names, pairs):
    """Gradients of z, y and, per row, the weights."""
    raised, gate, g = z.to(weights.dtype), y.to(weights.dtype), upstream.to(weights.dtype)
    if pairs is None:
        gate_weights, up_weights = _columns(weights, gate_names)
        gate_pull = g * _weighted(_value, up_names, raised, up_weights)
        up_pull = g * _weighted(_value, gate_names, gate, gate_weights)
        grad_z = up_pull * _weighted(_slope, up_names, raised, up_weights)
        grad_y = gate_pull * _weighted(_slope, gate_names, gate, gate_weights)
        grad_weights = [(gate_pull * _value(name, gate)).sum(1) for name in gate_names]
        grad_weights += [(up_pull * _value(name, raised)).sum(1) for name in up_names]
        return grad_z.to(z.dtype), grad_y.to(y.dtype), torch.stack(grad_weights, dim=1)
    up_values, gate_values = [_value(n, raised) for n in up_names], [_value(n, gate) for n in gate_names]
    columns = _sums(weights, gate_values, pairs, 1, len(up_names))
    grad_z = g * sum(_slope(n, raised) * column for n, column in zip(up_names, columns, strict=True))
    rows = _sums(weights, up_values, pairs, 0, len(gate_names))
    grad_y = g * sum(_slope(n, gate) * row for n, row in zip(gate_names, rows, strict=True))
    pulled = [g * value for value in gate_values]
    grad_weights = torch.stack([(pulled[k] * up_values[i]).sum(1) for k, i in pairs], dim=1)
    return grad_z.to(z.dtype), grad_y.to(y.dtype), grad_weights


_compiled_forward, _compiled_backward = CompiledHalf(_forward), CompiledHalf(_backward)


def _backward_half(z, y, weights, upstream, *setting):
    done = None
    if wants_compiling(z):
        done = _compiled_backward.attempt(z.contiguous(), y.contiguous(), weights, upstream.contiguous(), *setting)
    return done or _backward_in_chunks(z, y, weights, upstream, *setting)


def _forward_in_chunks(z, y, weights, *setting):
    out = torch.empty(z.shape, dtype=z.dtype)
    for rows in row_slices(z):
        out[rows] = _forward(z[rows], y[rows], rows_of(weights, rows), *setting)
    return out


def _backward_in_chunks(z, y, weights, upstream, *setting):
    grad_z, grad_y = torch.empty(z.shape, dtype=z.dtype), torch.empty(y.shape, dtype=y.dtype)
    grad_weights = []
    for rows in row_slices(z):
        grad_z[rows], grad_y[rows], per_row = _backward(
            z[rows], y[rows], rows_of(weights, rows), upstream[rows], *setting
        )
        grad_weights.append(per_row)
    return grad_z, grad_y, torch.cat(grad_weights)
