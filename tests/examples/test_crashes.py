"""Runs that are killed, interrupted, or run out of disk, and what the same command makes of what they leave.

The tests marked `long` kill at more moments and all scripts: `make test-crashes` runs them.
"""

import csv
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import fit_functions
import keras
import numpy as np
import pytest
import train_classifier
from support import experiment, progress, training
from support.errors import UserError

DRIVER = pathlib.Path(__file__).with_name("killed.py")
TIMES = ("ms_per_step", "seconds")

CLASSIFIER = (
    "train_classifier --train-limit 24 --batch-size 8 --epochs 3 --patch-size 4 --width 8 --depth 1 --heads 2 "
    "--mlp-dim 8 --dropout 0.2 --drop-path 0.2 --augment light --augment-with keras --activation poly_norm"
)
FITTING = (
    "fit_functions --epochs 3 --width 8 --train-points 24 --validation-points 8 --test-points 8 --batch-size 8 "
    "--activation pln[4]"
)


def start(moment, *commands):
    """Starts a process that runs the commands one after another, and is killed at that moment of the last."""
    words = [word for command in commands for word in ("then", *command.split())][1:]
    return subprocess.Popen(
        [sys.executable, str(DRIVER), moment, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
    )


def run(moment, *commands):
    """Runs the commands to the end, or to the moment of the last at which it is killed; returns what was printed."""
    process = start(moment, *commands)
    printed, errors = process.communicate(timeout=300)
    assert process.returncode == (0 if moment == "never" else -signal.SIGKILL), errors
    return printed


def results(output):
    return json.loads((output / "results.json").read_text())


def weights(output):
    return {path.name: keras.saving.load_model(path, compile=False).get_weights() for path in output.glob("*.keras")}


def names(folder):
    """Everything in the folder, event files without their dates."""
    return sorted(re.sub("tfevents.*", "tfevents", str(path.relative_to(folder))) for path in folder.rglob("*"))


def untimed(row):
    return {name: value for name, value in row.items() if name not in TIMES}


def check_same(output, reference):
    """The same files, weights and histories, to the last bit, but for the times."""
    assert names(output) == names(reference)
    ours, theirs = weights(output), weights(reference)
    assert ours.keys() == theirs.keys() and ours
    for name, arrays in theirs.items():
        assert all(np.array_equal(a, b) for a, b in zip(ours[name], arrays, strict=True)), name
    ours, theirs = results(output)["runs"], results(reference)["runs"]
    for label, run_there in theirs.items():
        assert list(map(untimed, ours[label]["history"])) == list(map(untimed, run_there["history"]))
        assert ours[label]["status"] == "finished"
    ours, theirs = ((folder / "history.csv").read_text().splitlines() for folder in (output, reference))
    assert list(map(untimed, csv.DictReader(ours))) == list(map(untimed, csv.DictReader(theirs)))


# === Killed ===


def test_a_run_killed_in_an_epoch_a_checkpoint_and_at_its_end_has_the_same_weights(archive, tmp_path):
    whole, output = tmp_path / "whole", tmp_path / "output"
    command = f"{CLASSIFIER} --dataset {archive} --output"
    run("step:2", f"{command} {whole}", f"{command} {output}")
    assert not (output / "checkpoints").exists()
    run("half:poly_norm.npz:2", f"{command} {output}")
    assert (output / "checkpoints" / ".partial" / "poly_norm.npz").exists()
    assert "poly_norm: goes on after epoch 1 of 3." in run("half:poly_norm.keras:1", f"{command} {output}")
    assert (output / ".partial" / "poly_norm.keras").exists()
    assert "poly_norm: goes on after epoch 3 of 3." in run("never", f"{command} {output}")
    check_same(output, whole)


# === Stopped in order: each in this process, with a network that compiles quickly ===


def fit(output, *options):
    _, *arguments = FITTING.split()
    return fit_functions.main([*arguments, "--output", str(output), *map(str, options)])


def sentence(capsys):
    printed = capsys.readouterr().err
    assert printed.startswith("error: ") and printed.count("\n") == 1 and printed.endswith(".\n")
    return printed


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    output = tmp_path_factory.mktemp("fitted")
    assert fit(output, "--tensorboard") == 0
    return output


@pytest.fixture
def signal_at(monkeypatch):
    """`signal_at(step, number)`: this process gets that signal after that many training steps."""

    def arm(step, number):
        calls, end = [], training.StepWatch.on_train_batch_end

        def count(*arguments, **options):
            end(*arguments, **options)
            calls.append(None)
            if len(calls) == step:
                os.kill(os.getpid(), number)

        monkeypatch.setattr(training.StepWatch, "on_train_batch_end", count)

    former = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell runs in the background
    yield arm
    signal.signal(signal.SIGINT, former)


@pytest.mark.parametrize(
    ("number", "status", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_signal_ends_in_one_sentence_with_the_last_epoch_kept(
    fitted, tmp_path, capsys, signal_at, monkeypatch, number, status, word
):
    signal_at(5, number)
    assert fit(tmp_path, "--tensorboard") == status
    assert f"error: {word} in epoch 2 of pln[4]; what was finished is in {tmp_path}" in sentence(capsys)
    assert results(tmp_path)["runs"]["pln[4]"]["status"] == "interrupted"
    monkeypatch.undo()
    assert fit(tmp_path, "--tensorboard") == 0
    assert "pln[4]: goes on after epoch 1 of 3." in capsys.readouterr().out
    check_same(tmp_path, fitted)


def test_a_full_disk_ends_in_one_sentence_with_the_last_good_state_kept(fitted, tmp_path, capsys, full_disk):
    with full_disk(3000):  # room for results.json and history.csv, not for a checkpoint
        assert fit(tmp_path, "--tensorboard") == 2
    assert re.search(r"pln-4\.npz cannot be written \(.+\), what was there before is unchanged: make", sentence(capsys))
    assert not list(tmp_path.rglob("*.npz")) and not list(tmp_path.rglob(".partial"))
    size = (fitted / "pln-4.keras").stat().st_size
    with full_disk(size - 1):
        assert fit(tmp_path, "--tensorboard") == 2
    assert "pln-4.keras cannot be written" in sentence(capsys)
    assert fit(tmp_path, "--tensorboard") == 0
    assert "pln[4]: goes on after epoch 3 of 3." in capsys.readouterr().out
    check_same(tmp_path, fitted)


def test_results_that_cannot_be_read_are_not_lost(fitted, tmp_path, capsys):
    shutil.copytree(fitted, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "results.json"
    for content in (path.read_text()[:-20], "", "[]"):
        path.write_text(content)
        assert fit(tmp_path) == 2
        assert f"{path} cannot be read" in sentence(capsys)
        assert path.read_text() == content and (tmp_path / "pln-4.keras").exists()


def test_other_data_under_the_same_name_are_refused(tmp_path):
    experiment.Experiment(tmp_path, {"epochs": 1}, {"data": {"train_images": 28, "mean": [10.00001]}})
    experiment.Experiment(tmp_path, {"epochs": 1}, {"data": {"train_images": 28, "mean": [10.00002]}})
    with pytest.raises(UserError, match=r"other settings \(mean was \[10.0\] and is \[11.0\], train_images was 28 and"):
        experiment.Experiment(tmp_path, {"epochs": 1}, {"data": {"train_images": 27, "mean": [11.0]}})


def test_logs_follow_the_checkpoint_that_is_used(fitted, tmp_path, capsys, signal_at, monkeypatch):
    signal_at(8, signal.SIGINT)
    assert fit(tmp_path, "--tensorboard") == 130
    newest = tmp_path / "checkpoints" / "pln-4.npz"
    newest.write_bytes(newest.read_bytes()[:500])
    capsys.readouterr()
    monkeypatch.undo()
    seen = []
    monkeypatch.setattr(training.Run, "train", lambda run, *_: seen.append((run.history, rows(tmp_path))) or stop())
    assert fit(tmp_path, "--tensorboard") == 130
    [(history, logged)] = seen
    assert [row["epoch"] for row in history] == [1] and [row["epoch"] for row in logged] == ["1"]
    printed = capsys.readouterr()
    assert "pln[4]: goes on after epoch 1 of 3." in printed.out
    assert "pln-4.npz is damaged" in printed.err and "pln-4.previous.npz, the one before it, is used" in printed.err
    monkeypatch.undo()
    assert fit(tmp_path, "--tensorboard") == 0
    check_same(tmp_path, fitted)


def rows(output):
    return list(csv.DictReader((output / "history.csv").read_text().splitlines()))


def stop():
    raise KeyboardInterrupt


# === The long ones ===

# What each process in a row dies of, and where the one after it goes on.
ROW = {
    "step:2": 0,
    "half:poly_norm.npz:1": 0,
    "moved:poly_norm.npz:1": 1,
    "half:history.csv:1": 1,
    "step:1": 1,
    "moved:poly_norm.previous.npz:1": 1,  # the newest is away, the new one not yet there
    "moved:history.csv:2": 2,
    "half:poly_norm.npz:1 again": 2,
    "moved:poly_norm.npz:1 again": 3,
    "half:poly_norm.keras:1": 3,
    "moved:poly_norm.keras:1": 3,
    "half:results.json:2": 3,
    "moved:results.json:2": None,  # finished
    "half:curves.png:1": None,
}


@pytest.mark.long
def test_a_run_killed_again_and_again_has_the_same_weights(archive, tmp_path):
    whole, output = tmp_path / "whole", tmp_path / "output"
    command = f"{CLASSIFIER} --dataset {archive} --tensorboard --output"
    run("never", f"{command} {whole}")
    kept = 0
    for moment, epoch in [*ROW.items(), ("never", None)]:
        printed = run(moment.split()[0], f"{command} {output}")
        if kept is None:
            assert "poly_norm: finished before, kept." in printed
        elif kept:
            assert f"poly_norm: goes on after epoch {kept} of 3." in printed, moment
        else:
            assert "goes on" not in printed, moment
        kept = epoch
    check_same(output, whole)


COMMANDS = {
    "classifier, averaged, in half precision": f"{CLASSIFIER} --ema 0.9 --mixed-precision mixed_float16",
    "classifier, strong augmentation": f"{CLASSIFIER.replace('light', 'strong')} --clip-norm 1",
    "resnet": "train_classifier --model resnet50 --depths 1 --widths 2 --activation poly_relu --batch-size 8 "
    "--epochs 3",
    "autoencoder": "pretrain_mae --patch-size 4 --width 8 --depth 1 --heads 2 --decoder-width 8 --decoder-depth 1 "
    "--decoder-heads 2 --batch-size 8 --epochs 3 --feed-forward qd_moa --mlp-dim 8 --drop-path 0.2",
    "random labels": "random_labels --width 8 --depth 2 --batch-size 8 --epochs 3 --normalization pln[4]",
    "functions": FITTING,
    "helmholtz": "helmholtz_pinn --activation pln[4] --width 8 --depth 2 --interior-points 20 --boundary-points 4 "
    "--iterations 9 --steps-per-epoch 3",
}


@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_every_script_goes_on_to_the_same_weights(archive, tmp_path, command):
    whole, output = tmp_path / "whole", tmp_path / "output"
    if not command.startswith(("fit", "helm")):
        command += f" --dataset {archive}"
    run("step:5", f"{command} --output {whole}", f"{command} --output {output}")
    assert "goes on after epoch 1 of 3." in run("never", f"{command} --output {output}")
    check_same(output, whole)


@pytest.mark.long
def test_kills_at_random_moments_change_nothing(archive, tmp_path):
    whole, output = tmp_path / "whole", tmp_path / "output"
    command = f"{CLASSIFIER} --dataset {archive}".replace("--epochs 3", "--epochs 60") + " --output"
    run("never", f"{command} {whole}")
    delays = random.Random(0)
    for _ in range(6):
        process = start("never", f"{command} {output}")
        next((line for line in process.stdout if " epoch " in line), None)
        time.sleep(delays.uniform(0, 0.5))
        process.kill()
        process.communicate()
    run("never", f"{command} {output}")
    check_same(output, whole)


@pytest.mark.long
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"])
def test_a_signal_in_the_middle_of_an_epoch_ends_the_process_at_once(tmp_path, number, status):
    """It used to hang on TensorFlow, whose threads were reading ahead when Python took itself down."""
    process = start("never", f"{CLASSIFIER} --dataset digits --output {tmp_path}".replace("--train-limit 24", ""))
    next(line for line in process.stdout if " epoch 1/3 " in line)
    time.sleep(0.2)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == status
    assert "in epoch 2 of poly_norm; what was finished is in" in errors.splitlines()[-1]


@pytest.mark.long
@pytest.mark.skipif(not pathlib.Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_memory_stays_flat(archive, tmp_path, monkeypatch):
    taken = []
    finish = progress._Line.finish
    monkeypatch.setattr(progress._Line, "finish", lambda *arguments: (finish(*arguments), taken.append(megabytes())))
    command = f"{CLASSIFIER} --dataset {archive} --output {tmp_path}".replace("--epochs 3", "--epochs 80")
    assert train_classifier.main(command.split()[1:]) == 0
    assert taken[-1] - taken[40] < 40 * 0.2, taken


def megabytes():
    """What this process holds in memory."""
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20
