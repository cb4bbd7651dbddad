"""Masked autoencoders on pictures, in process, with models of a few hundred parameters; and the way to a classifier."""

import csv
import json

import keras
import numpy as np
import pretrain_mae
import pytest
import train_classifier
from PIL import Image
from support import crops, data, picture_batches, pictures
from support.comparison import Comparison
from support.errors import UserError

import keras_polycom

SIZES = {
    "patch-size": 4,
    "width": 8,
    "depth": 1,
    "heads": 2,
    "decoder-width": 8,
    "decoder-depth": 1,
    "decoder-heads": 2,
    "batch-size": 8,
}
TWO = ("--feed-forward", "swiglu", "qd_moa", "--mlp-dim", "8")


def pretrain(dataset, output, *options, epochs=1):
    sizes = (text for name, value in SIZES.items() for text in (f"--{name}", value))
    arguments = ["--dataset", dataset, "--output", output, "--epochs", epochs, *sizes, *options]
    return pretrain_mae.main([str(argument) for argument in arguments])


def results(output):
    return json.loads((output / "results.json").read_text())


def weights(output, name):
    return keras.saving.load_model(output / f"{name}.keras", compile=False).get_weights()


@pytest.fixture(scope="module")
def comparison(archive, tmp_path_factory):
    """Two runs of two epochs; three full batches, four pictures left over; the validation pictures in two batches."""
    output = tmp_path_factory.mktemp("pretraining")
    assert pretrain(archive, output, *TWO, "--drop-path", 0.2, epochs=2) == 0
    return output


# === The script ===


def test_files_and_results(comparison):
    names = {"results.json", "history.csv", "curves.png", "reconstructions.png", "swiglu.keras", "qd_moa.keras"}
    assert {path.name for path in comparison.iterdir()} == names
    for name in ("curves.png", "reconstructions.png"):
        assert (comparison / name).read_bytes()[:4] == b"\x89PNG" and (comparison / name).stat().st_size > 10_000
    content = results(comparison)
    assert content["data"]["train_images"] == 28 and content["data"]["validation_images"] == 10
    assert content["settings"]["beta_2"] == 0.999 and content["settings"]["mask_ratio"] == 0.75
    assert list(content["runs"]) == ["swiglu", "qd_moa"]
    for run in content["runs"].values():
        assert run["status"] == "finished" and len(run["history"]) == 2
        assert run["peak_learning_rate"] == pytest.approx(6e-3 * 8 / 256)
        assert run["validation_loss"] == run["history"][-1]["val_loss"]
        assert run["history"][-1]["learning_rate"] == pytest.approx(0, abs=1e-9)
        assert run["not_decayed"]["parameters"] + run["decayed"]["parameters"] == run["parameters"]
    rows = list(csv.DictReader((comparison / "history.csv").read_text().splitlines()))
    assert [(row["run"], row["epoch"]) for row in rows] == [(n, e) for n in ("swiglu", "qd_moa") for e in "12"]


def test_a_saved_model_has_the_validation_loss_of_its_run(comparison, archive):
    model = keras.saving.load_model(comparison / "qd_moa.keras")
    assert isinstance(model, keras_polycom.models.MAE)
    assert all(v.path not in {w.path for w in model.trainable_variables} for v in model.non_trainable_variables)
    validation = picture_batches.CentreCrops(pictures.load(str(archive)), 5, model.num_patches)
    model.compile()
    assert model.evaluate(validation, verbose=0) == pytest.approx(
        results(comparison)["runs"]["qd_moa"]["validation_loss"], rel=1e-5
    )


def test_an_interrupted_run_goes_on_to_the_same_weights(comparison, archive, tmp_path, capsys, monkeypatch):
    def interrupt(self, label, row):
        raise KeyboardInterrupt

    options = ("--feed-forward", "swiglu", "--mlp-dim", 8, "--drop-path", 0.2)
    with monkeypatch.context() as patched:
        patched.setattr(Comparison, "keep", interrupt)
        assert pretrain(archive, tmp_path, *options, epochs=2) == 130
    assert "the same command goes on from there" in capsys.readouterr().err
    assert pretrain(archive, tmp_path, *options, epochs=2) == 0
    assert "swiglu: goes on after epoch 1 of 2." in capsys.readouterr().out
    for resumed, straight in zip(weights(tmp_path, "swiglu"), weights(comparison, "swiglu"), strict=True):
        np.testing.assert_allclose(resumed, straight, atol=1e-6)


def test_a_sweep_has_a_run_for_each_combination(archive):
    options = pretrain_mae.make_parser().parse_args(
        ["--feed-forward", "mlp", "glu", "--activation", "gelu", "--learning-rate", "1e-3", "0.004", "--epochs", "1"]
    )
    assert list(pretrain_mae.autoencoders.labels(options)) == [
        "mlp-lr0.001",
        "mlp-lr0.004",
        "glu-lr0.001",
        "glu-lr0.004",
    ]
    options = pretrain_mae.make_parser().parse_args(["--feed-forward", "mlp", "--learning-rate", "1e-3", "0.004"])
    assert list(pretrain_mae.autoencoders.labels(options)) == ["lr0.001", "lr0.004"]
    options = pretrain_mae.make_parser().parse_args(["--feed-forward", "qd_moa"])
    assert list(pretrain_mae.autoencoders.labels(options)) == ["qd_moa"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--feed-forward", "nonsense"], "qd_moa"),
        (["--batch-size", "29"], "larger than the 28 training pictures"),
        (["--mask-ratio", "0.9"], "at least one token visible"),
        (["--patch-size", "3"], "must divide"),
        (["--dataset", "missing.npz"], "neither one of photos"),
    ],
    ids=["name", "batch", "ratio", "patch", "data"],
)
def test_mistakes_are_one_sentence(options, sentence, archive, tmp_path, capsys):
    assert pretrain(archive, tmp_path, *options) == 2
    printed = capsys.readouterr().err
    assert sentence in printed and printed.count("\n") == 1


def test_help_says_what_the_learning_rate_is(capsys):
    with pytest.raises(SystemExit):
        pretrain_mae.main(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "the peak of the schedule is this number times --batch-size over 256 (default: 0.006)" in text


# === On to a classifier ===


def classify(archive, output, *options):
    arguments = ["--dataset", archive, "--output", output, "--epochs", 1, "--batch-size", 8, "--augment", "none"]
    return train_classifier.main([str(argument) for argument in (*arguments, *options)])


def test_a_classifier_starts_from_the_encoder(comparison, archive, tmp_path):
    options = ("--init-from", comparison / "qd_moa.keras", "--learning-rate", 1e-12, "--weight-decay", 0)
    assert classify(archive, tmp_path, *options) == 0
    content = results(tmp_path)
    assert content["settings"]["width"] == 8 and content["settings"]["patch_size"] == 4
    assert content["runs"]["gelu"]["feed_forward"] == "qd_moa"
    classifier = keras.saving.load_model(tmp_path / "gelu.keras", compile=False)
    encoder = keras.saving.load_model(comparison / "qd_moa.keras", compile=False)
    for layer in classifier.layers:
        if layer.weights and layer.name not in ("head", "position_embedding"):
            for own, given in zip(layer.get_weights(), encoder.get_layer(layer.name).get_weights(), strict=True):
                np.testing.assert_allclose(own, given, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--width", "8"], "--width does not go with --init-from"),
        (["--model", "resnet50"], "--model resnet50 does not go with"),
        (["--init-from", "missing.keras"], "cannot be loaded"),
    ],
    ids=["size", "resnet", "missing"],
)
def test_mistakes_with_an_encoder(options, sentence, comparison, archive, tmp_path, capsys):
    assert classify(archive, tmp_path, "--init-from", comparison / "swiglu.keras", *options) == 2
    printed = capsys.readouterr().err
    assert sentence in printed and printed.count("\n") == 1


def test_a_classifier_is_not_an_encoder(tmp_path, archive, capsys):
    path = tmp_path / "other.keras"
    keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]).save(path)
    assert classify(archive, tmp_path, "--init-from", path) == 2
    assert "not a masked autoencoder" in capsys.readouterr().err


# === Pictures and crops ===


def test_photographs_are_split_in_space():
    pytest.importorskip("skimage", reason="the photographs are in scikit-image")
    photos = pictures.load("photos")
    assert photos.image_shape == (64, 64, 3) and len(photos.train) > 150 and len(photos.validation) > 40
    held_out = {id(window.base) for window in photos.validation.arrays}
    assert all(
        window.shape[0] == window.shape[1] <= 128 for window in (*photos.train.arrays, *photos.validation.arrays)
    )
    assert len(held_out) == 6
    for photograph in {id(w.base): w.base for w in photos.train.arrays}.values():
        parts = [
            np.concatenate([_columns(w) for w in split.arrays if w.base is photograph])
            for split in (photos.train, photos.validation)
        ]
        assert parts[0].max() < parts[1].min(), "a training window reaches into the held-out part"


def _columns(window):
    """The columns of its photograph that a window covers."""
    offset = window.__array_interface__["data"][0] - window.base.__array_interface__["data"][0]
    return np.arange(window.shape[1]) + offset % window.base.strides[0] // window.base.strides[1]


def test_folders_with_and_without_parts(image_folder, monkeypatch):
    by_parts = pictures.load(str(image_folder), 8)
    assert (len(by_parts.train), len(by_parts.validation)) == (28, 10)
    assert by_parts.train.in_memory and not pictures.load(str(image_folder), 8, memory=0).train.in_memory
    (image_folder / "train").rename(image_folder / "more")
    plain = pictures.load(str(image_folder), 8)
    assert (len(plain.train), len(plain.validation)) == (35, 3)
    assert not set(plain.validation.paths) & set(pictures.load(str(image_folder), 8, memory=0).train.paths)


def test_large_pictures_are_reduced_as_far_as_the_crops_allow(tmp_path):
    for name in "ab":
        Image.new("RGB", (400, 300), (10, 200, 30)).save(tmp_path / f"{name}.jpg")
    picture = pictures.load(str(tmp_path), 32).train[0]
    assert picture.shape == (72, 96, 3)  # 32 / sqrt(0.2)
    assert np.abs(picture.astype(int) - (10, 200, 30)).max() <= 3


def test_pictures_in_an_archive_need_no_labels(arrays, tmp_path):
    path = tmp_path / "unlabelled.npz"
    np.savez(path, x_train=arrays["x_train"], x_val=arrays["x_test"])
    picture_set = pictures.load(str(path))
    assert (len(picture_set.train), len(picture_set.validation)) == (28, 10)
    assert picture_set.mean == data.statistics(arrays["x_train"])[0]
    np.savez(path, x_train=arrays["x_train"])
    with pytest.raises(UserError, match="lacks x_test"):
        pictures.load(str(path))


@pytest.mark.parametrize("shape", [(40, 30), (30, 40), (7, 200), (1, 1)])
def test_random_boxes_are_inside_and_of_the_right_area_and_shape(shape):
    rng = np.random.default_rng(0)
    boxes = np.array([crops.random_box(*shape, rng) for _ in range(300)])
    widths, heights = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    assert boxes.min() >= 0 and boxes[:, 2].max() <= shape[1] and boxes[:, 3].max() <= shape[0]
    assert widths.min() > 0 and heights.min() > 0
    if min(shape) == 30:
        shares = widths * heights / 1200
        assert 0.18 < shares.min() < 0.25 and 0.9 < shares.max() <= 1
        assert 0.7 < (widths / heights).min() < 0.8 and 1.25 < (widths / heights).max() < 1.42


def test_crops_follow_from_seed_epoch_and_picture(archive):
    picture_set = pictures.load(str(archive))

    def epoch(number, seed=0, mirror=True):
        made = picture_batches.RandomCrops(picture_set, 8, seed, mirror)
        made.epoch = number
        return np.concatenate([made[index][0] for index in range(len(made))])

    assert epoch(0).shape == (24, 8, 8, 3)
    np.testing.assert_array_equal(epoch(3), epoch(3))
    assert all(np.any(epoch(0) != other) for other in (epoch(1), epoch(0, seed=1), epoch(0, mirror=False)))


def test_a_crop_of_one_channel_and_a_mirrored_one():
    ramp = np.tile(np.arange(16, dtype="uint8")[None, :, None] * 10, (16, 1, 1))
    rng = np.random.default_rng(0)
    slopes = np.array([np.sign(np.diff(crops.random_crop(ramp, (8, 8), rng)[0, :, 0])).sum() for _ in range(40)])
    assert 5 < (slopes < 0).sum() < 35
    same = crops.centre_crop(ramp, (16, 16))
    np.testing.assert_array_equal(same, ramp)
    np.testing.assert_array_equal(crops.centre_crop(np.repeat(ramp, 3, -1), (16, 16))[..., :1], ramp)
    np.testing.assert_allclose(crops.centre_crop(ramp, (16, 8))[0, :, 0], ramp[0, 4:12, 0], atol=1e-4)
