"""What the package imports, exports and registers."""

import ast
import inspect
import os
import runpy
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_polycom
from keras_polycom import layers

PACKAGE = Path(keras_polycom.__file__).parent
LAYERS = {name: thing for name, thing in vars(layers).items() if inspect.isclass(thing)}


def run_python(code, *arguments, **environment):
    """Runs `code` in a fresh interpreter with the backend in use; returns what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)],
        env={**os.environ, "KERAS_BACKEND": keras.backend.backend(), "TF_CPP_MIN_LOG_LEVEL": "3", **environment},
        capture_output=True,
        text=True,
        timeout=240,
    )
    return done.stdout + done.stderr


def test_importing_the_package_imports_no_other_backend():
    """CASES 076: nothing beyond what Keras itself imports. The switch is read on the way."""
    code = """
import sys, keras
before = {name for name in ("jax", "tensorflow", "torch", "triton") if name in sys.modules}
import keras_polycom
after = {name for name in ("jax", "tensorflow", "torch", "triton") if name in sys.modules}
print("NEW", sorted(after - before), keras_polycom.config.fast_roads())
"""
    assert "NEW [] off" in run_python(code, KERAS_POLYCOM_FAST_ROADS="off")


ALONE = """
import sys
others = {"jax", "tensorflow", "torch"} - {sys.argv[1]}
class Without:
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in others else self.finder.find_spec(name, path, target)
sys.meta_path[:] = map(Without, sys.meta_path)
import keras, numpy as np, keras_polycom
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4, "relu"), keras_polycom.PolyNorm()])
model.compile("sgd", "mse")
model.fit(np.ones((4, 4)), np.ones((4, 4)), verbose=0)
model.save(sys.argv[2])
loaded = keras.saving.load_model(sys.argv[2])
new = keras_polycom.replace_activations(loaded, {"relu": "pln[2]"})
keras_polycom.convert.make_poly_norm({"weight": np.ones(3), "bias": np.zeros(1)}, source="liger")
print("OUTPUT", new.predict(np.ones((2, 4)), verbose=0).shape, others.isdisjoint(sys.modules))
"""


def test_works_where_only_its_backend_is_installed(tmp_path):
    """CASES 076."""
    printed = run_python(ALONE, keras.backend.backend(), tmp_path / "model.keras")
    assert "OUTPUT (2, 4) True" in printed, printed


def test_a_wrong_switch_in_the_environment_is_refused(monkeypatch):
    monkeypatch.setenv("KERAS_POLYCOM_FAST_ROADS", "fast")
    with pytest.raises(ValueError, match="KERAS_POLYCOM_FAST_ROADS must be one of auto, off, on. Received: 'fast'"):
        runpy.run_path(str(PACKAGE / "config.py"))


def imports_of(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_public_keras(path):
    assert "keras.src" not in path.read_text()
    assert not [name for name in imports_of(path) if name.startswith("keras.")]


def test_layers_are_exported_from_the_package_too():
    exported = {name for name, thing in vars(keras_polycom).items() if inspect.isclass(thing)}
    assert exported == set(LAYERS)
    assert all(getattr(keras_polycom, name) is thing for name, thing in LAYERS.items())


@pytest.mark.parametrize("folder", ["", "convert", "layers", "models", "ops", "surgery"])
def test_init_files_list_names_and_do_nothing_else(folder):
    for node in ast.parse((PACKAGE / folder / "__init__.py").read_text()).body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        version = isinstance(node, ast.Assign) and node.targets[0].id in ("__version__", "__all__")
        assert docstring or version or isinstance(node, ast.ImportFrom), ast.unparse(node)


@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_registered_under_the_package_name(name):
    """CASES 033."""
    registered = keras.saving.get_registered_name(LAYERS[name])
    assert registered == f"keras_polycom>{LAYERS[name].__name__}"
    assert keras.saving.get_registered_object(registered) is LAYERS[name]


LOAD = """
import sys, keras, numpy as np
path, x, expected = sys.argv[1], np.load(sys.argv[2]), np.load(sys.argv[3])
try:
    keras.saving.load_model(path)
    print("LOADED WITHOUT IMPORT")
except Exception as error:
    print("ERROR", error)

@keras.saving.register_keras_serializable(package="other")
class PolyNorm(keras.layers.Layer):
    pass

import keras_polycom
model = keras.saving.load_model(path)
assert type(model.layers[-1].activation) is keras_polycom.PolyNorm
print("DIFFERENCE", float(np.abs(model.predict(x, verbose=0) - expected).max()) < 1e-6)
"""


def test_a_saved_model_loads_in_a_fresh_process(tmp_path, rng):
    """CASES 004 and 033: without custom_objects; without our import the error names it; no rival."""
    model = keras.Sequential(
        [
            keras.Input((4,)),
            keras_polycom.FeedForward(5, keras_polycom.PolyNorm(order=2)),
            keras.layers.Dense(3, activation=keras_polycom.PolyNorm()),
        ]
    )
    x = rng.standard_normal((2, 4)).astype("float32")
    model.save(tmp_path / "model.keras")
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", model.predict(x, verbose=0))
    printed = run_python(LOAD, tmp_path / "model.keras", tmp_path / "x.npy", tmp_path / "y.npy")
    assert "ERROR" in printed and "keras_polycom" in printed.split("ERROR")[1].split("DIFFERENCE")[0]
    assert "DIFFERENCE True" in printed, printed
