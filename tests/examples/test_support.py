"""Files written whole, checkpoints, curves, tables and progress."""

import os
import re

import keras
import numpy as np
import pytest
from support import curves, files, report, startup
from support.errors import UserError, exit_status_of
from support.experiment import file_name
from support.progress import Progress

import keras_polycom


def compiled(units=3):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(units, name="dense")], name="model")
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    return model


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "new" / "file.txt"
    files.write_text(path, "old")
    with (
        pytest.raises(UserError, match=r"file\.txt cannot be written \(disk full\), what was there"),
        files.whole_file(path) as temporary,
    ):
        temporary.write_text("half")
        raise OSError(28, "disk full")
    assert path.read_text() == "old" and os.listdir(path.parent) == ["file.txt"]


def test_what_a_kill_leaves_half_written_is_removed(tmp_path):
    files.write_text(tmp_path / "file.txt", "old")
    (tmp_path / files.PARTIAL).mkdir()
    (tmp_path / files.PARTIAL / "file.txt").write_text("ha")
    files.clear_partial(tmp_path)
    files.clear_partial(tmp_path)
    assert os.listdir(tmp_path) == ["file.txt"] and (tmp_path / "file.txt").read_text() == "old"


def test_a_failed_write_does_not_move_the_old_file_away(tmp_path):
    path, former = tmp_path / "file.txt", tmp_path / "former.txt"
    for text in "abc":
        files.write_text(path, text, keep_as=former)
    assert path.read_text() == "c" and former.read_text() == "b"
    with pytest.raises(UserError), files.whole_file(path, keep_as=former):
        raise OSError(28, "disk full")
    assert path.read_text() == "c" and former.read_text() == "b"


def test_a_full_log_ends_in_one_sentence(capsys):
    def write():
        raise OSError(28, "No space left on device")

    assert exit_status_of(write) == 2
    assert capsys.readouterr().err == (
        "error: the output cannot be written (No space left on device); what was finished is kept.\n"
    )


def test_an_error_of_the_system_that_is_no_failed_write_is_not_hidden():
    with pytest.raises(FileNotFoundError):
        exit_status_of(open, "missing")


def test_a_json_file_of_something_else_is_named(tmp_path):
    path = tmp_path / "results.json"
    path.write_text("[1]")
    with pytest.raises(UserError, match=r"results\.json cannot be read \(it holds a list, not an object\)"):
        files.read_json(path)


def test_a_damaged_json_file_is_named(tmp_path):
    path = tmp_path / "results.json"
    assert files.read_json(path) is None
    path.write_text("{")
    with pytest.raises(UserError, match=r"results\.json cannot be read"):
        files.read_json(path)


def test_the_curve_of_an_elementwise_activation_is_the_activation():
    grid = np.linspace(-2, 2, 9)
    assert np.allclose(curves.response(keras.ops.relu, grid), np.maximum(grid, 0))
    layer = keras_polycom.PolyReLU(coefficients_initializer=[1.0, 2.0, 3.0])
    positive = np.maximum(grid, 0)
    assert np.allclose(curves.response(layer, grid), positive + 2 * positive**2 + 3 * positive**3, atol=1e-5)


def test_the_curve_of_poly_norm_has_the_moments_of_a_standard_normal_row():
    grid = np.linspace(-2, 2, 9)
    layer = keras_polycom.PolyNorm(coefficients_initializer=[1.0, 2.0, 3.0])
    expected = grid + 2 * grid**2 / np.sqrt(3) + 3 * grid**3 / np.sqrt(15)
    assert np.allclose(curves.response(layer, grid), expected, rtol=0.01, atol=0.01)


def test_activation_layers_are_found_at_every_depth():
    feed_forward = keras_polycom.FeedForward(4, activation="poly_norm")
    model = keras.Sequential(
        [
            keras.Input((3,)),
            feed_forward,
            keras.layers.Dense(2, activation=keras_polycom.PolyReLU()),
            keras.layers.ReLU(),
        ]
    )
    assert [type(layer).__name__ for layer in curves.activation_layers(model)] == ["PolyNorm", "PolyReLU"]


def test_table_is_aligned():
    lines = report.table(("name", "n"), [("a", 1000), ("long name", 2)]).splitlines()
    assert lines == ["name          n", "---------  ----", "a          1000", "long name     2"]


def test_curves_of_one_epoch_and_of_a_wide_range_can_be_drawn(tmp_path):
    one = {"a": [{"epoch": 1, "loss": 1.0}], "b": []}
    wide = {"a": [{"epoch": e, "loss": 10.0**-e} for e in range(4)], "b": [{"epoch": 1, "loss": 1.0}]}
    for name, histories in {"one.png": one, "wide.png": wide}.items():
        report.write_curves(tmp_path / name, histories, "title", {"training loss": "loss"})
        assert (tmp_path / name).read_bytes()[:4] == b"\x89PNG"


def test_labels_at_the_ends_are_moved_apart():
    heights = report._apart([0.99, 0.2, 0.98, 1.0])
    assert np.allclose(heights, [0.94, 0.2, 0.88, 1.0])
    assert np.allclose(report._apart([0.1, 0.12]), [0.1, 0.16])


ROW = {"loss": 0.5, "accuracy": 0.25, "val_loss": 0.75, "val_accuracy": 1.0, "ms_per_step": 12.34, "seconds": 1.0}


@pytest.mark.parametrize("interactive", [False, True], ids=["file", "terminal"])
def test_an_epoch_leaves_one_line(capsys, interactive):
    with Progress(interactive).epoch("relu", 3, 10, steps=2) as epoch:
        epoch.step(1, 0.7)
        epoch.step(2, 0.5)
        epoch.finish(ROW)
    lines = [line for line in capsys.readouterr().out.splitlines() if "accuracy 0.2500" in line]
    assert len(lines) == 1 and re.search(r"relu +epoch  3/10  loss 0\.5000 .* 12\.3 ms/step", lines[0])


def test_a_file_gets_no_control_characters(capsys):
    with Progress(False).epoch("relu", 1, 1, steps=1) as epoch:
        epoch.step(1, 0.7)
        epoch.finish(ROW)
    assert re.fullmatch(r"[ -~]*\n", capsys.readouterr().out)


def test_names_become_file_names():
    assert [file_name(name) for name in ("poly_norm-glu", "pln[8]", "mix[2,4]")] == [
        "poly_norm-glu",
        "pln-8",
        "mix-2-4",
    ]


def test_an_unknown_backend_is_named(monkeypatch, capsys):
    monkeypatch.setenv("KERAS_BACKEND", "theano")
    with pytest.raises(SystemExit) as left:
        startup.choose_backend()
    assert left.value.code == 2 and "KERAS_BACKEND=theano is not a backend" in capsys.readouterr().err


def test_a_backend_that_is_not_installed_is_named(monkeypatch, capsys):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name == "torch" or None)
    with pytest.raises(SystemExit):
        startup.choose_backend()
    assert "KERAS_BACKEND=jax is not installed: install jax, or choose another of torch." in capsys.readouterr().err
    monkeypatch.delenv("KERAS_BACKEND")
    startup.choose_backend()
    assert os.environ["KERAS_BACKEND"] == "torch"
