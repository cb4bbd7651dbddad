"""The vision transformer."""

import keras

from keras_polycom import activations, feed_forwards, normalizations
from keras_polycom.layers.class_token import ClassToken
from keras_polycom.layers.position_embedding import PositionEmbedding
from keras_polycom.models.configured import (
    ConfiguredModel,
    check_data_format,
    check_head,
    check_one_of,
    check_rates,
    check_sizes,
    image_sizes,
)
from keras_polycom.models.transformer import transformer_blocks

# patch_size, num_layers, hidden_dim, num_heads. The smaller ones are those of DeiT, arXiv 2012.12877, table 1; the
# others those of ViT, arXiv 2010.11929, table 1.
VARIANTS = {
    "tiny/16": (16, 12, 192, 3),
    "small/16": (16, 12, 384, 6),
    "base/16": (16, 12, 768, 12),
    "base/32": (32, 12, 768, 12),
    "large/16": (16, 24, 1024, 16),
    "huge/14": (14, 32, 1280, 16),
}
MEANS = ("mean", "mean_before_norm")


@keras.saving.register_keras_serializable(package="keras_polycom")
class ViT(ConfiguredModel):
    """Vision transformer whose activation, feed-forward layer and normalization can be swapped.

    Input: images (batch, height, width, channels), or (batch, channels, height, width) for `"channels_first"`. Output:
    (batch, num_classes); without a head the features, (batch, hidden_dim), or (batch, tokens, hidden_dim) for
    `pooling=None`.

    Layers, for `get_layer`: `images`, `patch_embedding` (convolution), `patch_tokens` (one row per patch, row by row),
    `class_token`, `position_embedding`, `embedding_dropout`, `block_0_attention_norm`, `block_0_attention` and so on
    (see `transformer_block`), `final_norm`, `pooled`, `head`. Kernels start Glorot uniform as in the papers, the
    convolution LeCun normal, the class token, the position table and the head truncated normal with standard deviation
    0.02, biases 0.

    Args:
        variant: string or `None`. A size by name: `"tiny/16"`, `"small/16"`, `"base/16"`, `"base/32"`, `"large/16"`,
            `"huge/14"`. The four sizes it stands for can be overridden one by one. `None` stands for `"base/16"`.
        image_shape: triple of integers. Defaults to `(224, 224, 3)`.
        patch_size: integer or pair (height, width) that divides the image. Defaults to the variant's.
        num_layers: integer. Number of blocks. Defaults to the variant's.
        hidden_dim: integer. Width of the tokens. Defaults to the variant's.
        num_heads: integer that divides `hidden_dim`. Defaults to the variant's.
        mlp_dim: integer or `None`. Hidden width of the feed-forward layers; `None` for the papers': 4 times
            `hidden_dim`, or 8/3 of it for a gated layer. Defaults to `None`.
        num_classes: integer, or `None` or 0 for no head. Defaults to `1000`.
        activation: activation of the feed-forward layers: a name, function, layer class, maker, config, or a layer
            instance, which is cloned per block. Defaults to `"gelu"` (exact).
        feed_forward: feed-forward layer: a name (`"mlp"`, `"glu"`, `"swiglu"`, `"poly_norm_glu"`, ...), class, maker,
            config or instance. Classes and makers get `hidden_dim`, `activation`, `dropout`, `name` and `dtype`, as far
            as they take them. Defaults to `"mlp"`.
        normalization: normalization: a name, class, maker, config or instance. Defaults to `"layer_norm"` (epsilon
            1e-6).
        dropout: float in [0, 1), after the embedding, the attention, and in the feed-forward layers. Defaults to `0.0`.
        attention_dropout: float in [0, 1), on the attention weights. Defaults to `0.0`.
        drop_path: float in [0, 1). Stochastic depth rate of the last block; the rates grow linearly from 0 in the
            first. Defaults to `0.0`.
        pooling: `"token"` for the class token, `"mean"` for the mean of the patches, both after the final norm;
            `"mean_before_norm"` for the final norm of that mean, as MAE's fine-tuning and timm's `fc_norm` have it;
            `None`, only without a head, for all tokens. Defaults to `"token"`.
        class_token: bool or `None`. Whether there is a class token; `None` for yes unless `pooling="mean"`. Defaults to
            `None`.
        qkv_bias: bool. Whether the attention's projections have biases. Defaults to `True`.
        classifier_activation: activation of the head, such as `"softmax"`; `None` for logits. Defaults to `None`.
        data_format: `"channels_last"` or `"channels_first"`; `None` for `keras.config.image_data_format()`. Defaults to
            `None`.
        name: optional string.
        dtype: dtype or policy of all layers; `None` for the global policy. Defaults to `None`.
        trainable: bool. `False` freezes all layers. Defaults to `True`. Which single layers are frozen is not part of
            the config: freeze them again after loading.

    Raises:
        ValueError: an unknown variant or name, a size, rate or choice out of range, a patch that does not divide the
            image, or heads that do not divide the width.

    Example:

    >>> import keras, keras_polycom
    >>> model = keras_polycom.models.ViT(
    ...     image_shape=(32, 48, 3), patch_size=8, num_layers=2, hidden_dim=24, num_heads=3, num_classes=10,
    ...     activation="poly_norm",
    ... )
    >>> model(keras.ops.ones((2, 32, 48, 3))).shape == (2, 10)
    True

    Reference: Dosovitskiy et al., An Image is Worth 16x16 Words, arXiv 2010.11929.
    """

    def __init__(
        self,
        variant=None,
        *,
        image_shape=(224, 224, 3),
        patch_size=None,
        num_layers=None,
        hidden_dim=None,
        num_heads=None,
        mlp_dim=None,
        num_classes=1000,
        activation="gelu",
        feed_forward="mlp",
        normalization="layer_norm",
        dropout=0.0,
        attention_dropout=0.0,
        drop_path=0.0,
        pooling="token",
        class_token=None,
        qkv_bias=True,
        classifier_activation=None,
        data_format=None,
        name=None,
        dtype=None,
        trainable=True,
    ):
        # === Sizes and checks ===
        patch_size, num_layers, hidden_dim, num_heads = resolve_variant(
            variant, patch_size, num_layers, hidden_dim, num_heads
        )
        data_format = check_data_format(data_format)
        patch_size, grid = patch_grid(image_shape, patch_size, data_format)
        check_sizes(num_layers=num_layers, hidden_dim=hidden_dim, num_heads=num_heads)
        check_rates(dropout=dropout, attention_dropout=attention_dropout, drop_path=drop_path)
        check_one_of("pooling", pooling, ("token", *MEANS, None))
        class_token = pooling != "mean" if class_token is None else bool(class_token)
        if pooling == "token" and not class_token:
            raise ValueError("pooling='token' needs a class token. Received: class_token=False; use pooling='mean'.")
        num_classes = check_head(num_classes, pooling)
        if mlp_dim is None:
            gated = feed_forwards.is_gated(feed_forward, activation=activation, dropout=dropout)
            mlp_dim = feed_forwards.hidden_width(hidden_dim, gated)
        check_sizes(mlp_dim=mlp_dim)
        dtype = keras.dtype_policies.get(dtype)

        # === Functional model ===
        images = keras.Input(shape=tuple(image_shape), name="images")
        x = patch_tokens(images, patch_size, grid, hidden_dim, data_format, dtype)  # (batch, patches, hidden_dim)
        if class_token:
            x = ClassToken(dtype=dtype, name="class_token")(x)  # (batch, tokens, hidden_dim)
        x = PositionEmbedding(dtype=dtype, name="position_embedding")(x)
        if dropout:
            x = keras.layers.Dropout(dropout, dtype=dtype, name="embedding_dropout")(x)
        x = transformer_blocks(
            x,
            "block",
            num_layers,
            drop_path,
            num_heads=num_heads,
            mlp_dim=mlp_dim,
            activation=activation,
            feed_forward=feed_forward,
            normalization=normalization,
            dropout=dropout,
            attention_dropout=attention_dropout,
            qkv_bias=qkv_bias,
            dtype=dtype,
        )
        final_norm = normalizations.get(normalization, name="final_norm", dtype=dtype)
        if pooling == "mean_before_norm":
            x = final_norm(pooled(x, pooling, class_token, dtype))
        else:
            x = pooled(final_norm(x), pooling, class_token, dtype)
        if num_classes:
            x = keras.layers.Dense(
                num_classes,
                activation=classifier_activation,
                kernel_initializer=keras.initializers.TruncatedNormal(stddev=0.02),
                dtype=dtype,
                name="head",
            )(x)
        super().__init__(inputs=images, outputs=x, name=name, trainable=None if trainable else False)

        # === Config ===
        self._remember(
            dtype,
            variant=variant,
            image_shape=tuple(image_shape),
            patch_size=patch_size,
            num_layers=num_layers,
            hidden_dim=hidden_dim,
            num_heads=num_heads,
            mlp_dim=mlp_dim,
            num_classes=num_classes,
            activation=activations.serialize(activation, dtype=dtype),
            feed_forward=feed_forwards.serialize(
                feed_forward, hidden_dim=mlp_dim, activation=activation, dropout=dropout, dtype=dtype
            ),
            normalization=normalizations.serialize(normalization, dtype=dtype),
            dropout=dropout,
            attention_dropout=attention_dropout,
            drop_path=drop_path,
            pooling=pooling,
            class_token=class_token,
            qkv_bias=qkv_bias,
            classifier_activation=activations.serialize(classifier_activation, dtype=dtype),
            data_format=data_format,
        )


def resolve_variant(variant, *sizes):
    """Returns patch_size, num_layers, hidden_dim and num_heads: those given, and the variant's where they are `None`.

    Raises:
        ValueError: an unknown variant.
    """
    check_one_of("variant", variant, (None, *VARIANTS))
    return [own if given is None else given for given, own in zip(sizes, VARIANTS[variant or "base/16"], strict=True)]


def patch_grid(image_shape, patch_size, data_format):
    """Returns the patch as (height, width) and the number of patches as (rows, columns).

    Raises:
        ValueError: the patch does not divide the image.
    """
    height, width, _ = image_sizes(image_shape, data_format)
    patch = (patch_size, patch_size) if isinstance(patch_size, int) else tuple(patch_size)
    if len(patch) != 2:
        raise ValueError(f"`patch_size` must be an integer or a pair (height, width). Received: {patch_size!r}")
    for side in patch:
        check_sizes(patch_size=side)
    if height is None or width is None or height % patch[0] or width % patch[1]:
        raise ValueError(
            "`patch_size` must divide the height and the width of the image, which must be known. Received: "
            f"patch_size={patch}, image height={height}, width={width} (image_shape={tuple(image_shape)}, "
            f"{data_format})"
        )
    return patch, (height // patch[0], width // patch[1])


def patch_tokens(images, patch_size, grid, width, data_format, dtype):
    """Embeds every patch of the images by one convolution: a symbolic tensor (batch, patches, width), row by row."""
    x = images
    if (
        data_format == "channels_first"
    ):  # once here, and TensorFlow's CPU convolution, channels-last only, can do it too
        x = keras.layers.Permute((2, 3, 1), dtype=dtype, name="channels_last")(x)
    x = keras.layers.Conv2D(
        width,
        patch_size,
        strides=patch_size,
        data_format="channels_last",
        kernel_initializer="lecun_normal",
        dtype=dtype,
        name="patch_embedding",
    )(x)
    return keras.layers.Reshape((grid[0] * grid[1], width), dtype=dtype, name="patch_tokens")(x)


def pooled(x, pooling, class_token, dtype):
    """One vector per image from its tokens, or all tokens for `pooling=None`."""
    if pooling in MEANS:
        x = keras.layers.Cropping1D((1, 0), dtype=dtype, name="patches_only")(x) if class_token else x
        return keras.layers.GlobalAveragePooling1D(dtype=dtype, name="pooled")(x)
    if pooling == "token":
        x = keras.layers.Cropping1D((0, x.shape[1] - 1), dtype=dtype, name="class_token_only")(x)
        return keras.layers.Reshape((x.shape[2],), dtype=dtype, name="pooled")(x)
    return x
