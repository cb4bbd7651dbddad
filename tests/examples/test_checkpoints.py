"""Checkpoints: what they hold, that a damaged one gives way to the one before, and what is refused."""

import re

import keras
import numpy as np
import pytest
from support import checkpoint
from support.errors import UserError

SETTINGS = {"run": "relu", "epochs": 3}


def compiled(units=3):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(units, name="dense")], name="model")
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    return model


def values(model):
    return [np.array(keras.ops.convert_to_numpy(v)) for v in (*model.variables, *model.optimizer.variables)]


def same(ours, theirs):
    return all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


def write(path, epochs=2):
    """A checkpoint after each epoch. Returns the values after each."""
    model, states = compiled(), []
    for epoch in range(1, epochs + 1):
        model.fit(np.ones((4, 2)), np.ones((4, 3)), verbose=0)
        checkpoint.save(path, model, {"settings": SETTINGS, "history": [{"epoch": e} for e in range(1, epoch + 1)]})
        states.append(values(model))
    return states


def restore(path, settings=SETTINGS, **options):
    model = compiled(**options)
    record = checkpoint.restore(path, model, settings)
    return record and len(record["history"]), values(model)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "lr0.001.npz"


def test_a_checkpoint_holds_weights_optimizer_and_record(path):
    assert restore(path)[0] is None
    states = write(path)
    epoch, state = restore(path)
    assert epoch == 2 and same(state, states[1]) and not same(state, states[0])
    assert {file.name for file in path.parent.iterdir()} == {"lr0.001.npz", "lr0.001.previous.npz"}
    checkpoint.remove(path)
    assert not list(path.parent.iterdir())


def cut_off(content):
    return content[:-40]


def halved(content):
    return content[: len(content) // 2]


def emptied(content):
    return b""


def flipped_in_an_array(content):
    middle = content.index(b"00000 kernel.npy") + 170  # behind its name, 20 bytes more, and a header of 128
    return content[:middle] + bytes([content[middle] ^ 16]) + content[middle + 1 :]


def of_text(content):
    return b"not a checkpoint\n" * 100


DAMAGES = [cut_off, halved, emptied, flipped_in_an_array, of_text]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_named_and_gives_way_to_the_one_before(path, damage, capsys):
    states = write(path)
    path.write_bytes(damage(path.read_bytes()))
    epoch, state = restore(path)
    assert epoch == 1 and same(state, states[0])
    warning = capsys.readouterr().err
    assert re.fullmatch(
        r"warning: The checkpoint .*lr0\.001\.npz is damaged \(.+\), and refused; lr0\.001\.previous\.npz, the one "
        r"before it, is used\.\n",
        warning,
    )
    assert restore(path)[0] == 1 and not capsys.readouterr().err  # it has taken the damaged one's place


def test_the_one_before_is_used_where_a_kill_came_between_the_two_renames(path, capsys):
    states = write(path)
    path.unlink()
    epoch, state = restore(path)
    assert epoch == 1 and same(state, states[0]) and not capsys.readouterr().err


def test_two_damaged_checkpoints_are_an_error_that_names_both(path):
    write(path)
    for file in (path, checkpoint.previous(path)):
        file.write_bytes(cut_off(file.read_bytes()))
    with pytest.raises(UserError, match=r"lr0\.001\.npz is damaged .*lr0\.001\.previous\.npz is damaged .*delete both"):
        restore(path)


def test_a_damaged_only_checkpoint_is_an_error(path):
    write(path, epochs=1)
    path.write_bytes(halved(path.read_bytes()))
    with pytest.raises(UserError, match=r"lr0\.001\.npz is damaged .*delete it, or start with --overwrite"):
        restore(path)


def test_an_edited_checkpoint_with_right_checksums_is_refused(path, capsys):
    states = write(path)
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    arrays["00000 kernel"] += 1
    np.savez(path, **arrays)
    epoch, state = restore(path)
    assert epoch == 1 and same(state, states[0])
    assert "its arrays are not those that were written" in capsys.readouterr().err


def test_no_flipped_byte_changes_a_value_unnoticed(path):
    state = write(path, epochs=1)[0]
    content = path.read_bytes()
    model, refused = compiled(), 0
    for position in range(0, len(content), max(1, len(content) // 150)):
        path.write_bytes(content[:position] + bytes([content[position] ^ 0xFF]) + content[position + 1 :])
        try:
            checkpoint.restore(path, model, SETTINGS)
            assert same(values(model), state), position
        except UserError as error:
            assert "is damaged" in str(error)
            refused += 1
    assert refused > 100


def test_a_checkpoint_of_other_settings_is_refused_by_name(path):
    write(path)
    with pytest.raises(UserError, match=r"lr0\.001\.npz holds results of other settings \(epochs was 3 and is 4\): "):
        restore(path, {**SETTINGS, "epochs": 4})
    with pytest.raises(UserError, match=r"\(run was 'relu' and is 'gelu'\)"):
        restore(path, {**SETTINGS, "run": "gelu"})
    assert restore(path)[0] == 2


def test_a_checkpoint_of_another_model_is_refused(path):
    write(path)
    with pytest.raises(UserError, match=r"lr0\.001\.npz belongs to another model"):
        restore(path, units=4)


def test_a_checkpoint_that_cannot_be_written_leaves_those_there_are(path, full_disk):
    states = write(path)
    with full_disk(1000), pytest.raises(UserError, match=r"lr0\.001\.npz cannot be written \(.+\), what was there"):
        write(path, epochs=1)
    assert {file.name for file in path.parent.iterdir()} == {"lr0.001.npz", "lr0.001.previous.npz"}
    epoch, state = restore(path)
    assert epoch == 2 and same(state, states[1])
