"""The scripts' own folder on the path, as when they are run, and small data sets."""

import pathlib
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
