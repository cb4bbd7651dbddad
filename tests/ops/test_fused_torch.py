"""The faster versions on PyTorch: derivatives of every kind, compiled halves, and what they leave alone."""

import itertools
import logging

import keras
import numpy as np
import pytest
from reference_values import assert_close

from keras_polycom import config, ops

pytestmark = pytest.mark.skipif(keras.backend.backend() != "torch", reason="these are the PyTorch versions")

if keras.backend.backend() == "torch":
    import torch

    from keras_polycom.ops.fused import torch as fused
    from keras_polycom.ops.fused import torch_compiled


SMALL = ["gelu", "silu", "relu2"]


def index():
    return torch.tensor([2, 0, 2])


OPS = {
    "poly_relu": (ops.poly_relu, [(3, 6), (3,), (1,)]),
    "poly_norm": (ops.poly_norm, [(3, 6), (3,), (1,)]),
    "poly_norm_order_1": (ops.poly_norm, [(3, 6), (1,)]),
    "poly_norm_axis_1": (lambda x, a: ops.poly_norm(x, a, axis=1), [(3, 4, 2), (2,)]),
    "grouped_poly_norm": (
        lambda x, a, b: ops.grouped_poly_norm(x, a, b, index()),
        [(3, 6), (3, 2), (3,)],
    ),
    "pln": (lambda x, gamma, beta: ops.parallel_layer_norm(x, 3, gamma, beta), [(3, 6), (6,), (6,)]),
    "mix_activations": (lambda h, w: ops.mix_activations(h, w, SMALL), [(3, 6), (3, 3)]),
    "mix_one_sided": (lambda y, z, w: ops.mix_one_sided(y, z, w, SMALL), [(3, 6), (3, 6), (3,)]),
    "mix_bi_sided": (
        lambda y, z, r, p: ops.mix_bi_sided(y, z, r, p, SMALL, ["relu", "tanh"]),
        [(3, 6), (3, 6), (3, 3), (2,)],
    ),
    "mix_quadratic": (lambda y, z, w: ops.mix_quadratic(y, z, w, SMALL), [(3, 6), (3, 6), (6,)]),
    "pls": (lambda x, gamma: ops.parallel_layer_scaling(x, 2, gamma), [(3, 6), (6,)]),
}
ALL_OPS = pytest.mark.parametrize("name", OPS)


@pytest.fixture(autouse=True)
def faster_versions_of_small_inputs_too(monkeypatch):
    if keras.backend.backend() == "torch":
        monkeypatch.setattr("keras_polycom.ops.fused.torch_poly_relu.SMALLEST", 0)
    with config.fast_roads_scope("auto"):
        yield


def inputs_of(name, dtype="float64", rows=None):
    function, shapes = OPS[name]
    rng = np.random.default_rng(5)
    values = [rng.uniform(0.2, 1.5, shape) * rng.choice([-1, 1], shape) for shape in shapes]
    if rows is not None:
        values[0] = rng.standard_normal((rows, shapes[0][-1]))
    return function, [torch.tensor(value, dtype=getattr(torch, dtype)) for value in values]


def on_both_roads(compute):
    """What `compute()` returns on the faster road and by the formula, as lists of tensors."""
    results = []
    for mode in ("on", "off"):
        with config.fast_roads_scope(mode):
            results.append(torch.utils._pytree.tree_leaves(compute()))
    return zip(*results, strict=True)


def assert_roads_agree(compute, tolerance=1e-10):
    for fast, plain in on_both_roads(compute):
        assert_close(fast.detach(), plain.detach(), tolerance)


def scalar(function):
    return lambda *inputs: torch.sum(torch.sin(3 * function(*inputs)))


@ALL_OPS
def test_gradients_of_any_subset_of_the_inputs(name):
    function, inputs = inputs_of(name)
    count = len(inputs)
    for chosen in itertools.product((False, True), repeat=count):
        if not any(chosen):
            continue

        def compute(chosen=chosen):
            leaves = [x.clone().requires_grad_(c) for x, c in zip(inputs, chosen, strict=True)]
            return torch.autograd.grad(scalar(function)(*leaves), [x for x in leaves if x.requires_grad])

        assert_roads_agree(compute)


@ALL_OPS
def test_third_derivatives(name):
    """A penalty on gradients, and its gradient: statistics that are saved as constants make it silently wrong."""
    function, inputs = inputs_of(name)

    def compute():
        leaves = [x.clone().requires_grad_() for x in inputs]
        first = torch.autograd.grad(scalar(function)(*leaves), leaves, create_graph=True)
        penalty = sum((g * g).sum() for g in first)
        second = torch.autograd.grad(penalty, leaves, create_graph=True)
        return second, torch.autograd.grad(sum((g * g).sum() for g in second), leaves)

    assert_roads_agree(compute, 1e-6)


TRANSFORMS = {
    "grad": lambda f, n: torch.func.grad(f, n),
    "forward": lambda f, n: torch.func.jacfwd(f, n),
    "hessian": lambda f, n: torch.func.hessian(f, n),
    "reverse_over_reverse": lambda f, n: torch.func.jacrev(torch.func.jacrev(f, n), n),
    "forward_over_forward": lambda f, n: torch.func.jacfwd(torch.func.jacfwd(f, n), n),
    "reverse_over_forward": lambda f, n: torch.func.jacrev(torch.func.jacfwd(f, n), n),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@ALL_OPS
def test_function_transforms(name, transform):
    """Forward mode twice through an autograd.Function with a `jvp` is wrong, and nothing says so."""
    function, inputs = inputs_of(name)
    assert_roads_agree(lambda: TRANSFORMS[transform](scalar(function), tuple(range(len(inputs))))(*inputs), 1e-8)


@ALL_OPS
def test_vmap_of_values_and_gradients(name):
    function, inputs = inputs_of(name)
    stacked = [torch.stack([x, 0.5 * x, -x]) for x in inputs]
    every = tuple(range(len(inputs)))
    assert_roads_agree(lambda: torch.func.vmap(function)(*stacked))
    assert_roads_agree(lambda: torch.func.vmap(torch.func.grad(scalar(function), every))(*stacked))
    assert_roads_agree(lambda: torch.func.vmap(function, (0,) + (None,) * (len(inputs) - 1))(stacked[0], *inputs[1:]))


@ALL_OPS
def test_tangents_without_torch_func(name):
    function, inputs = inputs_of(name)

    def compute():
        with torch.autograd.forward_ad.dual_level():
            duals = [torch.autograd.forward_ad.make_dual(x, torch.cos(x)) for x in inputs]
            return torch.autograd.forward_ad.unpack_dual(function(*duals)).tangent

    assert_roads_agree(compute)


@pytest.mark.parametrize("name", ["poly_relu", "poly_norm", "grouped_poly_norm", "pln"])
def test_transforms_inside_torch_compile(name):
    function, inputs = inputs_of(name)
    stacked = [torch.stack([x, -x]) for x in inputs]
    per_sample = torch.func.vmap(torch.func.grad(scalar(function), tuple(range(len(inputs)))))
    torch.compiler.reset()
    compiled = torch.compile(per_sample, backend="aot_eager", fullgraph=True)
    for actual, expected in zip(compiled(*stacked), per_sample(*stacked), strict=True):
        assert_close(actual, expected, 1e-10)


@ALL_OPS
def test_export_takes_the_formula(name):
    function, inputs = inputs_of(name)

    class Module(torch.nn.Module):
        def forward(self, *inputs):
            return function(*inputs)

    program = torch.export.export(Module(), tuple(inputs))
    assert not [node for node in program.graph.nodes if "autograd_function" in str(node.target)]
    assert_close(program.module()(*inputs), function(*inputs), 1e-12)
    with config.fast_roads_scope("on"), pytest.raises(Exception, match="being exported"):
        torch.export.export(Module(), tuple(inputs))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["poly_relu", "poly_norm", "pln", "pls"])
def test_chunks_join_up(name, dtype, monkeypatch):
    """More rows than a chunk holds, and a last chunk that is shorter."""
    monkeypatch.setattr("keras_polycom.ops.fused.torch_chunks.ELEMENTS", 30)
    function, inputs = inputs_of(name, dtype, rows=64)
    inputs[1:] = [w.float() for w in inputs[1:]]
    check_gradients(function, inputs, {"float32": 1e-5, "bfloat16": 1e-2}[dtype])


def check_gradients(function, inputs, tolerance):
    """Value and gradients against the formula in float64."""
    upstream = torch.linspace(-1, 1, inputs[0].numel(), dtype=inputs[0].dtype).reshape(inputs[0].shape)

    def compute(leaves, upstream):
        leaves = [x.detach().clone().requires_grad_() for x in leaves]
        out = function(*leaves)
        return out.detach(), *torch.autograd.grad(out, leaves, upstream)

    given = upstream.clone()
    fast = compute(inputs, given)
    assert torch.equal(given, upstream), "the incoming gradient was written to"
    with config.fast_roads_scope("off"):
        exact = compute([x.double() for x in inputs], upstream.double())
    for actual, expected, x in zip(fast, exact, [inputs[0], *inputs], strict=True):
        assert actual.dtype == x.dtype
        assert_close(actual, expected, tolerance)


@pytest.mark.parametrize("name", ["poly_relu", "poly_norm", "pln"])
def test_compiled_halves(name, monkeypatch):
    """Forward and backward are compiled once, and for other numbers of rows not again."""
    if not torch_compiled.has_compiler():
        pytest.fail("the tests of compiled halves need a C++ compiler")
    monkeypatch.setattr(torch_compiled, "SMALLEST", 0)
    function, inputs = inputs_of(name, "float32", rows=40)
    check_gradients(function, inputs, 1e-5)
    torch._dynamo.utils.counters.clear()
    function, inputs = inputs_of(name, "float32", rows=70)
    check_gradients(function, inputs, 1e-5)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 0


def test_a_failing_compiler_costs_a_line_of_log(caplog):
    def unsupported(x):
        torch._dynamo.graph_break()  # refused whatever torch.export has left in PyTorch's settings
        return x

    half = torch_compiled.CompiledHalf(unsupported)
    with caplog.at_level(logging.WARNING, "keras_polycom"):
        assert half.attempt(torch.ones(3)) is None
        assert half.attempt(torch.ones(3)) is None
    assert [r.message for r in caplog.records if r.name == "keras_polycom"] != []
    assert sum(r.name == "keras_polycom" for r in caplog.records) == 1


def test_a_missing_compiler_costs_a_line_of_log(caplog, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    torch_compiled.has_compiler.cache_clear()
    with caplog.at_level(logging.WARNING, "keras_polycom"):
        assert not torch_compiled.has_compiler()
        assert not torch_compiled.wants_compiling(torch.empty(1).expand(2**20))
    torch_compiled.has_compiler.cache_clear()
    assert [r.message for r in caplog.records] == [
        "No C++ compiler found (CXX, g++, clang++): fast roads on the CPU stay eager, which costs more."
    ]


def test_compiling_can_be_forbidden():
    big = torch.empty(1).expand(2**20)
    assert torch_compiled.wants_compiling(big) == config.compile_halves()
    former = config.compile_halves()
    config.set_compile_halves(False)
    try:
        assert not torch_compiled.wants_compiling(big)
    finally:
        config.set_compile_halves(former)
    with pytest.raises(ValueError, match="`allowed` must be a bool. Received: 'no'"):
        config.set_compile_halves("no")


@ALL_OPS
def test_only_the_inputs_are_kept(name):
    """CASES 081: no number more than the input, or both branches, and a few per row."""
    function, inputs = inputs_of(name, "float32")
    if "poly" in name:
        inputs[0] = torch.randn((3, 3000, 2) if "axis" in name else (3, 3000))
    leaves = [x.requires_grad_() for x in inputs]
    kept = {}
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: kept.setdefault(t.data_ptr(), t.nbytes), lambda t: t)
    with config.fast_roads_scope("on"), hooks:
        function(*leaves)
    branches = 2 if name in ("mix_one_sided", "mix_bi_sided", "mix_quadratic") else 1
    others = sum(x.nbytes for x in inputs[branches:])
    assert sum(kept.values()) <= 1.01 * branches * inputs[0].nbytes + others * (2 if name == "mix_bi_sided" else 1)


def test_no_graph_without_gradients():
    function, inputs = inputs_of("poly_norm")
    with torch.no_grad():
        assert not function(*[x.requires_grad_() for x in inputs]).requires_grad
    assert not function(*[x.detach() for x in inputs]).requires_grad


@ALL_OPS
def test_autocast_changes_nothing(name):
    function, inputs = inputs_of(name, "float32")
    expected = function(*inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_close(function(*inputs), expected, 0)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"epsilon": 0.0}, "epsilon=0.0 is below"),
        ({"x": np.ones((2, 3), "int32")}, "of dtype torch.int32"),
        ({"x": np.ones((0, 3), "float32")}, "empty"),
    ],
    ids=["epsilon", "integers", "empty"],
)
def test_refusals(arguments, reason):
    arguments = {"x": np.ones((2, 3), "float32"), "coefficients": np.ones(3), **arguments}
    assert reason in fused.poly_norm_refuses(**arguments)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"axes": (0,), "groups": (1,)}, "last axis only"),
        ({"groups": (4,)}, "equal runs"),
        ({"mask": torch.ones(2, dtype=torch.bool) if keras.backend.backend() == "torch" else None}, "no mask"),
    ],
    ids=["axis", "unequal", "mask"],
)
def test_refusals_of_block_normalization(arguments, reason):
    arguments = {"x": np.ones((2, 6), "float32"), "axes": (1,), "groups": (2,), **arguments}
    assert reason in fused.block_normalization_refuses(**arguments)


def test_within_torch_compile_runs_of_channels_take_the_formula_unless_told_otherwise():
    refusals = []

    def function(x):
        refusals.append(fused.block_normalization_refuses(x, (1,), (2,)))
        return x + 1

    for mode in ("auto", "on"):
        torch.compiler.reset()
        with config.fast_roads_scope(mode):
            torch.compile(function, backend="eager", fullgraph=True)(torch.ones(2, 6))
    assert refusals == ["torch.compile makes more of the formula", None]
