"""Event files, read back with TensorBoard's own reader."""

import itertools

import pytest
from support import tensorboard
from support.errors import UserError
from tensorboard.backend.event_processing import event_accumulator


def row(epoch):
    return {"epoch": epoch, "loss": 1 / epoch, "val_loss": 2.0 / epoch, "seconds": 10.0}


def read(folder):
    """Tag -> list of (step, value, time), of all files in the folder."""
    reader = event_accumulator.EventAccumulator(str(folder)).Reload()
    return {
        tag: [(event.step, pytest.approx(event.value), event.wall_time) for event in reader.Scalars(tag)]
        for tag in reader.Tags()["scalars"]
    }


def test_each_epoch_is_there_once_however_often_the_run_was_stopped(tmp_path):
    folder = tmp_path / "tensorboard" / "relu"
    board = tensorboard.Board(folder, [])
    for epoch in (1, 2, 3):
        board.add(row(epoch))
    board = tensorboard.Board(folder, [row(1), row(2)])  # the checkpoint of epoch 3 was lost
    board.add(row(3))
    board.add(row(4))
    assert len(list(folder.iterdir())) == 1
    scalars = read(folder)
    assert set(scalars) == {"loss", "val_loss", "seconds"}
    assert [(step, value) for step, value, _ in scalars["loss"]] == [(e, 1 / e) for e in (1, 2, 3, 4)]
    times = [time for _, _, time in scalars["loss"]]
    assert all(late - early == pytest.approx(10, abs=0.01) for early, late in itertools.pairwise(times))


def test_a_reader_that_watches_meanwhile_forgets_what_was_redone(tmp_path):
    board = tensorboard.Board(tmp_path, [])
    for epoch in (1, 2, 3):
        board.add({**row(epoch), "loss": 9.0})
    reader = event_accumulator.EventAccumulator(str(tmp_path)).Reload()
    assert [event.value for event in reader.Scalars("loss")] == [9.0] * 3
    tensorboard.Board(tmp_path, [row(1)]).add(row(2))
    reader.Reload()
    assert [event.step for event in reader.Scalars("loss")] == [1, 2]


def test_an_event_that_was_cut_off_by_a_kill_hides_none_before(tmp_path):
    board = tensorboard.Board(tmp_path, [row(1)])
    board.add(row(2))
    board.path.write_bytes(board.path.read_bytes()[:-5])
    assert [step for step, _, _ in read(tmp_path)["loss"]] == [1]


def test_what_a_kill_left_half_written_is_no_run(tmp_path):
    partial = tmp_path / ".partial"
    partial.mkdir()
    (partial / "events.out.tfevents.1").write_bytes(b"half")
    tensorboard.Board(tmp_path, [])
    assert not partial.exists()


def test_where_it_is_missing_the_package_is_named(monkeypatch):
    def missing(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(UserError, match="--tensorboard needs the package tensorboard, .*pip install tensorboard"):
        tensorboard.check_installed()
