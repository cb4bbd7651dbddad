"""The scripts' own folder on the path, as when they are run, and small data sets."""

import contextlib
import pathlib
import shutil
import sys

import keras
import numpy as np
import pytest

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))


@pytest.fixture(scope="session")
def arrays():
    """28 training and 10 test images of 8x8x3 in three classes that differ in brightness."""
    rng = np.random.default_rng(3)
    labels = {"train": np.arange(28) % 3, "test": np.arange(10) % 3}
    pixels = {
        name: (60 * label[:, None, None, None] + rng.integers(0, 60, (len(label), 8, 8, 3))).astype("uint8")
        for name, label in labels.items()
    }
    return {
        "x_train": pixels["train"],
        "y_train": labels["train"],
        "x_test": pixels["test"],
        "y_test": labels["test"],
    }


@pytest.fixture(scope="session")
def archive(arrays, tmp_path_factory):
    path = tmp_path_factory.mktemp("archive") / "small.npz"
    np.savez(path, **arrays)
    return path


@pytest.fixture
def save(arrays, tmp_path):
    """Saves the arrays with changes: `save(y_test=...)`; `None` leaves one out. Returns the path."""

    def write(**changes):
        path = tmp_path / "changed.npz"
        changed = {**arrays, **changes}
        np.savez(path, **{name: value for name, value in changed.items() if value is not None})
        return path

    return write


@pytest.fixture
def image_folder(arrays, tmp_path):
    """The same images as PNG files in class folders; those of one class are wider than high."""
    from PIL import Image

    root = tmp_path / "images"
    for split in ("train", "test"):
        for i, (pixels, label) in enumerate(zip(arrays[f"x_{split}"], arrays[f"y_{split}"], strict=True)):
            folder = root / split / ("dark", "gray", "light")[label]
            folder.mkdir(parents=True, exist_ok=True)
            image = Image.fromarray(np.repeat(pixels, 2, axis=1) if label == 1 else pixels)
            image.save(folder / f"{i:02d}.png")
    return root


@pytest.fixture(scope="module", autouse=True)
def quick_compilation():
    """XLA spends far longer on optimizing models this small than it takes to train them."""
    if keras.backend.backend() != "jax":
        yield
        return
    import jax

    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture
def refused(capsys):
    """Runs a script that must end with status 2: `refused(main, arguments)` returns the sentence on stderr."""

    def run(main, arguments):
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as left:
            status = left.code
        sentence = capsys.readouterr().err
        assert status == 2 and sentence.startswith("error: ") and sentence.count("\n") == 1 and sentence[-2] == "."
        return sentence

    return run


@pytest.fixture
def interrupted_copy(tmp_path, monkeypatch):
    """Copies a finished experiment as it would be had Ctrl-C come after the first epoch of its last run.

    `interrupted_copy(whole, label, run)` returns the folder; `run(folder)` runs the script, which must return 130.
    """
    from support.comparison import Comparison
    from support.experiment import file_name

    def interrupt(whole, label, run):
        output = tmp_path / "interrupted"
        shutil.copytree(whole, output)
        (output / f"{file_name(label)}.keras").unlink()

        def stop(self, label, row):
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(Comparison, "keep", stop)
            assert run(output) == 130
        return output

    return interrupt


@pytest.fixture
def check_help(capsys):
    """Checks that `--help` of a script explains every option with its default."""

    def check(script):
        with pytest.raises(SystemExit) as left:
            script.main(["--help"])
        assert left.value.code == 0 and "exit status" in capsys.readouterr().out
        for action in script.make_parser()._actions:
            assert action.help and ("default:" in action.help or action.dest == "help"), action.option_strings

    return check


@pytest.fixture
def full_disk():
    """A `with` block in which the system refuses to let any file grow beyond a size: `with full_disk(1000):`."""
    resource = pytest.importorskip("resource", reason="only POSIX limits the size of files")

    @contextlib.contextmanager
    def limited(size):
        former = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, former[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, former)

    return limited
