"""`--distribute` on virtual devices, or on two processes of torchrun: the same numbers as on one device."""

import json
import os
import pathlib
import re
import subprocess
import sys

import keras
import numpy as np
import pretrain_mae
import pytest
import train_classifier
from support import augment, batches, data
from support.distribute.shares import Share, even_parts

from keras_polycom import models

BACKEND = keras.backend.backend()
LABELS = ("poly_norm-mlp", "poly_norm-qd_moa")
SIZES = "--batch-size 8 --patch-size 4 --width 8 --depth 1 --heads 2 --mlp-dim 16 --warmup 0.5 --epochs 2"
# The gradients are longer than this norm, so that how they are clipped shows.
TRAINING = "--augment none --feed-forward mlp qd_moa --learning-rate 0.01 --clip-norm 0.1"
# Only JAX draws for a batch that several devices share as for one that they don't.
DROPOUT = 0.2 if BACKEND == "jax" else 0
WAYS = {"jax": ["data", "model=2"], "tensorflow": ["data=2"], "torch": []}

on = {
    name: pytest.mark.skipif(name != BACKEND, reason=f"it is about {name}") for name in ("jax", "tensorflow", "torch")
}


def arguments(archive, output, *options):
    dropout = ["--dropout", DROPOUT]
    words = ["--dataset", archive, "--output", output, *SIZES.split(), *TRAINING.split(), *dropout, *options]
    return [str(word) for word in words]


def results(output):
    return json.loads((output / "results.json").read_text())


def weights(output, label):
    return keras.saving.load_model(output / f"{label}.keras", compile=False).get_weights()


def assert_same(ours, theirs, tolerance=1e-5):
    """The same history and the same weights of both runs, up to a tolerance."""
    for label in LABELS:
        histories = [results(output)["runs"][label]["history"] for output in (ours, theirs)]
        assert [len(history) for history in histories] == [2, 2]
        for row, other in zip(*histories, strict=True):
            assert row.keys() == other.keys() and {"loss", "accuracy", "val_loss", "val_accuracy"} <= row.keys()
            for name in row.keys() - {"ms_per_step", "seconds"}:
                assert row[name] == pytest.approx(other[name], abs=tolerance), (label, name)
        for weight, other in zip(weights(ours, label), weights(theirs, label), strict=True):
            assert np.allclose(weight, other, rtol=0, atol=tolerance), label


@pytest.fixture(scope="module")
def alone(archive, tmp_path_factory):
    output = tmp_path_factory.mktemp("alone")
    assert train_classifier.main(arguments(archive, output)) == 0
    return output


@pytest.fixture(scope="module", params=WAYS[BACKEND])
def shared(request, archive, tmp_path_factory):
    """The way, and the output of a run that has gone it."""
    output = tmp_path_factory.mktemp("shared")
    assert train_classifier.main(arguments(archive, output, "--distribute", request.param)) == 0
    return request.param, output


def test_one_process_with_several_devices_trains_as_with_one(shared, alone):
    way, output = shared
    assert len(results(output)["devices"]) == (2 if way == "data=2" else 4)
    assert_same(output, alone)
    assert keras.distribution.distribution() is None


@pytest.mark.parametrize("shared", WAYS[BACKEND][-1:], indirect=True)
def test_one_process_goes_on_after_it_was_interrupted(shared, archive, interrupted_copy):
    way, whole = shared
    output = interrupted_copy(
        whole, LABELS[1], lambda folder: train_classifier.main(arguments(archive, folder, "--distribute", way))
    )
    assert len(results(output)["runs"][LABELS[1]]["history"]) == 1
    assert train_classifier.main(arguments(archive, output, "--distribute", way)) == 0
    assert_same(output, whole, tolerance=0)


def torchrun(folder, options):
    """Runs two processes. They have half of the machine each, and no GPU, of which there may be one."""
    script = str(pathlib.Path(__file__).with_name("process_of_torchrun.py"))
    settings = {"KERAS_BACKEND": "torch", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "LAST_RUN": LABELS[1]}
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return subprocess.run(
        [*run, script, str(folder), *options, "--distribute", "data"],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=300,
    )


@on["torch"]
def test_two_processes_train_as_one_and_go_on_after_they_were_killed(archive, alone, tmp_path):
    output = tmp_path / "shared"
    done = torchrun(tmp_path, arguments(archive, output))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("epoch 2/2") == 2 and done.stdout.count("Written to") == 1  # one of them prints
    assert results(output)["devices"] == ["cpu of process 0", "cpu of process 1"]
    assert_same(output, alone)
    for label in LABELS:
        first, second = (np.load(tmp_path / f"{label}-{process}.npz") for process in range(2))
        assert all(np.array_equal(first[name], second[name]) for name in first.files)

    done = torchrun(tmp_path, arguments(archive, tmp_path / "stopped"))
    assert done.returncode == 0, done.stderr
    assert "poly_norm-mlp: finished before, kept." in done.stdout
    assert "poly_norm-qd_moa: goes on after epoch 1 of 2." in done.stdout
    assert_same(tmp_path / "stopped", output, tolerance=0)


REFUSED = {
    "jax": {
        "--distribute data --batch-size 6": "--batch-size 6 is shared by 4 devices .* multiple of 4, such as 4",
        "--distribute data=5": r"data=5 does not go with 4 devices \(cpu:0 to cpu:3\).*XLA_FLAGS",
        "--distribute data=1": "data=1 does not go with one device",
        "--distribute model=3": "model=3 does not go with 4 devices",
        "--distribute model=2 --model resnet50 --widths 2 --depths 1": "splits transformers only, not resnet50",
        "--distribute model=2 --mlp-dim 15": "model with poly_norm cannot be built .* 15",
    },
    "tensorflow": {
        "--distribute data=2 --batch-size 7": "--batch-size 7 is shared by 2 devices .* multiple of 2, such as 6",
        "--distribute data": "data does not go with no GPU.*data=N for N parts of the CPU",
        "--distribute data=3": "data=3 comes too late",
        "--distribute model=2": "model=2 splits the model on JAX only",
    },
    "torch": {
        "--distribute data": "asks for several processes, and there is one: start the script by `torchrun",
        "--distribute data=4": "asks for 4 processes, and there is one: .*--nproc-per-node 4",
        "--distribute model=2": "model=2 splits the model on JAX only",
    },
}[BACKEND]


@pytest.mark.parametrize(("options", "message"), REFUSED.items(), ids=REFUSED)
def test_what_cannot_be_distributed_is_said(options, message, archive, tmp_path, refused):
    if BACKEND == "tensorflow" and options == "--distribute data=2 --batch-size 7":
        keras.ops.zeros(1)  # TensorFlow has started with the CPUs of these tests
    sizes = [] if "resnet" in options else ["--patch-size", 4, "--width", 8, "--depth", 1, "--heads", 2]
    words = ["--dataset", archive, "--output", tmp_path / "out", "--batch-size", 8, *sizes, *options.split()]
    assert re.search(message, refused(train_classifier.main, words))


@pytest.mark.parametrize("way", ["all", "data=", "model", "model=0", "data=x"])
@pytest.mark.parametrize("script", [train_classifier, pretrain_mae], ids=["classifier", "autoencoder"])
def test_another_word_is_refused(script, way, refused):
    assert f"expected data, data=N or model=N with N of at least 1, got '{way}'" in refused(
        script.main, ["--distribute", way]
    )


def test_torchrun_without_the_option_is_refused(archive, tmp_path, refused, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    sentence = refused(train_classifier.main, ["--dataset", archive, "--output", tmp_path])
    assert "one of 2 processes of torchrun" in sentence and "give --distribute data" in sentence


@on["tensorflow"]
def test_replicas_add_up_to_the_loss_of_a_masked_autoencoder():
    """Keras adds the losses of replicas, which came out as a multiple of the loss."""
    from support.distribute.tensorflow import TensorFlowDevices

    sizes = {"patch_size": 4, "num_layers": 1, "hidden_dim": 8, "num_heads": 2}
    decoder = {"decoder_num_layers": 1, "decoder_hidden_dim": 8, "decoder_num_heads": 2}
    rng = np.random.default_rng(0)
    x = {"images": rng.random((4, 8, 8, 3), "float32"), "noise": rng.random((4, 4), "float32")}
    with TensorFlowDevices(["CPU:0", "CPU:1"]).scope():
        shared = models.MAE(image_shape=(8, 8, 3), **sizes, **decoder)
        shared.compile("sgd", jit_compile=False)
    alone = models.MAE.from_config(shared.get_config())
    alone.set_weights(shared.get_weights())
    alone.compile("sgd", jit_compile=False)
    losses = [model.evaluate(x, batch_size=4, verbose=0) for model in (shared, alone)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@on["tensorflow"]
def test_replicas_drop_out_other_units():
    import tensorflow as tf
    from support import training
    from support.distribute.tensorflow import TensorFlowDevices

    devices = TensorFlowDevices(["CPU:0", "CPU:1"])
    with devices.scope():
        model = keras.Sequential([keras.Input((64,)), keras.layers.Dropout(0.5)])
    training.set_seed_states(model, 0, 0, devices)
    run = tf.function(lambda: model.layers[-1](tf.ones((1, 64)), training=True))
    first, second = devices.strategy.experimental_local_results(devices.strategy.run(run))
    assert not np.array_equal(first, second)


def image_batches(count, batch_size, in_memory=True, **options):
    rng = np.random.default_rng(1)
    images = data.ArrayImages(rng.integers(0, 256, (count, 8, 8, 3)).astype("uint8"), np.arange(count) % 3)
    images.in_memory = in_memory
    return batches.ImageBatches(images, batch_size, (0.0,), (1.0,), num_classes=3, **options)


@pytest.mark.parametrize(("count", "batch_size"), [(24, 8), (27, 10), (5, 8), (3, 8), (1, 1)])
def test_every_image_is_evaluated_once_in_batches_that_can_be_shared(count, batch_size):
    selections = even_parts(image_batches(count, batch_size), 4)
    assert sum(selection.images_once for selection in selections) == count
    seen = np.zeros(count)
    for selection in selections:
        for index in range(len(selection)):
            assert len(selection.rows[index]) % 4 == 0
            pieces = [Share(selection, part, 4)[index] for part in range(4)]
            assert np.array_equal(np.concatenate([piece[0] for piece in pieces]), selection[index][0])
            np.add.at(seen, selection.rows[index], selection.images_once / sum(map(len, selection.rows)))
    assert np.allclose(seen, 1)


@pytest.mark.parametrize("level", ["none", "light"])
def test_the_parts_of_a_batch_in_memory_make_it_up(level):
    train = image_batches(20, 8, training=True, seed=4, augment=augment.make_augmenter(level, (8, 8, 3), True, "keras"))
    for train.epoch in range(2):
        for index, whole in enumerate(train[i] for i in range(len(train))):
            parts = [Share(train, part, 2)[index] for part in range(2)]
            for array, pieces in zip(whole, zip(*parts, strict=True), strict=True):
                assert np.array_equal(array, np.concatenate(pieces))


def test_only_a_part_of_the_images_in_files_is_read_and_augmented_anew():
    augmenter = augment.make_augmenter("light", (8, 8, 3), True, "keras")
    train = image_batches(16, 8, in_memory=False, training=True, augment=augmenter)
    read = []
    load = train.images.load
    train.images.load = lambda rows: read.append(len(rows)) or load(rows)
    first, second = (Share(train, part, 2)[0] for part in range(2))
    assert read == [4, 4] and not np.array_equal(first[0], second[0])
    assert np.array_equal(Share(train, 1, 2)[0][0], second[0])
