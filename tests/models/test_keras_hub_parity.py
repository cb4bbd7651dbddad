"""The models equal keras-hub's, given the same weights."""

import keras
import numpy as np
import pytest
from reference_values import as_float64, assert_close

from keras_polycom.models import ResNet50, ViT

keras_hub = pytest.importorskip("keras_hub", reason="keras-hub is part of the dev extra")


def randomize(model, rng):
    """Gives every weight values far from the initial ones, variances positive."""
    values = []
    for variable in model.weights:
        noise = rng.standard_normal(tuple(variable.shape)) * (0.1 if len(variable.shape) > 1 else 0.5)
        values.append(1 + np.abs(noise) if variable.name in ("gamma", "moving_variance") else noise)
    model.set_weights([value.astype("float32") for value in values])


def copy(target, source):
    target.set_weights(source.get_weights())


def test_vit_equals_keras_hub(rng):
    image_shape = (16, 24, 3)
    sizes = {"image_shape": image_shape, "patch_size": 8, "num_layers": 2, "num_heads": 3, "hidden_dim": 48}
    hub = keras_hub.models.ViTBackbone(**sizes, mlp_dim=192, layer_norm_epsilon=1e-6)
    randomize(hub, rng)
    ours = ViT(**sizes, num_classes=None, pooling=None)
    embedding, encoder = hub.get_layer("vit_patching_and_embedding"), hub.get_layer("vit_encoder")
    ours.get_layer("class_token").token.assign(as_float64(embedding.class_token))
    copy(ours.get_layer("patch_embedding"), embedding.patch_embedding)
    ours.get_layer("position_embedding").table.assign(as_float64(embedding.position_embedding.embeddings)[None])
    for index, block in enumerate(encoder.encoder_layers):
        copy(ours.get_layer(f"block_{index}_attention_norm"), block.layer_norm_1)
        copy(ours.get_layer(f"block_{index}_attention"), block.mha)
        copy(ours.get_layer(f"block_{index}_feed_forward_norm"), block.layer_norm_2)
        copy(ours.get_layer(f"block_{index}_feed_forward").up_proj, block.mlp.dense_1)
        copy(ours.get_layer(f"block_{index}_feed_forward").down_proj, block.mlp.dense_2)
    copy(ours.get_layer("final_norm"), encoder.layer_norm)
    images = rng.standard_normal((2, *image_shape)).astype("float32")
    assert_close(ours(images, training=False), hub(images, training=False), 1e-5, "ViT")


def hub_resnet_names(depths):
    """Pairs of our layer names and keras-hub's."""
    yield from (("stem_convolution", "conv1_conv"), ("stem_norm", "conv1_bn"))
    for stage, depth in enumerate(depths):
        for block in range(depth):
            ours, theirs = f"stage_{stage}_block_{block}", f"stack{stage}_block{block}"
            if block == 0:
                yield f"{ours}_shortcut_convolution", f"{theirs}_0_conv"
                yield f"{ours}_shortcut_norm", f"{theirs}_0_bn"
            for part in (1, 2, 3):
                yield f"{ours}_convolution_{part}", f"{theirs}_{part}_conv"
                yield f"{ours}_norm_{part}", f"{theirs}_{part}_bn"


def test_resnet_equals_keras_hub(rng):
    size, depths, widths = (45, 32), (2, 1, 1, 1), (64, 4, 6, 8)  # keras-hub insists on the first width
    hub = keras_hub.models.ResNetBackbone(
        input_conv_filters=[64],
        input_conv_kernel_sizes=[7],
        stackwise_num_filters=widths,
        stackwise_num_blocks=depths,
        stackwise_num_strides=[1, 2, 2, 2],
        block_type="bottleneck_block",
        image_shape=(*size, 3),
    )
    randomize(hub, rng)
    ours = ResNet50(image_shape=(*size, 3), depths=depths, widths=widths, num_classes=None, pooling=None)
    for name, theirs in hub_resnet_names(depths):
        copy(ours.get_layer(name), hub.get_layer(theirs))
    assert sum(bool(layer.weights) for layer in ours.layers) == len(list(hub_resnet_names(depths)))
    images = rng.standard_normal((2, *size, 3)).astype("float32")
    assert_close(ours(images, training=False), hub(images, training=False), 1e-5, "ResNet50")


def test_the_paper_depths_have_keras_hubs_layers():
    hub = keras_hub.models.ResNetBackbone(
        input_conv_filters=[64],
        input_conv_kernel_sizes=[7],
        stackwise_num_filters=[64, 1, 1, 1],
        stackwise_num_blocks=[3, 4, 6, 3],
        stackwise_num_strides=[1, 2, 2, 2],
        block_type="bottleneck_block",
        image_shape=(32, 32, 3),
    )
    ours = ResNet50("resnet50", image_shape=(32, 32, 3), widths=(64, 1, 1, 1), num_classes=None)
    for name, theirs in hub_resnet_names((3, 4, 6, 3)):
        mine, other = ours.get_layer(name), hub.get_layer(theirs)
        assert [tuple(v.shape) for v in mine.weights] == [tuple(v.shape) for v in other.weights]
        assert getattr(mine, "strides", None) == getattr(other, "strides", None), name
    kept = (keras.layers.Conv2D, keras.layers.BatchNormalization)
    assert len([x for x in ours.layers if isinstance(x, kept)]) == len(list(hub_resnet_names((3, 4, 6, 3))))
