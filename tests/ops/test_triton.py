"""The Triton kernels give the formulas' numbers: on CUDA tensors, or by Triton's interpreter where there is no GPU."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from reference_values import (
    as_float64,
    assert_close,
    gradients_of,
    gradients_of_gradients,
    inputs_of,
    load,
    value_and_gradients,
)

from keras_polycom import config, ops

pytestmark = pytest.mark.skipif(keras.backend.backend() != "torch", reason="Triton kernels take PyTorch tensors")
if keras.backend.backend() == "torch":
    import torch
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    from keras_polycom.ops.fused import torch_triton

NAMES = ("relu", "relu2", "leaky_relu", "gelu", "silu", "tanh", "identity")


def _functions(*names):
    return [ops.ACTIVATION_FUNCTIONS[name] for name in names]


def _normal(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def _poly_norm_gate(x, y, coefficients, bias=None, axis=-1):
    return ops.poly_norm(x, coefficients, bias, axis=axis) * y


def _fast(name, **options):
    return lambda **inputs: getattr(torch_triton, name)(**inputs, **options)


def _plain(name, **options):
    op = _poly_norm_gate if name == "poly_norm_gate" else getattr(ops, name)

    def formula(mode="off", **inputs):
        with config.fast_roads_scope(mode):
            return op(**inputs, **options)

    return formula


def _case(name, inputs, block=None, **options):
    """The kernels and the formula as functions of tensors given by name, and the tensors."""
    only_ours = {} if block is None else {"block": block}
    return _fast(name, **options, **only_ours), _plain(name, **options), inputs


def _polynomial(*shape, order=3):
    return {"x": _normal(*shape), "coefficients": np.linspace(0.7, -0.4, order), "bias": np.array([0.1])}


def _gated(*shape):
    return {**_polynomial(*shape), "y": _normal(*shape, seed=1)}


def _grouped(*shape):
    groups = {"coefficients": _normal(3, 2), "bias": _normal(3), "group_index": np.array([2, 0, 2, 2, 9], "int32")}
    return {"x": _normal(*shape), **groups}


def _runs(size, channels=24, affine=("gamma", "beta"), **options):
    inputs = {"x": _normal(5, channels), **{name: _normal(channels, seed=len(name)) for name in affine}}
    return _case("block_normalization", inputs, axes=(1,), groups=(channels // size,), axis=1, **options)


def _branches(*shape, **weights):
    weights = {name: _normal(*shape, seed=3) for name, shape in weights.items()}
    return {"y": _normal(*shape), "z": _normal(*shape, seed=1), **weights}


def _dictionaries(gate, up=None):
    return {"activations": _functions(*gate), "up_activations": _functions(*(up or gate))}


CASES = {
    "poly_relu": _case("poly_relu", _polynomial(5, 24)),
    "poly_relu_no_bias": _case("poly_relu", {"x": _normal(2, 3, 7), "coefficients": np.array([0.5])}),
    "poly_relu_blocks": _case("poly_relu", _polynomial(5, 26, order=4), block=32),
    "poly_norm": _case("poly_norm", _polynomial(5, 24)),
    "poly_norm_no_bias": _case("poly_norm", {"x": _normal(5, 23), "coefficients": np.array([0.5])}),
    "poly_norm_order_5": _case("poly_norm", _polynomial(2, 3, 7, order=5)),
    "poly_norm_vector": _case("poly_norm", _polynomial(11)),
    "poly_norm_looped": _case("poly_norm", _polynomial(2, 40), block=32),
    "poly_norm_channels_first": _case("poly_norm", _polynomial(2, 6, 4, 3), axis=1),
    "gate": _case("poly_norm_gate", _gated(5, 24)),
    "gate_looped": _case("poly_norm_gate", _gated(2, 40), block=32),
    "gate_channels_first": _case("poly_norm_gate", _gated(2, 6, 5), axis=1),
    "grouped": _case("grouped_poly_norm", _grouped(5, 24)),
    "grouped_tokens": _case("grouped_poly_norm", _grouped(5, 3, 8)),
    "grouped_looped": _case("grouped_poly_norm", _grouped(5, 24), block=16),
    "grouped_axis_1": _case("grouped_poly_norm", _grouped(5, 8, 3), axis=1),
    "pln_2": _runs(2),
    "pln_3": _runs(3, channels=33),
    "pln_8": _runs(8),
    "pln_32": _runs(32, channels=96, affine=("beta",)),
    "pln_no_affine": _runs(4, affine=()),
    "pls_8": _runs(8, affine=("gamma",), center=False),
    "pls_1": _runs(1, center=False),
    "cpln": _case("block_normalization", {"x": _normal(2, 6, 5), "gamma": _normal(6)}, axes=(1,), groups=(2,), axis=1),
    "mix": _case("mix_activations", {"h": _normal(5, 24), "weights": _normal(5, 7)}, activations=_functions(*NAMES)),
    "mix_looped": _case(
        "mix_activations",
        {"h": _normal(2, 2, 40), "weights": _normal(2)},
        block=16,
        activations=_functions("gelu", "relu2"),
    ),
    "one_sided": _case("mix_one_sided", _branches(2, 3, 8, weights=(2, 1, 7)), activations=_functions(*NAMES)),
    "bi_sided": _case(
        "mix_bi_sided",
        _branches(5, 9, gate_weights=(5, 3), up_weights=(2,)),
        **_dictionaries(("gelu", "silu", "relu2"), ("tanh", "relu")),
    ),
    "quadratic": _case("mix_quadratic", _branches(5, 9, weights=(5, 28)), **_dictionaries(NAMES)),
    "quadratic_looped": _case(
        "mix_quadratic",
        _branches(2, 40, weights=(3,)),
        block=16,
        **_dictionaries(("gelu", "silu"), ("leaky_relu", "tanh")),
    ),
}


def _upstream(inputs):
    return _normal(*next(iter(inputs.values())).shape, seed=9)


def _both(name, dtype, **changed):
    """Value and gradients of the kernels and of the formula."""
    fast, plain, inputs = CASES[name]
    inputs = {**inputs, **changed}
    return [value_and_gradients(f, inputs, _upstream(inputs), dtype, compiled=False) for f in (fast, plain)]


def _assert_agree(fast, plain, tolerance):
    assert_close(fast[0], plain[0], tolerance, "value")
    for key, expected in plain[1].items():
        assert_close(fast[1][key], expected, tolerance, f"gradient of {key}")


def _tensor(values, dtype="float32", requires_grad=True):
    """A tensor on the device that the tests run on; integers stay integers."""
    values = np.asarray(values)
    if values.dtype == "int32":
        return keras.ops.convert_to_tensor(values)
    return keras.ops.convert_to_tensor(values, dtype=dtype).requires_grad_(requires_grad)


def _tensors(inputs, dtype="float32", requires_grad=True):
    return {name: _tensor(values, dtype, requires_grad) for name, values in inputs.items()}


ONE_OF_EACH = ("poly_relu", "poly_norm", "gate", "grouped", "pln_8", "mix", "bi_sided", "quadratic")


@pytest.mark.parametrize(
    ("name", "dtype"), [(name, "float64") for name in CASES] + [(name, "float32") for name in ONE_OF_EACH]
)
def test_values_and_gradients_are_the_formulas(name, dtype):
    _assert_agree(*_both(name, dtype), {"float32": 1e-5, "float64": 1e-11}[dtype])


def test_reference_rows_of_every_magnitude():
    case = load("poly_norm_magnitudes")
    inputs = {{"a": "coefficients", "b": "bias"}.get(key, key): value for key, value in inputs_of(case).items()}
    value, gradients = value_and_gradients(_fast("poly_norm"), inputs, case["upstream"], "float32", compiled=False)
    assert_close(value, case["out"], 1e-5, "value")
    for key, expected in zip(("coefficients", "bias"), ("a", "b"), strict=True):
        assert_close(gradients[key], gradients_of(case)[expected], 1e-5, key)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_half_precision_is_as_near_to_the_truth_as_the_formula(name, dtype):
    fast, plain, inputs = CASES[name]
    upstream = as_float64(keras.ops.cast(_upstream(inputs), dtype))
    inputs = {
        key: as_float64(keras.ops.cast(value, dtype)) if value.dtype == "float64" else value
        for key, value in inputs.items()
    }

    def results(function, dtype):
        value, gradients = value_and_gradients(function, inputs, upstream, dtype, compiled=False)
        return {"value": value, **gradients}

    truth, ours, formulas = results(plain, "float64"), results(fast, dtype), results(plain, dtype)
    resolution = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    for key, exact in truth.items():
        error = max(np.abs(formulas[key] - exact).max(), resolution * np.abs(exact).max())
        assert np.abs(ours[key] - exact).max() <= 2 * error, key


@pytest.mark.parametrize("name", ["poly_relu", "poly_norm", "pln_8", "mix"])
def test_results_are_rounded_once(name):
    """To float16: Triton's interpreter cuts bfloat16 off instead of rounding it, which a GPU does not."""
    fast, _, inputs = CASES[name]
    first, *others = _tensors(inputs, requires_grad=False).values()
    lowered = fast(**dict(zip(inputs, (first.half(), *others), strict=True)))
    exact = fast(**dict(zip(inputs, (first.half().float(), *others), strict=True)))
    torch.testing.assert_close(lowered, exact.half(), rtol=0, atol=0)


@pytest.mark.parametrize(("width", "block"), [(1, 0), (7, 0), (130, 0), (130, 64), (1000, 0), (1000, 256)])
def test_rows_of_any_width(width, block):
    fast, plain, inputs = _case("poly_norm_gate", _gated(2, width), block=block)
    _assert_agree(*(value_and_gradients(f, inputs, _upstream(inputs), "float32", False) for f in (fast, plain)), 1e-5)


MAGNITUDES = {"zero": 0.0, "tiny": 1e-30, "small": 1e-3, "large": 1e7, "huge": 1e30, "largest": 8e37}


@pytest.mark.parametrize("scale", MAGNITUDES.values(), ids=MAGNITUDES.keys())
@pytest.mark.parametrize("name", ["poly_norm", "poly_norm_looped", "grouped", "pln_8", "pls_8"])
def test_one_row_of_any_magnitude_among_others(name, scale):
    x = np.array(CASES[name][2]["x"])
    x[1] = np.clip(x[1], -3, 3) * scale
    (fast, fast_gradients), (plain, plain_gradients) = _both(name, "float32", x=x)
    grad_x, expected = fast_gradients.pop("x"), plain_gradients.pop("x")
    _assert_agree((fast, fast_gradients), (plain, plain_gradients), 1e-5)
    bound = 1e-4 * np.maximum(np.abs(expected).max(axis=1), 2.0**-126 / 1e-4)
    assert (np.abs(grad_x - expected).max(axis=1) <= bound).all()


@pytest.mark.parametrize("mean", [1e4, -1e30])
def test_spread_beside_a_large_mean_and_runs_of_equal_values(mean):
    x = np.float32(mean) + (_normal(5, 24).astype("float32") if mean == 1e4 else np.zeros((5, 24), "float32"))
    _assert_agree(*_both("pln_8", "float32", x=x), 1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_activations_and_their_slopes_everywhere(name):
    """Close to 0 and far out, relative to their own size."""
    h = np.array([[-1e30, -80.0, -9.0, -1.5, -0.21, -0.19, -1e-4, 0.0, 1e-30, 1e-4, 0.19, 0.21, 1.5, 9.0, 80.0, 1e18]])
    fast, plain, inputs = _case("mix_activations", {"h": h, "weights": np.array([2.0])}, activations=_functions(name))
    with np.errstate(over="ignore"):  # Triton's interpreter is NumPy
        ours = value_and_gradients(fast, inputs, np.ones_like(h), "float32", compiled=False)
    expected = value_and_gradients(plain, inputs, np.ones_like(h), "float32", compiled=False)
    np.testing.assert_allclose(ours[0], expected[0], rtol=2e-6, atol=2e-7 if name in ("gelu", "silu") else 1e-30)
    np.testing.assert_allclose(ours[1]["h"], expected[1]["h"], rtol=2e-6, atol=3e-7)  # slopes are of the size of 1


@pytest.mark.parametrize("name", ["poly_relu", "poly_norm", "gate", "pln_8", "mix", "quadratic"])
def test_inputs_and_gradients_that_are_not_contiguous(name):
    fast, plain, inputs = CASES[name]
    arrays = {key: value for key, value in inputs.items() if value.shape == _upstream(inputs).shape}

    def gradients(function, make_strided):
        tensors = _tensors(inputs, "float64")
        views = {key: make_strided(tensors[key]) if key in arrays else tensors[key] for key in inputs}
        function(**views).sum().backward()  # its gradient is one number, expanded
        return [tensor.grad for tensor in tensors.values()]

    def columns_of_a_wider_tensor(x):
        return torch.cat([x, x], dim=-1)[..., : x.shape[-1]]

    def columns_first(x):
        return x.mT.contiguous().mT

    expected = gradients(plain, torch.Tensor.contiguous)
    for make_strided in (columns_of_a_wider_tensor, columns_first):
        torch.testing.assert_close(gradients(fast, make_strided), expected)


def test_poly_relu_keeps_the_order_of_memory():
    x = _tensor(_normal(2, 4, 3, 5)).detach().permute(0, 2, 3, 1).requires_grad_()  # as convolutions leave it
    value = torch_triton.poly_relu(x, _tensor([0.5, 0.3]))
    assert value.stride() == x.stride()
    (gradient,) = torch.autograd.grad(value, x, torch.ones(value.shape, device=x.device))
    assert gradient.stride() == x.stride()
    torch.testing.assert_close(gradient, torch.where(x > 0, 0.5 + 0.6 * x, 0).detach())


@pytest.mark.parametrize("name", ["poly_relu", "poly_norm", "gate", "grouped", "pln_8", "one_sided", "quadratic"])
def test_the_same_gradients_every_time_and_nothing_is_written_to(name):
    fast, _, inputs = CASES[name]
    tensors, upstream = _tensors(inputs), _tensor(_upstream(inputs), requires_grad=False)
    differentiable = [tensor for tensor in tensors.values() if tensor.requires_grad]
    kept = [tensor.detach().clone() for tensor in (*differentiable, upstream)]
    value = fast(**tensors)
    first, second = (torch.autograd.grad(value, differentiable, upstream, retain_graph=True) for _ in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    torch.testing.assert_close([*differentiable, upstream], kept, rtol=0, atol=0)


@pytest.mark.parametrize("name", CASES)
def test_second_derivatives_are_the_formulas(name):
    fast, plain, inputs = CASES[name]
    directions = {key: _normal(*value.shape, seed=7) for key, value in inputs.items() if value.dtype == "float64"}
    ours, expected = (gradients_of_gradients(f, inputs, _upstream(inputs), directions) for f in (fast, plain))
    for key in expected:
        assert_close(ours[key], expected[key], 1e-9, f"second derivative with respect to {key}")


def test_second_derivatives_where_weights_are_computed_from_the_input():
    def penalty(function):
        x = _tensor(_normal(4, 7), "float64")
        value = function(x=x, coefficients=x[0, :3] ** 2, bias=x[1, :1])
        (gradient,) = torch.autograd.grad(value.square().sum(), x, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), x)

    torch.testing.assert_close(penalty(_fast("poly_norm")), penalty(_plain("poly_norm")), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["poly_relu", "poly_norm", "gate", "grouped", "pln_8", "one_sided", "quadratic"])
def test_transformations_of_torch_func(name):
    fast, plain, inputs = CASES[name]
    others = _tensors(inputs, "float64", requires_grad=False)
    first = next(iter(inputs))
    x = others.pop(first)
    tangent = _tensor(_normal(*x.shape, seed=5), "float64", requires_grad=False)

    def results(function):
        def of(x):
            return function(**{first: x}, **others)

        _, forward_mode = torch.func.jvp(of, (x,), (tangent,))
        return forward_mode, torch.func.grad(lambda x: of(x).square().sum())(x), torch.func.vmap(of)(x[None])

    torch.testing.assert_close(results(fast), results(plain), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["poly_relu", "gate", "grouped", "pln_8", "bi_sided"])
def test_compiled_and_exported_as_one_node(name):
    fast, _, inputs = CASES[name]
    arrays = list(_tensors(inputs, requires_grad=False).values())

    class Module(torch.nn.Module):
        def forward(self, *tensors):
            return fast(**dict(zip(inputs, tensors, strict=True)))

    def nodes(graph):
        return [str(node.target) for node in graph.nodes if "keras_polycom" in str(node.target)]

    exported = torch.export.export(Module(), tuple(arrays))
    (node,) = nodes(exported.graph)
    assert node.startswith("keras_polycom.triton_")
    torch.testing.assert_close(exported.module()(*arrays), Module()(*arrays))

    graphs = []

    def keep(graph_module, example_inputs):
        graphs.append(nodes(graph_module.graph))
        return make_boxed_func(graph_module.forward)

    backend = aot_autograd(fw_compiler=keep, bw_compiler=keep)
    torch.compiler.reset()
    compiled = torch.compile(Module(), backend=backend, fullgraph=True)
    differentiable = [array.requires_grad_() for array in arrays if array.is_floating_point()]
    upstream = _tensor(_upstream(inputs), requires_grad=False)
    ours, expected = (torch.autograd.grad(f(*arrays), differentiable, upstream) for f in (compiled, Module()))
    torch.testing.assert_close(ours, expected)
    assert graphs == [[node], [node.replace(".default", "_backward.default")]]


@pytest.mark.parametrize("name", ["poly_relu", "poly_norm", "mix_sum"])
def test_operators_are_registered_as_pytorch_wants_them(name):
    x, weights = _tensor(_normal(3, 8), requires_grad=False), _tensor([0.5, 0.2], requires_grad=False)
    arguments = {
        "poly_relu": (x.mT, weights, None, 0),
        "poly_norm": (x[:, :7], 2 * x[:, 1:], weights[None], None, None, 1e-6, 0),
        "mix_sum": (x, weights.expand(3, 2), [3, 4], 0),
    }[name]
    arguments = [a.requires_grad_() if isinstance(a, torch.Tensor) else a for a in arguments]
    operator = getattr(torch.ops.keras_polycom, f"triton_{name}").default
    assert set(torch.library.opcheck(operator, arguments).values()) == {"SUCCESS"}


def _ones(*shape, dtype="float32"):
    return keras.ops.ones(shape, dtype)


REFUSALS = {
    "integers": (lambda: torch_triton.poly_relu_refuses(_ones(2, 3, dtype="int32"), [1.0]), "dtype torch.int32"),
    "empty": (lambda: torch_triton.poly_relu_refuses(_ones(0, 3), [1.0]), "empty"),
    "epsilon_0": (lambda: torch_triton.poly_norm_refuses(_ones(2, 3), [1.0], epsilon=0.0), "epsilon=0.0 is below"),
    "gate_of_another_dtype": (
        lambda: torch_triton.poly_norm_gate_refuses(_ones(2, 3), _ones(2, 3, dtype="float16"), [1.0]),
        "not of one shape and dtype",
    ),
    "mask": (
        lambda: torch_triton.block_normalization_refuses(_ones(2, 4), (1,), (2,), axis=1, mask=_ones(2)),
        "no mask",
    ),
    "two_axes": (lambda: torch_triton.block_normalization_refuses(_ones(2, 4), (0, 1), (1, 2)), "runs of channels"),
    "unequal": (lambda: torch_triton.block_normalization_refuses(_ones(2, 5), (1,), (2,)), "2 runs of 5 channels"),
    "long": (lambda: torch_triton.block_normalization_refuses(_ones(1, 4097), (1,), (1,)), "longer than 4096"),
    "a_function_of_the_user": (
        lambda: torch_triton.mix_activations_refuses(_ones(2, 3), [1.0], [lambda x: x + 1]),
        "more than the functions of the papers",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_left_to_others(name):
    refusal, reason = REFUSALS[name]
    assert reason in refusal()


def test_cpu_tensors_are_taken_by_the_interpreter_only(monkeypatch):
    x = torch.ones(2, 3, device="cpu")
    with keras.device("cpu"):
        monkeypatch.setattr(torch_triton, "_INTERPRETED", True)
        assert torch_triton.poly_norm_refuses(x, [1.0]) is None
        monkeypatch.setattr(torch_triton, "_INTERPRETED", False)
        assert torch_triton.poly_norm_refuses(x, [1.0]) == "it needs a CUDA tensor, and its input is on cpu"


@pytest.mark.parametrize(
    ("function", "reason"),
    [("importlib.util.find_spec", "Triton is not installed"), ("shutil.which", "no C compiler")],
    ids=["no_triton", "no_compiler"],
)
def test_without_triton_or_a_compiler(monkeypatch, function, reason):
    monkeypatch.setattr(torch_triton, "_INTERPRETED", False)
    monkeypatch.setattr(function, lambda name: None)
    monkeypatch.setattr(torch_triton, "_MISSING", torch_triton._missing())
    assert not torch_triton.is_available()
    assert reason in torch_triton.poly_relu_refuses(_ones(2, 3), [1.0])


@pytest.mark.parametrize(
    ("name", "function"),
    {
        "poly_relu": "poly_relu",
        "poly_norm": "poly_norm",
        "grouped": "grouped_poly_norm",
        "pln_8": "block_normalization",
        "mix": "mix_activations",
        "one_sided": "mix_one_sided",
        "bi_sided": "mix_bi_sided",
        "quadratic": "mix_quadratic",
    }.items(),
)
def test_ops_hand_cuda_tensors_to_the_kernels(monkeypatch, name, function):
    _, formula, inputs = CASES[name]
    tensors, kernels, calls = _tensors(inputs, requires_grad=False), getattr(torch_triton, function), []

    def recorded(*args, **kwargs):
        calls.append(function)
        return kernels(*args, **kwargs)

    monkeypatch.setattr(torch_triton, function, recorded)
    monkeypatch.setattr(torch_triton, "serves", lambda x: True)  # as if it were on a GPU
    value = formula(**tensors, mode="on")
    assert calls == [function]
    torch.testing.assert_close(value, formula(**tensors))


def test_triton_is_not_loaded_before_a_kernel_runs():
    """What is imported with the package imports none of the files that launch kernels, nor Triton."""
    folder = Path(torch_triton.__file__).parent
    for name in ("__init__", "torch", "torch_triton", "torch_triton_operator"):
        tree = ast.parse((folder / f"{name}.py").read_text())
        imports = [n for n in ast.walk(tree) if isinstance(n, (ast.Import, ast.ImportFrom))]
        names = {alias.name for node in imports for alias in node.names}
        assert not {n for n in names if n.startswith("triton") or n.startswith("torch_triton_")} - {
            "torch_triton_operator"
        }


COMPILE = """
import pathlib, sys, types
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

for name, folder in (("keras_polycom", "."), ("keras_polycom.ops", "ops"), ("keras_polycom.ops.fused", "ops/fused")):
    sys.modules[name] = types.ModuleType(name)  # the kernels need nothing of the package but each other
    sys.modules[name].__path__ = [str(pathlib.Path(sys.argv[1]) / folder)]

class Device:
    get_current_device = lambda self: 0
    get_current_stream = lambda self, device: 0
    get_current_target = lambda self: GPUTarget("cuda", 80, 32)

driver.set_active(Device())
launch, compiled = JITFunction.run, []

def compile_only(self, *args, grid, warmup, **options):
    compiled.append((self.fn.__name__, launch(self, *args, grid=grid, warmup=True, **options).asm))

JITFunction.run = compile_only

from keras_polycom.ops.fused import torch_triton_mixtures as mixtures
from keras_polycom.ops.fused import torch_triton_poly_norm, torch_triton_poly_relu, torch_triton_runs

def both(forward, backward, *args):
    forward(*args)
    backward(args[0], *args)

x, w, index = torch.ones(9, 96).bfloat16(), torch.ones(96), torch.zeros(9, dtype=torch.int64)
both(torch_triton_poly_relu.forward, torch_triton_poly_relu.backward, x, w[:3], w[:1], 0)
norm = torch_triton_poly_norm.forward, torch_triton_poly_norm.backward
both(*norm, x, x, w[:3][None], w[:1], None, 1e-6, 0)
both(*norm, x, None, w.reshape(32, 3), None, index, 1e-6, 32)
both(torch_triton_runs.forward, torch_triton_runs.backward, x, w, w, 3, True, 1e-5)
m = torch.ones(9, 7)
both(mixtures.sum_forward, mixtures.sum_backward, x, m[:, :2], [1, 6], 0)
both(mixtures.product_forward, mixtures.product_backward, x, x, m[:, :1], m[:, :2], [4], [3, 1], 0)
both(mixtures.pairs_forward, mixtures.pairs_backward, x, x, m[:, :3], [0, 2], [5, 6], 0)
print(len(compiled), sum("sm_80" in asm["ptx"] for _, asm in compiled), sum("cubin" in asm for _, asm in compiled))
print([name for name, asm in compiled if "forward" in name and "cvt.rn.bf16" not in asm["ptx"]])
"""


def test_the_kernels_compile_for_a_gpu(tmp_path):
    """What the interpreter takes the compiler may refuse. It needs no GPU; bfloat16 is rounded to the nearest."""
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", COMPILE, Path(torch_triton.__file__).parents[2]],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.stdout == "15 15 15\n[]\n", done.stdout + done.stderr
