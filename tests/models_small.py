"""Small models that the tests share, so that compiled pieces are met again."""

import keras
import numpy as np

from keras_polycom.models import ResNet50, ViT

IMAGE = (16, 24, 3)
CLASSES = 5


def vit(**changes):
    sizes = {"patch_size": 8, "num_layers": 2, "hidden_dim": 24, "num_heads": 3, "num_classes": CLASSES}
    return ViT(**{"image_shape": IMAGE, **sizes, **changes})


def resnet(**changes):
    sizes = {"depths": (1, 2), "widths": (4, 6), "stem": "cifar", "num_classes": CLASSES}
    return ResNet50(**{"image_shape": IMAGE, **sizes, **changes})


MODELS = {"vit": vit, "resnet": resnet}


def images(batch=3, shape=IMAGE, seed=11):
    return np.random.default_rng(seed).standard_normal((batch, *shape)).astype("float32")


def labels(batch=3):
    return np.arange(batch) % CLASSES


def predict(model, x):
    """The model's output in inference, eagerly: compiling every small model would take most of the tests' time."""
    return keras.ops.convert_to_numpy(model(x, training=False))


def compile_and_fit(model, x, y, jit=None, **arguments):
    """Compiles with plain gradient descent and fits; by default with XLA on JAX only, where it is the only fast way."""
    jit = keras.backend.backend() == "jax" if jit is None else jit
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss, metrics=["accuracy"], jit_compile=jit)
    return model.fit(x, y, verbose=0, **arguments)
