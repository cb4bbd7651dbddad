"""The dispatcher and the switch: which version of an op runs, and what is said when none can."""

import types

import keras
import pytest

from keras_polycom import config
from keras_polycom.ops import fused


def _double(x, factor=2):
    """The formula."""
    return "formula", x, factor


@pytest.fixture
def backend_module(monkeypatch):
    """A stand-in for the file of the backend in use: it takes positive inputs only."""

    def double(x, factor=2):
        return "fast", x, factor

    def double_refuses(x, factor=2):
        return None if x > 0 else f"{x} is not positive"

    module = types.SimpleNamespace(double=double, double_refuses=double_refuses)
    monkeypatch.setattr(fused, "_backend_module", module)
    return module


@pytest.mark.parametrize(
    ("mode", "x", "road"),
    [("auto", 3, "fast"), ("auto", -3, "formula"), ("off", 3, "formula"), ("on", 3, "fast")],
    ids=["auto_fast", "auto_refused", "off", "on"],
)
def test_roads(backend_module, mode, x, road):
    with config.fast_roads_scope(mode):
        assert fused.dispatch(_double, x, factor=5) == (road, x, 5)


def test_an_explicit_request_that_is_refused_raises_with_the_reason(backend_module):
    with config.fast_roads_scope("on"), pytest.raises(ValueError, match="`double` was required.*-3 is not positive"):
        fused.dispatch(_double, -3)


def test_symbolic_inputs_take_the_formula(backend_module):
    x = keras.KerasTensor((None, 3))
    with config.fast_roads_scope("auto"):
        assert fused.dispatch(_double, x)[0] == "formula"
    with config.fast_roads_scope("on"), pytest.raises(ValueError, match="symbolic"):
        fused.dispatch(_double, x)


@pytest.mark.parametrize("module", [None, types.SimpleNamespace()], ids=["no_file", "file_without_the_op"])
def test_a_backend_without_a_faster_version(monkeypatch, module):
    monkeypatch.setattr(fused, "_backend_module", module)
    with config.fast_roads_scope("auto"):
        assert fused.dispatch(_double, 3)[0] == "formula"
    with (
        config.fast_roads_scope("on"),
        pytest.raises(ValueError, match=f"the {keras.backend.backend()} backend has no"),
    ):
        fused.dispatch(_double, 3)


def test_scope_restores_the_mode_after_an_error():
    former = config.fast_roads()
    with pytest.raises(RuntimeError), config.fast_roads_scope("off"):
        assert config.fast_roads() == "off"
        raise RuntimeError
    assert config.fast_roads() == former


@pytest.mark.parametrize("mode", ["fast", None, True])
def test_unknown_modes_are_refused(mode):
    with pytest.raises(ValueError, match="`mode` must be one of auto, off, on. Received"):
        config.set_fast_roads(mode)
