"""The benchmark on tiny tensors: what is measured and told, never how long it took."""

import contextlib
import datetime
import io
import json
import os
import re
import shutil

import benchmark
import keras
import numpy as np
import pytest
from support.benchmark import cases, inputs, modes, numbers, op_table, runners, step_table, stopwatch

from keras_polycom import config

BACKEND = keras.backend.backend()
COMPILER = shutil.which(os.environ.get("CXX", "g++").split()[0])
without_compiler = pytest.mark.skipif(COMPILER is None, reason="torch.compile needs a C++ compiler")
MODES = [pytest.param(mode, marks=without_compiler if mode == "compile" else ()) for mode in modes.MODES[BACKEND]]
# torch.compile itself calls what torch has deprecated.
torch_compiles = pytest.mark.filterwarnings("ignore:`torch.jit.script_method`:DeprecationWarning")
VIT = "--steps --image-size 8 --patch-size 4 --width 8 --depth 1 --heads 2 --mlp-dim 8 --batch-size 4"


def run(path, *options):
    """The exit status, what was printed, and the JSON file that was written."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = benchmark.main([*map(str, options), "--json", str(path)])
    return status, printed.getvalue(), json.loads(path.read_text())


@pytest.fixture(scope="module")
def ops_run(tmp_path_factory):
    path = tmp_path_factory.mktemp("benchmark") / "new" / "ops.json"
    names = ["silu", "poly_relu[2]", "pln[4]"]
    return run(path, "--op", *names, "--shape", 6, 8, "--repeats", 2)


def test_every_op_has_its_rows(ops_run):
    status, printed, result = ops_run
    assert status == 0
    expected = [("relu", "stock"), ("silu", "stock")]
    for op in ("poly_relu[2]", "pln[4]"):
        expected += [(op, "auto"), (op, "formula")]
    assert [(row["op"], row["version"]) for row in result["rows"]] == expected
    for op, version in expected:
        assert len(re.findall(rf"^{re.escape(op)} +{version} ", printed, re.MULTILINE)) == 1


def test_ratios_are_to_relu(ops_run):
    rows = ops_run[2]["rows"]
    assert rows[0]["ratio_to_relu"] == 1.0
    for row in rows:
        assert row["ratio_to_relu"] == pytest.approx(row["both"]["median_ms"] / rows[0]["both"]["median_ms"])


def test_medians_lie_between_quartiles(ops_run):
    for row in ops_run[2]["rows"]:
        for name in ("forward", "backward", "both"):
            lower, upper = row[name]["quartiles_ms"]
            assert 0 < lower <= row[name]["median_ms"] <= upper


def test_json_holds_where_and_when(ops_run):
    result = ops_run[2]
    assert result["backend"] == BACKEND and result["versions"]["keras"] == keras.__version__ and result["device"]
    assert datetime.datetime.fromisoformat(result["date"]).tzinfo is not None
    settings = {name: result["settings"][name] for name in ("backend_mode", "dtype", "shape", "repeats", "steps")}
    expected = {"backend_mode": modes.MODES[BACKEND][0], "dtype": "float32", "shape": [6, 8], "repeats": 2}
    assert settings == {**expected, "steps": False}


def test_bytes_are_told_in_units_of_x(ops_run):
    for row in ops_run[2]["rows"]:
        assert 0 < row["saved_bytes"] == row["saved_per_x"] * 6 * 8 * 4


def test_an_op_without_a_faster_version_says_so(tmp_path, monkeypatch):
    monkeypatch.setitem(cases.OWN_OPS, "poly_relu", doubling)
    result = run(tmp_path / "ops.json", "--op", "poly_relu", "--shape", 6, 8, "--repeats", 1)[2]
    reasons = {row["version"]: row["remark"] for row in result["rows"]}
    assert reasons == {"stock": None, "auto": "there is none", "formula": None}
    assert "auto is the formula for poly_relu: there is none." in result["remarks"]


def doubling(inputs):
    """An op that shows which road it was traced on: x on the fast one, 2 x on the other."""

    def function(x):
        if config.fast_roads() == "on":
            raise ValueError("A faster version of `doubling` was required, but there is none. Use 'auto' or 'off'.")
        return x * (1.0 if config.fast_roads() == "auto" else 2.0)

    return function, (inputs.x,)


@torch_compiles
@pytest.mark.parametrize("mode", MODES)
def test_rows_are_traced_on_their_own_road(mode, monkeypatch):
    monkeypatch.setitem(cases.OWN_OPS, "poly_relu", doubling)
    drawn, runner = inputs.Inputs((2, 3), "float32"), runners.load(mode)
    x = keras.ops.convert_to_numpy(drawn.x)
    for case, factor in zip(cases.make(["poly_relu"], drawn, mode)[1:], (1, 2), strict=True):
        measurements = runner.measurements(case, drawn.upstream)
        with case.road():
            y, gradients = measurements["both"].run(None)
            alone = measurements["forward"].run(None)
        assert np.array_equal(array(y), factor * x) and np.array_equal(array(alone), factor * x)
        assert np.array_equal(array(gradients[0]), factor * array(drawn.upstream))


def array(tensor):
    return keras.ops.convert_to_numpy(keras.ops.stop_gradient(tensor))


@torch_compiles
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_runs(mode, tmp_path):
    options = ["--backend-mode", mode, "--op", "poly_relu", "--shape", 2, 3, 4, "--repeats", 1, "--dtype", "bfloat16"]
    status, printed, result = run(tmp_path / "ops.json", *options)
    assert status == 0 and len(result["rows"]) == 3 and f"{BACKEND} {mode}" in printed
    readable = (BACKEND, mode) != ("tensorflow", "eager")
    assert all((row["saved_bytes"] is not None) == readable for row in result["rows"])


@pytest.mark.parametrize("name", ["poly_norm[4]", "grouped_poly_norm[2]", "mix_bi_sided"])
def test_all_gradients_are_taken_and_backward_takes_the_same(name):
    drawn, mode = inputs.Inputs((2, 3, 6), "float32"), modes.resolve(None)
    case = cases.make([name], drawn, mode)[-1]
    runner = runners.load(mode)
    with case.road():
        measurements = runner.measurements(case, drawn.upstream)
        y, gradients = measurements["both"].run(None)
        backward = measurements["backward"]
        alone = backward.run(backward.setup())
    assert tuple(y.shape) == (2, 3, 6)
    for tensor, gradient, other in zip(case.learnable, gradients, alone, strict=True):
        assert gradient.shape == tensor.shape and np.any(array(gradient) != 0)
        assert np.allclose(array(gradient), array(other), rtol=1e-5, atol=1e-5)


KNOWN = {
    "product": (lambda x, z: x * z, 2),
    "square": (lambda x, z: x * x + z, 1),
    "through a reshape": (lambda x, z: keras.ops.reshape(keras.ops.reshape(x, (-1,)), (8, 32)) * x + z, 1),
    "exponential": (lambda x, z: keras.ops.exp(x) + z, 1),
    "linear": (lambda x, z: 3.0 * x + z, 0),
}


@pytest.mark.parametrize(("function", "expected"), KNOWN.values(), ids=KNOWN)
def test_bytes_of_functions_that_are_known(function, expected):
    drawn = inputs.Inputs((8, 32), "float32")
    case = cases.Case("known", cases.STOCK, function, (drawn.x, drawn.z))
    saved = runners.load(modes.resolve(None)).saved_bytes(case, drawn.upstream)
    assert saved / drawn.x_bytes == pytest.approx(expected, abs=0.02)


def test_only_run_is_timed_and_all_take_turns(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(stopwatch.time, "perf_counter", lambda: clock[0])
    log = []

    def taking(seconds, name):
        def call(*_):
            clock[0] += seconds
            log.append(name)

        return call

    subjects = [
        stopwatch.Subject("a", {"both": stopwatch.Measurement(taking(1, "a"), setup=taking(100, "setup"))}),
        stopwatch.Subject("b", {"both": stopwatch.Measurement(taking(2, "b"))}),
    ]
    warmed = []
    a, b = stopwatch.interleaved(subjects, 5, lambda outputs: outputs, lambda *values: warmed.append(values))
    assert a["both"].all == [1.0] * 5 and b["both"].all == [2.0] * 5 and a["both"].first == 1.0
    assert b["both"].summary() == {"median_ms": 2000.0, "quartiles_ms": [2000.0, 2000.0]}
    assert warmed == [("a", 101.0 * stopwatch.WARM_UP), ("b", 2.0 * stopwatch.WARM_UP)]
    turns = [name for name in log if name != "setup"][2 * stopwatch.WARM_UP :]
    assert all(sorted(turns[i : i + 2]) == ["a", "b"] for i in range(0, 10, 2))


def test_a_row_that_lost_is_named():
    def row(version, milliseconds):
        both = {"median_ms": milliseconds, "quartiles_ms": [0.9 * milliseconds, 1.1 * milliseconds]}
        return {"op": "pln", "version": version, "both": both, "remark": None}

    class Runner:
        saved_remark = "saved: known."

    assert op_table.remarks([row("auto", 3.0), row("formula", 2.0)], Runner)[1:] == [
        "pln: auto is slower than the formula, 1.50 times."
    ]
    assert op_table.remarks([row("auto", 2.1), row("formula", 2.0)], Runner)[1:] == []


def test_numbers_have_three_digits():
    assert [numbers.short(value) for value in (0.0, 0.0123456, 1.23456, 123.456, 12345.6)] == [
        "0",
        "0.0123",
        "1.23",
        "123",
        "12346",
    ]


def test_a_mixture_brings_its_yardstick():
    def labels(*feed_forwards):
        chosen = step_table.choices(["relu", "poly_norm"], feed_forwards)
        return {choice.label: yardstick and yardstick.label for choice, yardstick in chosen.items()}

    assert labels("mlp") == {"relu-mlp": None, "poly_norm-mlp": None}
    assert labels("moa", "mlp") == {"moa": "gelu-mlp", "relu-mlp": None, "poly_norm-mlp": None, "gelu-mlp": None}
    assert labels("qd_moa", "one_la") == {"qd_moa": "swiglu", "one_la": "swiglu", "swiglu": None}
    assert list(labels("glu", "poly_norm_glu")) == ["relu-glu", "poly_norm-glu", "poly_norm_glu"]


def test_training_steps(tmp_path, monkeypatch):
    monkeypatch.delenv("KERAS_POLYCOM_COMPILE", raising=False)
    monkeypatch.setenv("KERAS_POLYCOM_FAST_ROADS", "auto")
    options = [*VIT.split(), "--activation", "gelu", "--feed-forward", "mlp", "la", "--repeats", 2]
    status, printed, result = run(tmp_path / "steps.json", *options)
    first, mixture = result["rows"]
    assert status == 0 and (first["model"], mixture["model"]) == ("gelu-mlp", "la")
    assert first["ratio_to_first"] == 1.0 and first["ratio_to_yardstick"] is None
    ratio = mixture["step"]["median_ms"] / first["step"]["median_ms"]
    assert mixture["ratio_to_first"] == mixture["ratio_to_yardstick"] == pytest.approx(ratio)
    assert mixture["parameters"] == first["parameters"] + 6 and mixture["hidden_dim_of_feed_forward"] == 8
    assert "op" not in result["settings"] and result["settings"]["width"] == 8
    assert "KERAS_POLYCOM_FAST_ROADS=auto" in printed
    assert result["environment"] == {"KERAS_POLYCOM_FAST_ROADS": "auto"}


def refused(arguments, capsys):
    """The sentence on stderr of a command that must end with status 2."""
    try:
        status = benchmark.main([str(argument) for argument in arguments])
    except SystemExit as left:
        status = left.code
    sentence = capsys.readouterr().err
    assert status == 2 and sentence.startswith("error: ") and sentence.count("\n") == 1 and sentence[-2] == "."
    return sentence


FOREIGN_MODE = {"jax": "eager", "tensorflow": "compile", "torch": "jit"}[BACKEND]
BAD_OPTIONS = {
    "unknown op": ("--op wrong", "--op wrong is not a known op: choose from relu, .*mix_quadratic"),
    "strange op": ("--op pln[x]", r"--op pln\[x\] is not a known op"),
    "number of relu": ("--op relu[2]", r"--op relu\[2\] takes no number"),
    "no order": ("--op poly_norm[0] --shape 2 4", r"--op poly_norm\[0\] cannot take --shape 2 4"),
    "channels to groups": ("--op pln[5] --shape 2 8", r"--op pln\[5\] cannot take --shape 2 8 .*norm_size=5"),
    "no rows to group": ("--op grouped_poly_norm --shape 8", "--op grouped_poly_norm cannot take --shape 8 "),
    "liger": ("--op liger_poly_norm", "--op liger_poly_norm cannot run here, because it .*: leave it out"),
    "no size": ("--shape 0 4", "--shape: expected an integer of at least 1, got '0'"),
    "no rounds": ("--repeats 0", "--repeats: expected an integer of at least 1"),
    "dtype": ("--dtype int8", "invalid choice: 'int8'"),
    "foreign mode": (
        f"--backend-mode {FOREIGN_MODE}",
        f"--backend-mode {FOREIGN_MODE} is not a mode of {BACKEND}.*set KERAS_BACKEND to",
    ),
    "op of steps": ("--steps --op relu", "--op is an option of ops, not of --steps: leave one of the two out"),
    "width of ops": ("--width 8", "--width is an option of --steps: add --steps"),
    "activation": (f"{VIT} --activation wrong", "--activation wrong is not a known name: .*poly_norm"),
    "feed-forward": (f"{VIT} --feed-forward wrong", "--feed-forward wrong is not a known name: .*glu"),
    "heads": ("--steps --width 9 --heads 2", "model gelu-mlp cannot be built .*num_heads=2"),
}


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_a_bad_option_is_named(capsys, options, message):
    assert re.search(message, refused(options.split(), capsys))


@pytest.mark.skipif(BACKEND != "torch", reason="torch.compile")
def test_a_missing_compiler_is_named(capsys, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setenv("CXX", "mycc -O2")
    assert "mycc -O2 is not found" in refused(["--backend-mode", "compile"], capsys)


def test_a_file_that_cannot_be_written_is_named(tmp_path, capsys):
    blocked = tmp_path / "file"
    blocked.write_text("")
    sentence = refused(["--op", "relu", "--shape", 2, "--repeats", 1, "--json", blocked / "ops.json"], capsys)
    assert str(blocked / "ops.json") in sentence and "choose another --json" in sentence


def test_an_interruption_is_one_sentence(monkeypatch, capsys):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(stopwatch, "interleaved", interrupt)
    assert benchmark.main(["--op", "relu", "--shape", "2"]) == 130
    assert capsys.readouterr().err == "error: interrupted; nothing was measured to its end, and nothing is written.\n"


def test_help_explains_every_option(capsys):
    with pytest.raises(SystemExit) as left:
        benchmark.main(["--help"])
    assert left.value.code == 0
    shown = capsys.readouterr().out
    assert "exit status" in shown and all(name in shown for name in cases.default_names("eager"))
    for action in benchmark.make_parser()._actions:
        assert action.help and ("default:" in action.help or action.dest == "help"), action.option_strings
