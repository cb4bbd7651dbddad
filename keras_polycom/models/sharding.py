"""Which axis of which weight is split among devices, for models of transformer blocks."""

import keras

# What is split: the heads of the attention and the hidden units of the feed-forward layers, so that both branches of a
# block are computed in parts and added up once. The embeddings and heads around the blocks are split along the width
# of the tokens, which the number of heads divides. In place of the mesh's axis there is True.
RULES = {
    ".*_attention/(query|key|value)/kernel": (None, True, None),
    ".*_attention/(query|key|value)/bias": (True, None),
    ".*_attention/attention_output/kernel": (True, None, None),
    ".*_feed_forward/(gate_proj|up_proj)/kernel": (None, True),
    ".*_feed_forward/(gate_proj|up_proj)/bias": (True,),
    ".*_feed_forward/down_proj/kernel": (True, None),
    "(.*/)?patch_embedding/kernel": (None, None, None, True),
    "(.*/)?(head|decoder_embedding|decoder_prediction)/kernel": (True, None),
}


def layout_map(device_mesh, model_axis="model"):
    """How the weights of `ViT`, `MAE` and of other models of our transformer blocks are split among devices.

    Split, along one axis of the mesh: the heads of the attention, the hidden units of all feed-forward layers, gated
    ones and mixtures included, and the kernels of patch embedding, head, and of the decoder's first and last layer.
    Everything else is small and whole on every device: the coefficients of activations, the kernels and weights of
    mixtures, gains, biases behind a sum over devices, class token and position table.

    The number of heads and the hidden width of every feed-forward layer must be multiples of the size of that axis.
    Means over the hidden units, as PolyNorm's, are then means over devices, which the compiler sees to.

    Needs the JAX backend, as `keras.distribution.ModelParallel` does. Build, compile and train the model inside the
    distribution's scope.

    Args:
        device_mesh: `keras.distribution.DeviceMesh`.
        model_axis: string, the axis of the mesh that weights are split along. Defaults to `"model"`.

    Returns:
        A `keras.distribution.LayoutMap`. Its keys are regular expressions for variable paths, no two of which match
        the same path; more can be added.

    Raises:
        ValueError: the mesh has no such axis.

    Example:

    >>> import keras
    >>> from keras_polycom import models
    >>> devices = ["gpu:0", "gpu:1", "gpu:2", "gpu:3"]  # or keras.distribution.list_devices()
    >>> mesh = keras.distribution.DeviceMesh((2, 2), ("batch", "model"), devices)
    >>> models.layout_map(mesh)["block_0_feed_forward/up_proj/kernel"].axes
    (None, 'model')

    and, where there are such devices (of a CPU `XLA_FLAGS=--xla_force_host_platform_device_count=4` makes four):

    ```python
    distribution = keras.distribution.ModelParallel(layout_map=models.layout_map(mesh), batch_dim_name="batch")
    with distribution.scope():
        model = models.ViT("base/16", activation="poly_norm")
        model.compile("adamw", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.fit(images, labels)
    ```

    Source: the split of Shoeybi et al., Megatron-LM, arXiv 1909.08053, section 3.
    """
    if model_axis not in device_mesh.axis_names:
        raise ValueError(
            f"`model_axis` must be an axis of the mesh, one of {', '.join(map(repr, device_mesh.axis_names))}. "
            f"Received: model_axis={model_axis!r}"
        )
    layouts = keras.distribution.LayoutMap(device_mesh)
    for pattern, split in RULES.items():
        layouts[pattern] = tuple(model_axis if here else None for here in split)
    return layouts
