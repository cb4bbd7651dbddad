"""Augmentation with keras-cv's layers where TensorFlow is installed too, with core Keras's otherwise.

| level | what |
|---|---|
| none | nothing |
| light | mirroring, and a crop out of the image with a black border of an eighth of its size |
| medium | light, and RandAugment: two random operations |
| strong | medium, and MixUp or CutMix, one of them per batch, each with probability one half |

Both sources draw from (seed, epoch, batch) alone. keras-cv draws for every image; core Keras mirrors every image on its
own but shares crop and RandAugment's operations among `GROUP` images (its own RandAugment layer computes all of its
operations for all images, which takes seconds per batch on a CPU).
"""

import importlib.util
import threading

import keras
import numpy as np

LEVELS = ("none", "light", "medium", "strong")
SOURCES = ("keras-cv", "keras")
VALUE_RANGE = (0, 255)
OPERATIONS = 2
MAGNITUDE = 0.3
MIXUP_ALPHA = 0.2
CUTMIX_ALPHA = 1.0
GROUP = 8


def default_source(level):
    """`"keras-cv"` where it and TensorFlow are installed, else `"keras"`.

    On the TensorFlow backend the levels from medium on have `"keras"`: seeding the operations of keras-cv for a batch
    makes TensorFlow forget its compiled functions, that of the training step too, which takes seconds per step.
    """
    installed = all(map(importlib.util.find_spec, ("tensorflow", "keras_cv")))
    forgets = keras.backend.backend() == "tensorflow" and _is_seeded_globally(level)
    return "keras-cv" if installed and not forgets else "keras"


def _is_seeded_globally(level):
    return LEVELS.index(level) >= LEVELS.index("medium")


def make_augmenter(level, image_shape, mirrored=True, source=None):
    """Returns an `Augmenter`, `None` for the level `"none"`. `source`: one of `SOURCES`, or `None` for the default."""
    if level == "none":
        return None
    kind = {"keras-cv": KerasCVAugmenter, "keras": CoreAugmenter}[source or default_source(level)]
    return kind(level, image_shape, mirrored)


class Augmenter:
    """Called as `augment(pixels, targets, numbers)`; returns new pixels and targets, as numpy arrays.

    Args of the call:
        pixels: float32 array (images, height, width, channels), 0 to 255.
        targets: one-hot array (images, classes), or `None`, which leaves out MixUp and CutMix.
        numbers: tuple of integers that all randomness follows from.
    """

    source = None

    def __init__(self, level, image_shape, mirrored):
        self.level = LEVELS.index(level)
        self.height, self.width, self.channels = image_shape
        self.mirrored = mirrored
        self._lock = threading.Lock()
        self._make_layers()

    def __call__(self, pixels, targets, numbers):
        with self._lock:  # the layers' random states are shared by the threads that read images
            return self._augmented(pixels, targets, numbers)

    def _augmented(self, pixels, targets, numbers):
        rng = np.random.default_rng([*numbers, 1])
        self._set_random_state(rng)
        if self.mirrored:
            pixels = self._mirror(pixels)
        border = [(side // 8, side // 8) for side in (self.height, self.width)]
        pixels = self._crop(np.pad(pixels, ((0, 0), *border, (0, 0))))
        if self.level >= LEVELS.index("medium"):
            gray = self.channels == 1  # operations on colours need three channels
            pixels = self._operate(np.repeat(pixels, 3, -1) if gray else pixels, rng)
            pixels = pixels[..., :1] if gray else pixels
        if self.level >= LEVELS.index("strong") and targets is not None:
            pixels, targets = self._mix(pixels, targets, self.mixers[rng.integers(2)])
        return np.clip(pixels, *VALUE_RANGE), targets


class CoreAugmenter(Augmenter):
    """Layers of core Keras, on whichever backend is in use."""

    source = "keras"

    def _make_layers(self):
        layers, options = keras.layers, {"value_range": VALUE_RANGE}
        self.mirror = layers.RandomFlip("horizontal")
        self.crop = layers.RandomCrop(self.height, self.width)
        self.operations = [
            layers.AutoContrast(**options),
            layers.Equalization(**options),
            layers.RandomBrightness(MAGNITUDE, **options),
            layers.RandomColorDegeneration(MAGNITUDE, **options),
            layers.RandomContrast(MAGNITUDE, **options),
            layers.RandomPosterization(5, **options),
            layers.RandomRotation(MAGNITUDE / 4, fill_mode="constant"),
            layers.RandomSharpness(MAGNITUDE, **options),
            layers.RandomShear(MAGNITUDE, MAGNITUDE, fill_mode="constant"),
            layers.RandomTranslation(MAGNITUDE / 2, MAGNITUDE / 2, fill_mode="constant"),
            layers.Solarization(addition_factor=MAGNITUDE, threshold_factor=MAGNITUDE, **options),
        ]
        self.mixers = [layers.MixUp(alpha=MIXUP_ALPHA), layers.CutMix(factor=CUTMIX_ALPHA)]

    def _set_random_state(self, rng):
        for layer in (self.mirror, self.crop, *self.operations, *self.mixers):
            for variable in layer.variables:  # the states of its seed generators: it has no others
                variable.assign(rng.integers(2**31, size=variable.shape).astype(str(variable.dtype)))

    def _mirror(self, pixels):
        return _as_numpy(self.mirror(pixels, training=True))

    def _crop(self, pixels):
        return np.concatenate([_as_numpy(self.crop(group, training=True)) for group in _groups(pixels)])

    def _operate(self, pixels, rng):
        return np.concatenate([self._operate_on_group(group, rng) for group in _groups(pixels)])

    def _operate_on_group(self, group, rng):
        for index in rng.integers(len(self.operations), size=OPERATIONS):
            group = _as_numpy(self.operations[index](group, training=True))
        return group

    def _mix(self, pixels, targets, mixer):
        mixed = mixer({"images": pixels, "labels": targets}, training=True)
        return _as_numpy(mixed["images"]), _as_numpy(mixed["labels"])


class KerasCVAugmenter(Augmenter):
    """Layers of keras-cv, which compute in TensorFlow on every backend."""

    source = "keras-cv"

    def _make_layers(self):
        import keras_cv
        import tensorflow as tf

        if keras.backend.backend() != "tensorflow" and tf.config.get_visible_devices("GPU"):
            tf.config.set_visible_devices([], "GPU")  # TensorFlow would take all memory of the other backend's device
        self.tf = tf
        self.mirror = keras_cv.layers.RandomFlip("horizontal")
        self.crop = keras_cv.layers.RandomCrop(self.height, self.width)
        self.operations = keras_cv.layers.RandAugment(
            VALUE_RANGE, augmentations_per_image=OPERATIONS, magnitude=MAGNITUDE
        )
        self.mixers = [keras_cv.layers.MixUp(alpha=MIXUP_ALPHA), keras_cv.layers.CutMix(alpha=CUTMIX_ALPHA)]

    def _set_random_state(self, rng):
        # keras-cv draws from the global generator and, in RandAugment, MixUp and CutMix, from stateful ops.
        self.tf.random.get_global_generator().reset_from_seed(int(rng.integers(2**31)))
        if _is_seeded_globally(LEVELS[self.level]):
            self.tf.random.set_seed(int(rng.integers(2**31)))

    def _mirror(self, pixels):
        return _as_numpy(self.mirror(self.tf.constant(pixels), training=True))

    def _crop(self, pixels):
        return _as_numpy(self.crop(self.tf.constant(pixels), training=True))

    def _operate(self, pixels, rng):
        return _as_numpy(self.operations(self.tf.constant(pixels), training=True))

    def _mix(self, pixels, targets, mixer):
        batch = {"images": self.tf.constant(pixels), "labels": self.tf.constant(targets)}
        mixed = mixer(batch, training=True)
        return _as_numpy(mixed["images"]), _as_numpy(mixed["labels"])


def _as_numpy(tensor):
    if hasattr(tensor, "numpy") and not hasattr(tensor, "detach"):  # TensorFlow's, on every backend
        return tensor.numpy()
    return keras.ops.convert_to_numpy(tensor)


def _groups(pixels):
    return [pixels[start : start + GROUP] for start in range(0, len(pixels), GROUP)]
