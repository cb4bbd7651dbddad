"""State dicts from memory and from files."""

import json
import subprocess
import sys
from argparse import Namespace

import keras
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from keras_polycom import convert

BACKEND = keras.backend.backend()
needs_torch = pytest.mark.skipif(BACKEND != "torch", reason="torch is installed with its backend only")
VALUES = np.array([[0.5, -1.25, 3.0], [0.0, -2.0, 96.0]])  # exact in every float of two bytes


def write_safetensors(path, **tensors):
    """The format by hand, with dtypes that not every version of the package can write."""
    names = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "float64": "F64", "int64": "I64"}
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, array in tensors.items():
        raw = np.ascontiguousarray(array).tobytes()
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": names[array.dtype.name], "shape": array.shape, "data_offsets": offsets}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def check(state):
    assert set(state) == {"a.weight", "count"}
    np.testing.assert_array_equal(state["a.weight"], VALUES)
    assert state["a.weight"].dtype == np.float32
    assert state["count"].shape == () and state["count"] == 7


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_safetensors(dtype, tmp_path):
    path = tmp_path / "a.safetensors"
    write_safetensors(path, **{"a.weight": VALUES.astype(dtype), "count": np.array(7)})
    check(convert.read_state_dict(path))
    check(convert.read_state_dict(str(path)))


def test_safetensors_written_by_the_package(tmp_path):
    save_file({"a.weight": VALUES.astype("float32"), "count": np.array(7)}, tmp_path / "a.safetensors")
    check(convert.read_state_dict(tmp_path / "a.safetensors"))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_npz(dtype, tmp_path):
    np.savez(tmp_path / "a.npz", **{"a.weight": VALUES.astype(dtype), "count": 7})
    check(convert.read_state_dict(tmp_path / "a.npz"))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("kind", ["numpy", "tensor", "variable"])
def test_mappings(kind, dtype):
    value = VALUES.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    if kind == "tensor":
        value = keras.ops.convert_to_tensor(VALUES, dtype)
    elif kind == "variable":
        value = keras.Variable(VALUES, dtype=dtype)
    check(convert.read_state_dict({"a.weight": value, "count": np.int64(7)}))


def test_float64_keeps_its_digits():
    state = convert.read_state_dict({"a": np.array([1 / 3])})
    assert state["a"].dtype == np.float64 and state["a"][0] == 1 / 3


@pytest.mark.parametrize("nests", [("model",), ("state_dict",), ("state_dict", "model")], ids="/".join)
def test_a_state_dict_inside_a_checkpoint(nests):
    checkpoint = {"a.weight": VALUES.astype("float32"), "count": np.array(7)}
    for nest in nests:
        checkpoint = {nest: checkpoint, "epoch": 3, "optimizer": {"lr": 0.1}}
    check(convert.read_state_dict(checkpoint))


def test_prefix():
    state = {"module.a.weight": VALUES.astype("float32"), "module.count": np.array(7), "other": np.ones(2)}
    check(convert.read_state_dict(state, prefix="module."))
    with pytest.raises(
        ValueError, match="no tensor whose name begins with prefix='modul.'. Its names: module.a.weight,"
    ):
        convert.read_state_dict(state, prefix="modul.")


@needs_torch
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("suffix", ["pt", "pth", "bin"])
def test_torch_files(suffix, dtype, tmp_path):
    import torch

    state = {
        "a.weight": torch.nn.Parameter(torch.tensor(VALUES, dtype=getattr(torch, dtype))),
        "count": torch.tensor(7),
    }
    path = tmp_path / f"a.{suffix}"
    torch.save(state, path)
    check(convert.read_state_dict(path))
    torch.save({"model": state, "epoch": 3, "args": Namespace(lr=0.1, model="mae_vit_base_patch16")}, path)
    check(convert.read_state_dict(path))
    check(convert.read_state_dict(state))


class Foreign:
    """A class that a checkpoint must not bring in."""


@needs_torch
def test_code_in_a_torch_file_is_refused(tmp_path):
    import torch

    torch.save({"model": {"a": torch.ones(2)}, "trainer": Foreign()}, tmp_path / "a.pth")
    with pytest.raises(ValueError, match="holds more than tensors and plain data, and is not unpickled"):
        convert.read_state_dict(tmp_path / "a.pth")
    torch.save(torch.ones(2), tmp_path / "b.pth")
    with pytest.raises(ValueError, match="holds a Tensor, not a state dict"):
        convert.read_state_dict(tmp_path / "b.pth")


def whole_file(path):
    tensors = {"a": VALUES.astype("float32"), "b": np.arange(200.0)}
    if path.suffix == ".npz":
        np.savez(path, **tensors)
    elif path.suffix == ".safetensors":
        save_file(tensors, path)
    else:
        import torch

        torch.save({name: torch.tensor(array) for name, array in tensors.items()}, path)


@pytest.mark.parametrize("harm", ["empty", "cut short", "text", "of another kind"])
@pytest.mark.parametrize("suffix", ["npz", "safetensors", pytest.param("pth", marks=needs_torch)])
def test_damaged_files(suffix, harm, tmp_path):
    path = tmp_path / f"a.{suffix}"
    whole_file(path)
    content = path.read_bytes()
    if harm == "of another kind":
        np.save(tmp_path / "b.npy", np.arange(3.0))
        path.write_bytes((tmp_path / "b.npy").read_bytes())
    else:
        path.write_bytes({"empty": b"", "cut short": content[: len(content) // 2], "text": b"<html>404</html>"}[harm])
    with pytest.raises(ValueError, match=rf"a\.{suffix}' cannot be read as .*: the file is damaged"):
        convert.read_state_dict(path)


def test_refused_sources(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no state dict at .*missing.npz"):
        convert.read_state_dict(tmp_path / "missing.npz")
    with pytest.raises(FileNotFoundError, match="There is no state dict"):
        (tmp_path / "folder.npz").mkdir()
        convert.read_state_dict(tmp_path / "folder.npz")
    with pytest.raises(ValueError, match=r"ending in .safetensors, .npz, .pt, .pth, .bin. Received: .*a.h5"):
        convert.read_state_dict(tmp_path / "a.h5")
    with pytest.raises(TypeError, match="Received: list. Of a torch module, give `module.state_dict"):
        convert.read_state_dict([1.0])
    with pytest.raises(
        ValueError, match=r"not tensors of numbers: 'epoch' \(int\), 'args' \(str\). A state dict inside"
    ):
        convert.read_state_dict({"a": np.ones(2), "epoch": 3, "args": "x"})
    np.savez(tmp_path / "b.npz", a=VALUES.astype(ml_dtypes.bfloat16))  # NumPy's file forgets which dtype that was
    with pytest.raises(ValueError, match=r"'a' \(ndarray\)"):
        convert.read_state_dict(tmp_path / "b.npz")


@pytest.mark.parametrize(
    ("module", "suffix", "extra"), [("safetensors", "safetensors", "convert"), ("torch", "pth", "torch")]
)
def test_what_is_missing_is_named(module, suffix, extra, monkeypatch, tmp_path):
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(b"")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"Reading '.*a.{suffix}' needs .*keras-polycom\[{extra}\]"):
        convert.read_state_dict(path)


READ = """
import sys, keras, numpy as np
backends = ("torch", "tensorflow", "jax")
before = {name for name in backends if name in sys.modules}
from keras_polycom import convert
for source in ({"a": np.ones(2), "b": keras.ops.ones(2)}, *sys.argv[1:]):
    convert.read_state_dict(source)
print("NEW", sorted({name for name in backends if name in sys.modules} - before), sys.modules.get("torch") is None)
"""


def test_reading_arrays_imports_no_other_backend(tmp_path):
    """CASES 076."""
    paths = [tmp_path / "a.npz", tmp_path / "a.safetensors"]
    for path in paths:
        whole_file(path)
    command = [sys.executable, "-W", "ignore", "-c", READ, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert f"NEW [] {BACKEND != 'torch'}" in done.stdout, done.stdout + done.stderr
