"""The script on a few points with networks of a few hundred parameters."""

import csv
import json
import re

import helmholtz_pinn
import keras
import numpy as np
import pytest
from support import training
from support.pde import helmholtz

TINY = "--width 8 --depth 1 --interior-points 20 --boundary-points 4 --iterations 6 --steps-per-epoch 3"
TWO = ["--activation", "pln[4]", "tanh"]


def solve(output, *options):
    return helmholtz_pinn.main([str(argument) for argument in ("--output", output, *TINY.split(), *options)])


def results(output):
    return json.loads((output / "results.json").read_text())


def weights(output, name):
    return keras.saving.load_model(output / f"{name}.keras", compile=False).get_weights()


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    output = tmp_path_factory.mktemp("helmholtz")
    assert solve(output, *TWO) == 0
    return output


def test_files_results_and_history(comparison):
    names = {"results.json", "history.csv", "curves.png", "pln-4.keras", "tanh.keras"}
    assert {path.name for path in comparison.iterdir()} == names
    assert (comparison / "curves.png").read_bytes()[:4] == b"\x89PNG"
    content = results(comparison)
    assert content["settings"]["wave_number"] == 1.0 and content["settings"]["loss_weights"] == [1.0, 10.0]
    assert list(content["runs"]) == ["pln[4]", "tanh"]
    for run in content["runs"].values():
        assert run["status"] == "finished" and run["wave_number"] == 1.0 and run["seed"] == 0
        errors = [row["error"] for row in run["history"]]
        assert run["error"] == errors[-1] and run["best_error"] == min(errors)
        assert run["best_iteration"] == (3, 6)[errors.index(min(errors))]
    assert content["runs"]["pln[4]"]["parameters"] == content["runs"]["tanh"]["parameters"] + 2 * 8
    rows = list(csv.DictReader((comparison / "history.csv").read_text().splitlines()))
    assert [(row["run"], float(row["iteration"])) for row in rows] == [
        (n, i) for n in ("pln[4]", "tanh") for i in (3, 6)
    ]


def test_a_saved_network_has_the_error_of_its_run(comparison):
    network = keras.saving.load_model(comparison / "pln-4.keras", compile=False)
    assert helmholtz.relative_error(network) == pytest.approx(results(comparison)["runs"]["pln[4]"]["error"], rel=1e-5)


def test_an_interrupted_run_goes_on_to_the_same_weights(comparison, interrupted_copy, capsys):
    output = interrupted_copy(comparison, "tanh", lambda folder: solve(folder, *TWO))
    assert "interrupted in epoch 2 of tanh" in capsys.readouterr().err
    assert results(output)["runs"]["tanh"]["status"] == "interrupted"
    assert solve(output, *TWO) == 0
    printed = capsys.readouterr().out
    assert "pln[4]: finished before, kept." in printed and "tanh: goes on after epoch 1 of 2." in printed
    assert re.search(r"^tanh +\d+ .*\n\nWritten to .* wave number 1\.$", printed, re.MULTILINE)
    for ours, theirs in zip(weights(output, "tanh"), weights(comparison, "tanh"), strict=True):
        assert np.array_equal(ours, theirs)


def test_runs_of_one_seed_start_alike_and_seeds_differ(tmp_path, monkeypatch):
    starts, points = {}, {}

    def look(self, epochs, on_epoch):
        starts[self.label] = training.weights_by_path(self.model)
        points[self.label] = self.train_batches[0][0]["interior"]
        self.history.append({"epoch": 1, "iteration": 3, "loss": 1, "error": 1, "ms_per_step": 1, "seconds": 1})

    monkeypatch.setattr(training.Run, "train", look)
    assert solve(tmp_path, *TWO, "--seed", 3, 4) == 0
    assert list(starts) == ["pln[4]-seed3", "pln[4]-seed4", "tanh-seed3", "tanh-seed4"]
    for seed in (3, 4):
        ours, theirs = starts[f"tanh-seed{seed}"], starts[f"pln[4]-seed{seed}"]
        assert len(ours) == 4 and all(np.array_equal(value, theirs[path]) for path, value in ours.items())
        assert np.array_equal(points[f"tanh-seed{seed}"], points[f"pln[4]-seed{seed}"])
    assert not np.array_equal(points["tanh-seed3"], points["tanh-seed4"])
    assert not any(np.array_equal(value, starts["tanh-seed4"][path]) for path, value in starts["tanh-seed3"].items())


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path, capsys):
    assert solve(tmp_path, "--activation", "tanh", "--learning-rate", 1e30) == 3
    assert re.search(r"the loss of tanh is .* at step 2 \(step 2 of its epoch\): lower", capsys.readouterr().err)


BAD_OPTIONS = {
    "unknown activation": (
        "--activation wrong",
        r"--activation wrong is not a known name: choose from ln, sat, pln\[N\]",
    ),
    "channels to runs": ("--activation tanh pln[3]", r"model with pln\[3\] cannot be built .*norm_size=3, channels=8"),
    "indivisible": ("--steps-per-epoch 4", "--steps-per-epoch 4 does not divide --iterations 6"),
    "one end": ("--boundary-points 1", "--boundary-points: expected an integer of at least 2, got '1'"),
    "one weight": ("--loss-weights 1", "--loss-weights: expected 2 arguments"),
    "negative weight": ("--loss-weights 1 -1", "--loss-weights: expected a number of at least 0, got '-1'"),
    "no seed": ("--seed x", "--seed: expected an integer from 0"),
}


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_a_bad_option_is_named(tmp_path, refused, options, message):
    assert re.search(message, refused(helmholtz_pinn.main, ["--output", tmp_path, *TINY.split(), *options.split()]))


def test_other_settings_are_refused_by_name(comparison, refused):
    arguments = ["--output", comparison, *TINY.split(), *TWO, "--wave-number", 2]
    assert "wave_number was 1.0 and is 2.0" in refused(helmholtz_pinn.main, arguments)


def test_help_explains_every_option(check_help):
    check_help(helmholtz_pinn)
