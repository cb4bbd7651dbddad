"""The rows of the table: ops of this package, each twice, and the stock functions they are measured against."""

import dataclasses
import re
from collections.abc import Callable

import keras

from keras_polycom import config, ops
from support.benchmark import liger
from support.errors import UserError, sentence_of

MIXED = ("gelu", "silu", "relu2")
AUTO, FORMULA, STOCK = "auto", "formula", "stock"
ROADS = {AUTO: "auto", FORMULA: "off", STOCK: "off"}
_NAME = re.compile(r"(\w+)(?:\[(\d+)\])?")


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """One row of the table.

    Args:
        op: string, the name as the user gave it.
        version: `"auto"` (as installed: the faster version where there is one), `"formula"` or `"stock"`.
        function: function of `learnable` and `fixed`, in this order.
        learnable: tuple of tensors that gradients are taken for, `x` first.
        fixed: tuple of the other tensors.
    """

    op: str
    version: str
    function: Callable
    learnable: tuple
    fixed: tuple = ()

    @property
    def label(self):
        return self.op if self.version == STOCK else f"{self.op} {self.version}"

    def road(self):
        """The context in which the function is traced and called."""
        return config.fast_roads_scope(ROADS[self.version])


def poly_relu(inputs, order=3):
    return lambda x, a, b: ops.poly_relu(x, a, b), (inputs.x, inputs.weights(order), inputs.weights())


def poly_norm(inputs, order=3):
    return lambda x, a, b: ops.poly_norm(x, a, b), (inputs.x, inputs.weights(order), inputs.weights())


def poly_relu_norm(inputs, order=3):
    return lambda x, a, b: ops.poly_relu_norm(x, a, b), (inputs.x, inputs.weights(order), inputs.weights())


def grouped_poly_norm(inputs, groups=8):
    learnable = (inputs.x, inputs.weights(groups, 3), inputs.weights(groups))
    index = inputs.indices(groups, inputs.shape[:-1])
    return lambda x, a, b, index: ops.grouped_poly_norm(x, a, b, index), learnable, (index,)


def pln(inputs, norm_size=8):
    learnable = (inputs.x, *_gains(inputs))
    return lambda x, gamma, beta: ops.parallel_layer_norm(x, norm_size, gamma, beta), learnable


def mix_activations(inputs):
    return lambda x, p: ops.mix_activations(x, p, MIXED), (inputs.x, _token_weights(inputs, len(MIXED)))


def mix_one_sided(inputs):
    learnable = (inputs.x, inputs.z, _token_weights(inputs, len(MIXED)))
    return lambda y, z, p: ops.mix_one_sided(y, z, p, MIXED), learnable


def mix_bi_sided(inputs):
    weights = [_token_weights(inputs, len(MIXED)) for _ in range(2)]
    return lambda y, z, r, p: ops.mix_bi_sided(y, z, r, p, MIXED), (inputs.x, inputs.z, *weights)


def mix_quadratic(inputs):
    pairs = len(MIXED) * (len(MIXED) + 1) // 2
    learnable = (inputs.x, inputs.z, _token_weights(inputs, pairs))
    return lambda y, z, p: ops.mix_quadratic(y, z, p, MIXED), learnable


def layer_norm(inputs):
    def function(x, gamma, beta):
        return keras.ops.layer_normalization(x, gamma=gamma, beta=beta, epsilon=1e-6)

    # Keras's layer casts its weights to the dtype that it computes in, so they come in that of x.
    return function, (inputs.x, *(keras.ops.cast(gain, inputs.dtype) for gain in _gains(inputs)))


def _gains(inputs):
    return inputs.weights(inputs.shape[-1]), inputs.weights(inputs.shape[-1])


def _token_weights(inputs, count):
    return inputs.weights(*inputs.shape[:-1], count)


STOCK_OPS = {
    "relu": lambda inputs: (lambda x: keras.ops.relu(x), (inputs.x,)),
    "silu": lambda inputs: (lambda x: keras.ops.silu(x), (inputs.x,)),
    "gelu": lambda inputs: (lambda x: keras.ops.gelu(x, approximate=False), (inputs.x,)),
    "layer_norm": layer_norm,
    liger.NAME: liger.poly_norm,
}
OWN_OPS = {
    maker.__name__: maker
    for maker in (
        poly_relu,
        poly_norm,
        poly_relu_norm,
        grouped_poly_norm,
        pln,
        mix_activations,
        mix_one_sided,
        mix_bi_sided,
        mix_quadratic,
    )
}
WITH_NUMBER = ("poly_relu", "poly_norm", "poly_relu_norm", "grouped_poly_norm", "pln")


def default_names(mode):
    """All names; Liger-Kernel's only where it can run."""
    names = [*STOCK_OPS, *OWN_OPS]
    return names if liger.refusal(mode) is None else [name for name in names if name != liger.NAME]


def make(names, inputs, mode):
    """Returns the cases of `names`, ReLU's first, whether it is named or not.

    Raises:
        UserError: an unknown name, a number where there is none to give, or Liger-Kernel where it cannot run.
    """
    names = list(dict.fromkeys(["relu", *names]))
    for name in names:
        _check(name, mode)
    return [case for name in names for case in _cases(name, inputs)]


def _check(name, mode):
    match = _NAME.fullmatch(name)
    base, number = match.groups() if match else (None, None)
    if base not in {**STOCK_OPS, **OWN_OPS}:
        raise UserError(f"--op {name} is not a known op: choose from {', '.join([*STOCK_OPS, *OWN_OPS])}.")
    if number is not None and base not in WITH_NUMBER:
        raise UserError(f"--op {name} takes no number: leave out the brackets, only {', '.join(WITH_NUMBER)} take one.")
    refusal = liger.refusal(mode) if base == liger.NAME else None
    if refusal is not None:
        raise UserError(f"--op {name} cannot run here, because {refusal}: leave it out.")


def _cases(name, inputs):
    base, number = _NAME.fullmatch(name).groups()
    maker = {**STOCK_OPS, **OWN_OPS}[base]
    arguments = () if number is None else (int(number),)
    try:
        made = maker(inputs, *arguments)
    except ValueError as error:
        raise cannot_take(name, inputs, error) from error
    versions = (STOCK,) if base in STOCK_OPS else (AUTO, FORMULA)
    return [Case(name, version, *made) for version in versions]


def cannot_take(name, inputs, error):
    """The `UserError` that stands for an op's `ValueError`."""
    shape = " ".join(map(str, inputs.shape))
    return UserError(f"--op {name} cannot take --shape {shape} ({sentence_of(error)}): change one of the two.")
