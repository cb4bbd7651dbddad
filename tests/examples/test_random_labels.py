"""The script on images of 8x8, and its network without activations."""

import json
import re

import keras
import numpy as np
import pytest
import random_labels
from support import conv_net, data
from support.errors import UserError

TINY = "--width 8 --depth 2 --batch-size 8 --epochs 2"
TWO = ["--normalization", "ln", "pln[4]"]


def memorize(archive, output, *options):
    arguments = ("--dataset", archive, "--output", output, *TINY.split(), *options)
    return random_labels.main([str(argument) for argument in arguments])


def results(output):
    return json.loads((output / "results.json").read_text())


@pytest.fixture(scope="module")
def comparison(archive, tmp_path_factory):
    output = tmp_path_factory.mktemp("labels")
    assert memorize(archive, output, *TWO) == 0
    return output


def test_files_and_results(comparison):
    names = {"results.json", "history.csv", "curves.png", "ln.keras", "pln-4.keras"}
    assert {path.name for path in comparison.iterdir()} == names
    content = results(comparison)
    assert content["settings"]["train_limit"] == content["data"]["train_images"] == 28
    assert content["settings"]["stride"] == 1
    parameters = 9 * 3 * 8 + 8 + 9 * 8 * 8 + 8 + 2 * 2 * 8 * 3 + 3
    for run in content["runs"].values():
        assert run["status"] == "finished" and run["parameters"] == parameters
        assert run["train_accuracy"] == run["history"][-1]["train_accuracy"]
        assert run["best_train_accuracy"] == max(row["train_accuracy"] for row in run["history"])


def test_a_saved_model_has_the_accuracy_of_its_run(comparison, archive):
    image_set = data.load(str(archive))
    labels = random_labels.with_random_labels(image_set, seed=0).labels
    model = keras.saving.load_model(comparison / "pln-4.keras", compile=False)
    pixels = (image_set.train.load(np.arange(28)) - np.array(image_set.mean)) / np.array(image_set.std)
    predicted = keras.ops.convert_to_numpy(model(pixels.astype("float32"))).argmax(-1)
    accuracy = results(comparison)["runs"]["pln[4]"]["train_accuracy"]
    assert (predicted == labels).mean() == pytest.approx(accuracy)


def test_labels_are_drawn_from_the_seed_and_know_nothing_of_the_images(archive):
    image_set = data.load(str(archive))
    drawn = [random_labels.with_random_labels(image_set, seed).labels for seed in (0, 0, 1)]
    assert np.array_equal(drawn[0], drawn[1]) and not np.array_equal(drawn[0], drawn[2])
    assert set(drawn[0]) == {0, 1, 2}
    assert not np.array_equal(drawn[0], image_set.train.labels)


def test_an_interrupted_run_goes_on_to_the_same_weights(comparison, archive, interrupted_copy, capsys):
    output = interrupted_copy(comparison, "pln[4]", lambda folder: memorize(archive, folder, *TWO))
    assert "interrupted in epoch 2 of pln[4]" in capsys.readouterr().err
    assert memorize(archive, output, *TWO) == 0
    printed = capsys.readouterr().out
    assert "ln: finished before, kept." in printed and "pln[4]: goes on after epoch 1 of 2." in printed
    assert re.search(r"^pln\[4\] +\d+ .*\n\nWritten to", printed, re.MULTILINE)
    models = [keras.saving.load_model(folder / "pln-4.keras", compile=False) for folder in (output, comparison)]
    for ours, theirs in zip(*(model.get_weights() for model in models), strict=True):
        assert np.array_equal(ours, theirs)


def blocks_normalized(x, axes):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)


NORMALIZATIONS = {
    "ln": ((2, 16, 1, 8), (1, 3)),
    "pln[8]": ((2, 4, 4, 8), (3,)),
    "pln[4]": ((2, 4, 4, 2, 4), (4,)),
    "gn": ((2, 16, 1, 8), (1, 3)),
    "gn[2]": ((2, 16, 2, 4), (1, 3)),
    "mix_norm[4,2]": ((2, 4, 4, 2, 4), (2, 4)),
    "patch_group_norm[2,2]": ((2, 2, 2, 2, 2, 2, 4), (2, 4, 6)),
}


@pytest.mark.parametrize("name", NORMALIZATIONS)
def test_normalizations_and_the_axes_they_mix(name, rng):
    x = rng.normal(size=(2, 4, 4, 8)).astype("float32")
    blocks, axes = NORMALIZATIONS[name]
    layer = conv_net.normalization(name, 8)
    expected = blocks_normalized(x.reshape(blocks), axes).reshape(x.shape)
    np.testing.assert_allclose(keras.ops.convert_to_numpy(layer(x)), expected, atol=1e-4)
    assert not layer.weights
    affine = conv_net.normalization(name, 8, affine=True)
    affine.build(x.shape)
    assert len(affine.weights) == 2


def test_without_normalization_the_network_would_be_linear(rng):
    sizes = {"width": 8, "depth": 3, "stride": 2, "pool": 2, "affine": False, "seed": 0}
    model = conv_net.build((8, 8, 3), 5, "pln[4]", **sizes)
    assert [type(layer).__name__ for layer in model.layers] == [
        "InputLayer",
        *["Conv2D", "ParallelLayerNormalization"] * 3,
        "AveragePooling2D",
        "Flatten",
        "Dense",
    ]
    assert all(layer.activation is keras.activations.linear for layer in model.layers if hasattr(layer, "activation"))
    assert model.get_layer("pool").output.shape == (None, 2, 2, 8) and model.output_shape == (None, 5)
    with pytest.raises(UserError, match="--pool 5 is larger than the last feature map of 4x4: give 4 or less"):
        conv_net.build((8, 8, 3), 5, "ln", **{**sizes, "pool": 5})


def test_a_loss_that_is_not_finite_stops_the_run(archive, tmp_path, capsys):
    assert memorize(archive, tmp_path, "--normalization", "ln", "--learning-rate", 1e30) == 3
    assert re.search("the loss of ln is .* at step .*: lower --learning-rate", capsys.readouterr().err)


BAD_OPTIONS = {
    "unknown normalization": ("--normalization relu", "--normalization relu is not a known name: choose from ln, gn,"),
    "half a bracket": ("--normalization gn[0]", r"--normalization gn\[0\] is not a known name"),
    "channels to runs": ("--normalization pln[5]", r"model with pln\[5\] cannot be built .*norm_size=5, channels=8"),
    "patches": ("--normalization patch_group_norm[2,16]", "cannot be built .*patches=16"),
    "groups": ("--normalization gn[3]", r"model with gn\[3\] cannot be built"),
    "pool": ("--pool 9", "--pool 9 is larger than the last feature map of 8x8"),
    "large batch": ("--batch-size 29", "--batch-size 29 is larger than the 28 training images"),
    "limit": ("--train-limit 29", "--train-limit 29 is more than the 28 training images"),
    "augmentation": ("--augment light", "unrecognized arguments: --augment light"),
    "missing data": ("--dataset missing.npz", "--dataset missing.npz is neither one of digits"),
}


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_a_bad_option_is_named(archive, tmp_path, refused, options, message):
    arguments = ["--dataset", archive, "--output", tmp_path, *TINY.split(), *options.split()]
    assert re.search(message, refused(random_labels.main, arguments))


def test_help_explains_every_option(check_help):
    check_help(random_labels)
