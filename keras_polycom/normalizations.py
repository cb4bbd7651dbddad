"""Normalizations by name, for the `normalization=` argument of models and scripts."""

import keras

from keras_polycom.registry import Registry

registry = Registry("normalization")

register = registry.register
names = registry.names
get = registry.get
serialize = registry.serialize


@register("layer_norm")
def layer_norm(epsilon=1e-6, **kwargs):
    """Layer normalization with the epsilon of the published vision transformers (Keras's default is 1e-3)."""
    return keras.layers.LayerNormalization(epsilon=epsilon, **kwargs)


@register("rms_norm")
def rms_norm(epsilon=1e-6, **kwargs):
    """Root-mean-square normalization without centring."""
    return keras.layers.RMSNormalization(epsilon=epsilon, **kwargs)


@register("batch_norm")
def batch_norm(axis=-1, epsilon=1e-5, momentum=0.9, **kwargs):
    """Batch normalization with the epsilon and momentum of timm and torchvision (their momentum 0.1 is Keras's 0.9)."""
    return keras.layers.BatchNormalization(axis=axis, epsilon=epsilon, momentum=momentum, **kwargs)
