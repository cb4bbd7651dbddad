"""Hiding tokens and filling the gaps again."""

import functools
import json

import keras
import numpy as np
import pytest
from harness import check_config
from reference_values import as_float64, assert_close

from keras_polycom.layers import FillMasked, RandomMasking
from keras_polycom.layers.random_masking import visible_count


@pytest.mark.parametrize(
    ("tokens", "ratio", "visible"),
    [(100, 0.9, 9), (196, 0.75, 49), (64, 0.75, 16), (7, 0.5, 3), (10, 0.8, 1), (3, 0.01, 2)],
)
def test_visible_tokens_are_counted_as_published(tokens, ratio, visible):
    assert visible_count(tokens, ratio) == visible
    kept, mask, _ = RandomMasking(ratio)(np.ones((2, tokens, 1), "float32"))
    assert kept.shape == (2, visible, 1)
    np.testing.assert_array_equal(as_float64(mask).sum(1), [tokens - visible] * 2)


def test_filling_undoes_the_shuffle(rng):
    tokens = rng.normal(size=(3, 11, 4)).astype("float32")
    visible, mask, restore = RandomMasking(0.6, seed=1)(tokens)
    prefix = rng.normal(size=(3, 2, 4)).astype("float32")
    layer = FillMasked(prefix=2, token_initializer=keras.initializers.Constant(7.0))
    filled = as_float64(layer(keras.ops.concatenate([prefix, visible], axis=1), restore))
    np.testing.assert_array_equal(filled[:, :2], prefix)
    np.testing.assert_array_equal(filled[:, 2:], np.where(as_float64(mask)[..., None] > 0, 7.0, tokens))


def test_half_precision_keeps_the_noise_exact():
    noise = (1.0 + np.arange(8, dtype="float32")[None] * 1e-6)[:, ::-1]
    layer = RandomMasking(0.5, dtype="mixed_float16")
    visible, mask, _ = layer(np.arange(8, dtype="float32").reshape(1, 8, 1), np.ascontiguousarray(noise))
    assert keras.backend.standardize_dtype(visible.dtype) == "float16"
    assert as_float64(mask)[0].tolist() == [1, 1, 1, 1, 0, 0, 0, 0]
    assert as_float64(visible)[0, :, 0].tolist() == [7, 6, 5, 4]


def test_configs_and_symbolic_shapes():
    tokens = np.zeros((2, 6, 4), "float32")
    masking = RandomMasking(0.3, seed=5)
    twin = RandomMasking.from_config(json.loads(json.dumps(masking.get_config())))
    assert twin.get_config() == masking.get_config()
    symbolic = masking(keras.KerasTensor((None, 6, 4)))
    assert [tuple(s.shape) for s in symbolic] == [(None, 4, 4), (None, 6), (None, 6)]
    assert [s.dtype for s in symbolic] == ["float32", "float32", "int32"]
    assert [s.dtype for s in symbolic] == [keras.backend.standardize_dtype(x.dtype) for x in masking(tokens)]
    restore = np.array([[2, 0, 1, 3, 4, 5]] * 2, "int32")
    check_config(functools.partial(FillMasked, prefix=1, token_regularizer="l2"), tokens[:, :5], restore)
    assert FillMasked(prefix=1)(keras.KerasTensor((None, 5, 4)), keras.KerasTensor((None, 6))).shape == (None, 7, 4)


def test_gradients_reach_tokens_and_fill(rng):
    class Both(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.scale = self.add_weight(name="scale", shape=(4,), initializer="ones")
            self.masking, self.fill = RandomMasking(0.5), FillMasked()

        def build(self, shape):
            self.masking.build(shape)
            self.fill.build((shape[0], shape[1] // 2, shape[2]))

        def call(self, x):
            kept, _, restore = self.masking(x * self.scale)
            return self.fill(kept, restore)

    model = keras.Sequential([keras.Input((6, 4)), Both()])
    model.compile(keras.optimizers.SGD(1.0), loss="mse", jit_compile=keras.backend.backend() != "torch")
    x = rng.normal(size=(5, 6, 4)).astype("float32")
    before = [as_float64(v) for v in model.trainable_variables]
    model.fit(x, np.ones_like(x), batch_size=3, epochs=2, verbose=0)
    for variable, former in zip(model.trainable_variables, before, strict=True):
        assert np.all(as_float64(variable) != former), variable.path


@pytest.mark.parametrize(
    "call",
    [
        lambda: RandomMasking(0.5)(keras.KerasTensor((2, None, 4))),
        lambda: RandomMasking(0.5)(np.zeros((2, 6, 4), "float32"), np.zeros((2, 5), "float32")),
        lambda: FillMasked(prefix=-1),
        lambda: FillMasked()(keras.KerasTensor((2, None, 4)), keras.KerasTensor((2, 6))),
    ],
    ids=["unknown tokens", "noise", "prefix", "unknown visible"],
)
def test_refusals(call):
    with pytest.raises(ValueError, match=r"Expected|prefix"):
        call()


def test_same_seed_same_masks():
    masks = [as_float64(RandomMasking(0.5, seed=2)(np.zeros((4, 8, 1), "float32"))[1]) for _ in range(2)]
    assert_close(*masks, 0)
