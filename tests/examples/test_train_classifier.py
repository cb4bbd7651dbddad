"""The main job, run in process on images of 8x8 with models of a few hundred parameters."""

import csv
import json
import re
import shutil

import keras
import numpy as np
import pytest
import train_classifier
from support import classifiers, curves, training
from support.comparison import Comparison

import keras_polycom

TINY = "--batch-size 8 --patch-size 4 --width 8 --depth 1 --heads 2 --mlp-dim 8 --warmup 0.5"
RESNET = "--model resnet50 --batch-size 8 --depths 1 --widths 2"


def train(archive, output, *options, sizes=TINY, epochs=1):
    arguments = [
        "--dataset",
        archive,
        "--output",
        output,
        "--augment",
        "none",
        "--epochs",
        epochs,
        *sizes.split(),
        *options,
    ]
    return train_classifier.main([str(argument) for argument in arguments])


def results(output):
    return json.loads((output / "results.json").read_text())


def weights(output, name):
    return keras.saving.load_model(output / f"{name}.keras", compile=False).get_weights()


@pytest.fixture(scope="module")
def comparison(archive, tmp_path_factory):
    """Two runs of two epochs with dropout and drop path; the last test batch is a smaller one."""
    output = tmp_path_factory.mktemp("comparison")
    options = ["--activation", "gelu", "poly_norm", "--dropout", 0.2, "--drop-path", 0.2, "--train-limit", 24]
    assert train(archive, output, *options, "--clip-norm", 1, epochs=2) == 0
    options += ["--clip-norm", 1]
    return output, options


def test_all_files_are_there_and_nothing_else(comparison):
    output, _ = comparison
    names = {"results.json", "history.csv", "curves.png", "activations.png", "gelu.keras", "poly_norm.keras"}
    assert {path.name for path in output.iterdir()} == names
    for name in ("curves.png", "activations.png"):
        assert (output / name).read_bytes()[:4] == b"\x89PNG" and (output / name).stat().st_size > 10_000


def test_results_hold_settings_versions_data_and_runs(comparison):
    content = results(comparison[0])
    assert content["backend"] == keras.backend.backend() and content["versions"]["keras"] == keras.__version__
    assert content["device"]
    assert content["settings"]["width"] == 8 and content["settings"]["normalization"] == "layer_norm"
    assert content["data"]["train_images"] == 24 and content["data"]["test_images"] == 10
    assert list(content["runs"]) == ["gelu", "poly_norm"]
    for run in content["runs"].values():
        assert run["status"] == "finished" and len(run["history"]) == 2
        assert np.isfinite([run["train_loss"], run["accuracy"], run["ms_per_step"]]).all()
        assert run["best_accuracy"] == max(row["val_accuracy"] for row in run["history"])
        assert run["history"][-1]["learning_rate"] == pytest.approx(0, abs=1e-9)
    gelu, poly_norm = content["runs"].values()
    assert poly_norm["parameters"] == gelu["parameters"] + 4  # three coefficients and a bias
    assert gelu["curves"]["learned"] == [] and len(poly_norm["curves"]["learned"]) == 1
    assert poly_norm["curves"]["learned"][0] != poly_norm["curves"]["initial"]


def test_history_has_a_row_per_run_and_epoch(comparison):
    rows = list(csv.DictReader((comparison[0] / "history.csv").read_text().splitlines()))
    assert [(row["run"], row["epoch"]) for row in rows] == [(n, e) for n in ("gelu", "poly_norm") for e in "12"]
    assert all(float(row["loss"]) > 0 for row in rows)


def test_a_saved_model_predicts_as_the_run_says(comparison, arrays):
    output, _ = comparison
    content = results(output)
    model = keras.saving.load_model(output / "poly_norm.keras", compile=False)
    pixels = (arrays["x_test"] - np.array(content["data"]["mean"])) / np.array(content["data"]["std"])
    predicted = keras.ops.convert_to_numpy(model(pixels.astype("float32"))).argmax(-1)
    assert (predicted == arrays["y_test"]).mean() == pytest.approx(content["runs"]["poly_norm"]["accuracy"])


def test_the_same_command_again_keeps_what_is_finished(comparison, archive, capsys):
    output, options = comparison
    before = (output / "poly_norm.keras").read_bytes()
    assert train(archive, output, *options, epochs=2) == 0
    printed = capsys.readouterr().out
    assert "gelu: finished before, kept." in printed and "poly_norm: finished before, kept." in printed
    header = [line for line in printed.splitlines() if line.startswith("activation ")]
    assert [h.split("  ")[0] for h in header] == ["activation"] and "ms per step" in header[0]
    assert (output / "poly_norm.keras").read_bytes() == before


def test_other_settings_are_refused_by_name(comparison, archive, capsys):
    output, options = comparison
    assert train(archive, output, *options, "--seed", 1, epochs=3) == 2
    sentence = capsys.readouterr().err
    assert "epochs was 2 and is 3, seed was 0 and is 1" in sentence and "--overwrite" in sentence


def test_an_interrupted_run_goes_on_to_the_same_weights(comparison, archive, tmp_path, capsys, monkeypatch):
    whole, options = comparison
    output = tmp_path / "interrupted"
    shutil.copytree(whole, output)
    (output / "poly_norm.keras").unlink()  # as if only the first run had finished

    def interrupt(self, label, row):
        raise KeyboardInterrupt

    monkeypatch.setattr(Comparison, "keep", interrupt)
    assert train(archive, output, *options, epochs=2) == 130
    assert "interrupted in epoch 2 of poly_norm" in capsys.readouterr().err
    assert results(output)["runs"]["poly_norm"]["status"] == "interrupted"
    monkeypatch.undo()
    assert train(archive, output, *options, epochs=2) == 0
    printed = capsys.readouterr().out
    assert "gelu: finished before, kept." in printed and "poly_norm: goes on after epoch 1 of 2." in printed
    assert not (output / "checkpoints").exists()
    for ours, theirs in zip(weights(output, "poly_norm"), weights(whole, "poly_norm"), strict=True):
        assert np.array_equal(ours, theirs)


def run_without_training(self, epochs, on_epoch):
    row = {"epoch": 1, "loss": 1.0, "val_loss": 1.0, "val_accuracy": 0.5, "ms_per_step": 1.0, "seconds": 1.0}
    self.history.append(row)


def test_all_runs_see_the_same_batches_and_start_alike(archive, tmp_path, monkeypatch, capsys):
    seen = {}

    def look(self, epochs, on_epoch):
        batches = self.train_batches
        batches.epoch = 0
        seen[self.label] = (training.weights_by_path(self.model), [batches[i] for i in range(len(batches))])
        run_without_training(self, epochs, on_epoch)

    monkeypatch.setattr(training.Run, "train", look)
    names = ["relu", "poly_relu", "poly_norm"]
    assert train(archive, tmp_path, "--activation", *names, "--feed-forward", "mlp", "glu") == 0
    assert list(seen) == [f"{activation}-{layer}" for activation in names for layer in ("mlp", "glu")]
    assert "poly_relu-mlp: 24 variables start as in relu-mlp, 2 are its own." in capsys.readouterr().out
    start, batches = seen["relu-mlp"]
    assert len(set(start)) == len(start) == 24
    for other_start, other_batches in seen.values():
        assert all(np.array_equal(a, b) for a, b in zip(_flat(batches), _flat(other_batches), strict=True))
        shared = [path for path in start if path in other_start and "feed_forward/" not in path]
        assert len(shared) == 20
        assert all(np.array_equal(start[path], other_start[path]) for path in shared)


def _flat(batches):
    return [array for batch in batches for array in batch]


def test_activations_keep_their_own_start():
    options = {
        "image_shape": (4, 4, 1),
        "patch_size": 4,
        "num_layers": 1,
        "hidden_dim": 4,
        "num_heads": 1,
        "num_classes": 2,
    }
    model = keras_polycom.models.ViT(activation="poly_relu", name="vit", **options)
    reference = {path: value + 1 for path, value in training.weights_by_path(model).items()}
    shared, own = training.copy_shared_weights(model, reference, curves.activation_layers(model))
    assert (shared, own) == (len(model.weights) - 2, 2)
    after = training.weights_by_path(model)
    changed = {path for path in after if np.array_equal(after[path], reference[path])}
    assert len(changed) == shared and not any(path.endswith(("coefficients", "activation/bias")) for path in changed)


@pytest.mark.parametrize("feed_forward", ["mlp", "glu"])
def test_only_matrices_decay(feed_forward):
    model = keras_polycom.models.ViT(
        image_shape=(4, 4, 1),
        patch_size=2,
        num_layers=1,
        hidden_dim=4,
        num_heads=2,
        num_classes=3,
        activation="poly_norm",
        feed_forward=feed_forward,
    )
    decayed, others = training.split_by_decay(model)
    assert len(decayed) == 1 + 4 + (2 if feed_forward == "mlp" else 3) + 1  # patches, attention, feed-forward, head
    assert len(decayed) + len(others) == len(model.trainable_variables)
    optimizer = training.adamw(model, 0.5, weight_decay=0.1)
    for variable in model.trainable_variables:
        variable.assign(np.ones(variable.shape))
    optimizer.apply([keras.ops.zeros(v.shape) for v in model.trainable_variables], model.trainable_variables)
    assert all(np.allclose(v, 0.95) for v in map(keras.ops.convert_to_numpy, decayed))
    assert all(np.array_equal(v, np.ones(v.shape)) for v in map(keras.ops.convert_to_numpy, others))


def test_gates_of_mixtures_decay():
    layer = keras_polycom.MoAFeedForward(hidden_dim=4)
    model = keras.Sequential([keras.Input((5,)), layer])
    assert any(variable is layer.mixing_kernel for variable in training.split_by_decay(model)[0])


def test_learning_rate_rises_then_falls_to_zero():
    schedule = training.warmup_cosine(1.0, steps=10, warmup_steps=4)
    rates = [float(schedule(step)) for step in range(11)]
    assert np.allclose(rates[:5], [0.25, 0.4375, 0.625, 0.8125, 1.0])
    assert rates[4:] == sorted(rates[4:], reverse=True) and rates[10] == pytest.approx(0, abs=1e-7)
    assert float(training.warmup_cosine(1.0, 10, 0)(0)) == 1.0


def test_resnet_in_half_precision_with_averaged_weights(archive, tmp_path, global_policy):
    options = ["--activation", "poly_relu", "--mixed-precision", "mixed_float16", "--ema", "0.5"]
    assert train(archive, tmp_path, *options, sizes=RESNET) == 0
    run = results(tmp_path)["runs"]["poly_relu"]
    assert np.isfinite(run["train_loss"]) and run["feed_forward"] is None
    assert keras.config.dtype_policy().name == "float32"


def test_averages_are_saved_while_training_goes_on_from_the_weights(comparison, archive, tmp_path):
    plain, (_, _, _, *others) = comparison
    assert train(archive, tmp_path, "--activation", "poly_norm", *others, "--ema", 0.9, epochs=2) == 0
    losses = [[row["loss"] for row in results(output)["runs"]["poly_norm"]["history"]] for output in (plain, tmp_path)]
    assert losses[0] == losses[1]  # the same training
    pairs = list(zip(weights(plain, "poly_norm"), weights(tmp_path, "poly_norm"), strict=True))
    assert not any(np.array_equal(ours, averaged) for ours, averaged in pairs)
    assert all(np.allclose(ours, averaged, atol=0.02) for ours, averaged in pairs)


def test_a_loss_that_is_not_finite_stops_the_run(archive, tmp_path, capsys):
    assert train(archive, tmp_path, "--activation", "poly_relu", "--learning-rate", 1e30, "--warmup", 0, epochs=2) == 3
    sentence = capsys.readouterr().err
    assert "the loss of poly_relu is" in sentence and "at step 2 (step 2 of its epoch)" in sentence
    assert results(tmp_path)["runs"]["poly_relu"]["status"].startswith("stopped: the loss of poly_relu")


def test_a_corrupt_image_met_while_training_is_named(image_folder, tmp_path, capsys):
    broken = image_folder / "train" / "light" / "05.png"
    broken.write_bytes(broken.read_bytes()[:50])
    assert train(image_folder, tmp_path / "out", "--memory", 0, "--batch-size", 28) == 2
    sentence = capsys.readouterr().err
    assert f"The image {broken} cannot be read" in sentence and sentence.count("\n") == 1


def _refused(arguments, capsys):
    """The sentence on stderr of a command that must end with status 2."""
    try:
        status = train_classifier.main([str(argument) for argument in arguments])
    except SystemExit as left:
        status = left.code
    sentence = capsys.readouterr().err
    assert status == 2 and sentence.startswith("error: ") and sentence.count("\n") == 1 and sentence[-2] == "."
    return sentence


BAD_OPTIONS = {
    "unknown activation": ("--activation wrong", "--activation wrong is not a known name: choose from .*poly_norm"),
    "unknown feed-forward": ("--feed-forward wrong", "--feed-forward wrong is not .*glu"),
    "unknown normalization": ("--normalization wrong", "--normalization wrong is not .*layer_norm"),
    "unknown model": ("--model vgg", "invalid choice: 'vgg'"),
    "unknown option": ("--epoch 3", "unrecognized arguments: --epoch 3"),
    "no epochs": ("--epochs 0", "--epochs: expected an integer of at least 1, got '0'"),
    "half an epoch": ("--epochs 1.5", "--epochs: expected an integer of at least 1, got '1.5'"),
    "negative rate": ("--learning-rate -1", "--learning-rate: expected a number above 0, got '-1'"),
    "nan": ("--weight-decay nan", "--weight-decay: expected a number of at least 0, got 'nan'"),
    "certain dropout": ("--dropout 1", "--dropout: expected a number of at least 0 and below 1, got '1'"),
    "large batch": ("--batch-size 29", "--batch-size 29 is larger than the 28 training images"),
    "patch": ("--patch-size 3", "model with poly_norm cannot be built .*patch_size=.*3"),
    "heads": ("--width 9 --heads 2", "cannot be built .*num_heads=2"),
    "option of the other model": ("--stem cifar", "--stem is not an option of the ViT"),
    "feed-forward of a ResNet": (
        "--model resnet50 --feed-forward glu",
        "--feed-forward is not an option of the ResNet",
    ),
    "width of a ResNet": ("--model resnet50 --width 8", "--width is not an option of the ResNet"),
    "channels to groups": ("--activation relu pln[5] --mlp-dim 8", r"model with pln\[5\] cannot be built .*5"),
}


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_a_bad_option_is_named(archive, tmp_path, capsys, options, message):
    arguments = ["--dataset", archive, "--output", tmp_path / "out", "--batch-size", 8, *options.split()]
    assert re.search(message, _refused(arguments, capsys))


def test_an_output_that_cannot_be_written_is_named(archive, tmp_path, capsys):
    blocked = tmp_path / "file"
    blocked.write_text("")
    sentence = _refused(["--dataset", archive, "--output", blocked / "out", "--batch-size", 8], capsys)
    assert str(blocked / "out" / "results.json") in sentence and "choose another --output" in sentence


def test_overwrite_starts_afresh(comparison, archive, tmp_path, monkeypatch):
    output = tmp_path / "copy"
    shutil.copytree(comparison[0], output)
    (output / "own.txt").write_text("the user's")
    monkeypatch.setattr(training.Run, "train", run_without_training)
    assert train(archive, output, "--activation", "tanh", "--overwrite") == 0
    assert list(results(output)["runs"]) == ["tanh"]
    assert not (output / "gelu.keras").exists() and (output / "own.txt").exists()


def test_help_explains_every_option(capsys):
    with pytest.raises(SystemExit) as left:
        train_classifier.main(["--help"])
    assert left.value.code == 0
    assert "exit status" in capsys.readouterr().out
    for action in train_classifier.make_parser()._actions:
        assert action.help and ("default:" in action.help or action.dest == "help"), action.option_strings


def test_default_sizes_fit_their_images():
    for side, channels in ((8, 1), (28, 1), (32, 3)):
        for name in ("vit", "resnet50"):
            options = train_classifier.make_parser().parse_args(["--model", name])
            classifiers.complete(options, (side, side, channels))
            if name == "vit":
                assert side % options.patch_size == 0 and options.width % options.heads == 0
            else:
                assert len(options.depths) == len(options.widths) and 2 ** (len(options.depths) - 1) <= side
