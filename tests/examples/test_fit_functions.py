"""Targets, nonlinearities by name, and the script on a few points with networks of a few dozen parameters."""

import json
import re

import fit_functions
import keras
import numpy as np
import pytest
from support import mlp, nonlinearities, points, sweep

TINY = "--width 8 --train-points 20 --validation-points 9 --test-points 10 --batch-size 8 --epochs 2 --warmup-steps 2"
TWO = ["--activation", "pln[4]", "--targets", 2]


def fit(output, *options):
    return fit_functions.main([str(argument) for argument in ("--output", output, *TINY.split(), *options)])


def results(output):
    return json.loads((output / "results.json").read_text())


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    """One nonlinearity, two targets."""
    output = tmp_path_factory.mktemp("functions")
    assert fit(output, *TWO) == 0
    return output


# === Targets ===


def test_a_target_is_the_sum_of_its_modes():
    target = points.FourierTarget(3, 5, number=2)
    x = np.random.default_rng(0).uniform(-1, 1, (6, 3))
    expected = [
        sum(
            target.amplitudes[j]
            * np.cos(np.pi * sum(target.frequencies[i, j] * row[i] for i in range(3)) + target.phases[j])
            for j in range(5)
        )
        for row in x
    ]
    np.testing.assert_allclose(target(x), expected, atol=1e-12)
    assert set(np.unique(target.frequencies)) == set(np.unique(target.amplitudes)) == {-1, 1}
    assert target.phases.min() >= 0 and target.phases.max() < 2 * np.pi


def test_targets_follow_from_their_number():
    x = np.ones((1, 4))
    values = [float(points.FourierTarget(4, 8, number)(x)[0]) for number in (0, 0, 1)]
    assert values[0] == values[1] != values[2]


def test_values_are_in_the_units_of_the_training_values():
    target = points.FourierTarget(4, 8, number=0)
    train, validation, test = points.draw(target, (3000, 200, 1000), seed=5)
    assert [len(samples) for samples in (train, validation, test)] == [3000, 200, 1000]
    assert train.points.shape == (3000, 4) and train.values.shape == (3000, 1) and train.values.dtype == "float32"
    assert train.values.mean() == pytest.approx(0, abs=1e-6) and train.values.std() == pytest.approx(1, abs=1e-6)
    assert np.abs(train.points).max() <= 1 and not np.isin(test.points[:, 0], train.points[:, 0]).any()
    raw = target(train.points.astype("float64"))
    for samples in (train, validation, test):
        expected = (target(samples.points.astype("float64")) - raw.mean()) / raw.std()
        np.testing.assert_allclose(samples.values[:, 0], expected, atol=1e-4)
    assert test.values.mean() != 0


def test_batches_are_shuffled_by_epoch():
    samples = points.Samples(np.arange(10.0)[:, None], 2 * np.arange(10.0)[:, None])
    training = points.PointBatches(samples, 4, seed=1, training=True)
    assert len(training) == 2
    orders = []
    for epoch in (0, 1, 0):
        training.epoch = epoch
        orders.append(np.concatenate([training[i][0][:, 0] for i in range(2)]).tolist())
        assert all(np.array_equal(training[i][1], 2 * training[i][0]) for i in range(2))
    assert orders[0] == orders[2] != orders[1] and len(set(orders[0])) == 8
    plain = points.PointBatches(samples, 4)
    assert [len(plain[i][0]) for i in range(len(plain))] == [4, 4, 2]


# === Networks ===


def test_nonlinearities_of_the_paper():
    x = np.array([[-2.0, 0.5, 1.0, 3.0, -1.0, 0.0, 4.0, 2.0]], "float32")

    def normalized(run):
        return (run - run.mean(-1, keepdims=True)) / np.sqrt(run.var(-1, keepdims=True) + 1e-5)

    expected = {
        "sat": x / np.sqrt(1 + x**2),
        "ln": normalized(x),
        "pln[8]": normalized(x),
        "pln[4]": normalized(x.reshape(1, 2, 4)).reshape(1, 8),
        "identity": x,
        "relu": np.maximum(x, 0),
        "silu": x / (1 + np.exp(-x)),
        "tanh": np.tanh(x),
    }
    for name, values in expected.items():
        nonlinearities.check_name(name)
        inputs = keras.Input((8,))
        model = keras.Model(inputs, nonlinearities.apply(name, inputs, "nonlinearity"))
        np.testing.assert_allclose(keras.ops.convert_to_numpy(model(x)), values, atol=1e-5, err_msg=name)


def test_weights_start_within_one_over_the_root_of_the_inputs():
    model = mlp.build(4, 100, 2, "ln", seed=0)
    for layer, limit in (("hidden_1", 0.5), ("hidden_2", 0.1), ("output", 0.1)):
        kernel, bias = model.get_layer(layer).get_weights()
        assert 0.9 * limit < np.abs(kernel).max() <= limit and np.abs(bias).max() <= limit and bias.any()


def test_runs_are_named_by_what_differs():
    choices = {"activation": (["relu"], "{}"), "seed": ([1, 1], "seed{}"), "rate": ([0.1, 0.25], "lr{:g}")}
    runs = sweep.combinations(choices)
    assert list(runs) == ["relu-lr0.1", "relu-lr0.25"]
    assert runs["relu-lr0.25"] == {"activation": "relu", "seed": 1, "rate": 0.25}


# === The script ===


def test_files_results_and_summary(comparison):
    labels = ["pln[4]-target0", "pln[4]-target1"]
    models = {"pln-4--target0.keras", "pln-4--target1.keras"}
    assert {path.name for path in comparison.iterdir()} == {"results.json", "history.csv", "curves.png", *models}
    content = results(comparison)
    assert list(content["runs"]) == labels and content["settings"]["modes"] == 8
    for run in content["runs"].values():
        assert run["status"] == "finished" and run["validation_error"] == run["history"][-1]["val_loss"]
        assert run["history"][-1]["learning_rate"] == pytest.approx(0, abs=1e-9)
    errors = [content["runs"][f"pln[4]-target{number}"]["test_error"] for number in (0, 1)]
    assert errors[0] != errors[1]
    assert content["summary"]["pln[4]"] == {
        "learning_rate": 0.001,
        "runs": 2,
        "test_error": pytest.approx(np.mean(errors)),
        "standard_deviation": pytest.approx(np.std(errors)),
    }


def test_a_saved_model_has_the_test_error_of_its_run(comparison):
    model = keras.saving.load_model(comparison / "pln-4--target1.keras", compile=False)
    test = points.draw(points.FourierTarget(4, 8, 1), (20, 9, 10), 1)[2]
    predicted = keras.ops.convert_to_numpy(model(test.points))
    error = results(comparison)["runs"]["pln[4]-target1"]["test_error"]
    assert np.mean((predicted - test.values) ** 2) == pytest.approx(error, rel=1e-5)


def test_the_best_learning_rate_is_chosen_by_validation():
    def run(activation, rate, validation, test):
        return {"activation": activation, "learning_rate": rate, "validation_error": validation, "test_error": test}

    runs = [
        run("relu", 0.1, 0.2, 7.0),
        run("relu", 0.1, 0.4, 9.0),
        run("relu", 0.3, 0.1, 1.0),
        run("relu", 0.3, 0.9, 1.0),
    ]
    summary = fit_functions.summarise(dict(enumerate([*runs, run("tanh", 0.3, 5.0, 6.0)])))
    assert summary["relu"] == {"learning_rate": 0.1, "runs": 2, "test_error": 8.0, "standard_deviation": 1.0}
    assert summary["tanh"]["learning_rate"] == 0.3 and summary["tanh"]["runs"] == 1


def test_an_interrupted_run_goes_on_to_the_same_result(comparison, interrupted_copy, capsys):
    output = interrupted_copy(comparison, "pln[4]-target1", lambda folder: fit(folder, *TWO))
    assert "interrupted in epoch 2 of pln[4]-target1" in capsys.readouterr().err
    assert fit(output, *TWO) == 0
    printed = capsys.readouterr().out
    assert "pln[4]-target0: finished before, kept." in printed
    assert "pln[4]-target1: goes on after epoch 1 of 2." in printed
    assert re.search(r"^pln\[4\] +0\.001 +2 ", printed, re.MULTILINE)
    ours, theirs = (results(folder)["runs"]["pln[4]-target1"]["test_error"] for folder in (output, comparison))
    assert ours == theirs


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path, capsys):
    assert fit(tmp_path, "--activation", "relu", "--learning-rate", 1e30) == 3
    assert re.search("the loss of relu is .* lower --learning-rate, or raise --warmup-steps", capsys.readouterr().err)


BAD_OPTIONS = {
    "unknown activation": ("--activation wrong", "--activation wrong is not a known name: choose from ln, sat"),
    "channels to runs": ("--activation pln[5]", r"model with pln\[5\] cannot be built .*norm_size=5, channels=8"),
    "no modes": ("--modes 0", "--modes: expected an integer of at least 1, got '0'"),
    "large batch": ("--batch-size 21", "--batch-size 21 is larger than --train-points 20"),
    "no rate": ("--learning-rate 0", "--learning-rate: expected a number above 0, got '0'"),
}


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_a_bad_option_is_named(tmp_path, refused, options, message):
    assert re.search(message, refused(fit_functions.main, ["--output", tmp_path, *TINY.split(), *options.split()]))


def test_help_says_what_the_paper_does_not(check_help, capsys):
    check_help(fit_functions)
    text = " ".join(fit_functions.make_parser().format_help().split())
    assert "the paper does not say how many; +-1 frequencies in 4 dimensions" in text
