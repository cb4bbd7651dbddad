"""The masked autoencoder."""

import keras

from keras_polycom import activations, feed_forwards, normalizations, ops
from keras_polycom.layers.class_token import ClassToken
from keras_polycom.layers.position_embedding import SinCosPositionEmbedding
from keras_polycom.layers.random_masking import FillMasked, RandomMasking, visible_count
from keras_polycom.models.configured import (
    ConfiguredModel,
    check_data_format,
    check_rates,
    check_sizes,
    image_sizes,
)
from keras_polycom.models.transformer import transformer_blocks
from keras_polycom.models.vit import ViT, patch_grid, patch_tokens, resolve_variant

# What a classifier takes over from the encoder, so that the weights fit.
ENCODER_ARGUMENTS = (
    "patch_size",
    "num_layers",
    "hidden_dim",
    "num_heads",
    "mlp_dim",
    "activation",
    "feed_forward",
    "normalization",
    "qkv_bias",
)


@keras.saving.register_keras_serializable(package="keras_polycom")
class MAE(ConfiguredModel):
    """Masked autoencoder: a vision transformer that learns to paint the hidden patches of images.

    Most patches are hidden; the encoder sees the others; the decoder sees the encoder's output, with one learned token
    in every gap, and predicts the pixels of all patches. The loss is the mean squared error of the hidden ones. It is
    inside: `model.compile(optimizer)`, then `model.fit(images)`. Labels that a data set yields are ignored.

    Input: images (batch, height, width, channels), or (batch, channels, height, width) for `"channels_first"`; or a
    dict with `"images"` and `"noise"`, (batch, patches): the patches with the least noise stay visible, on every
    backend the same (the first of equal ones). Without noise every image is masked anew in every step, in validation
    too; hand noise in where numbers are to be compared.

    Output, a dict: `"prediction"` (batch, patches, patch height * patch width * channels) of normalized pixels, in the
    order of `ops.patchify`; and `"mask"` (batch, patches), 1 for a hidden patch, 0 for a visible one.

    Layers, for `get_layer`: as in `ViT`, with `patch_positions` in place of `position_embedding`; `random_masking`;
    then `decoder_embedding`, `mask_tokens`, `decoder_positions`, `decoder_block_0_attention_norm` and so on,
    `decoder_norm`, `decoder_prediction`. Positions are fixed sines and cosines in both halves. Dropout and drop path
    are in the encoder only. Kernels start Glorot uniform as in the paper, the patch embedding LeCun normal, the class
    and mask tokens truncated normal with standard deviation 0.02, biases 0.

    Attributes: every argument but `name`, `dtype` and `trainable`; `grid`, (rows, columns) of patches; `num_patches`;
    `num_visible`, `int(num_patches * (1 - mask_ratio))` (100 patches at 0.9 leave 9, see
    `layers.random_masking.visible_count`).

    Args:
        variant: string or `None`. An encoder by name: `"tiny/16"`, `"small/16"`, `"base/16"`, `"base/32"`,
            `"large/16"`, `"huge/14"`. The four sizes it stands for can be overridden one by one. `None` stands for
            `"base/16"`. The decoder is the same for all.
        image_shape: triple of integers. Defaults to `(224, 224, 3)`.
        patch_size: integer or pair (height, width) that divides the image. Defaults to the variant's.
        num_layers: integer. Number of the encoder's blocks. Defaults to the variant's.
        hidden_dim: integer, a multiple of 4. Width of the encoder. Defaults to the variant's.
        num_heads: integer that divides `hidden_dim`. Defaults to the variant's.
        mlp_dim: integer or `None`. Hidden width of the encoder's feed-forward layers; `None` for 4 times `hidden_dim`,
            or 8/3 of it for a gated layer. Defaults to `None`.
        decoder_num_layers: integer. Defaults to `8`.
        decoder_hidden_dim: integer, a multiple of 4. Defaults to `512`.
        decoder_num_heads: integer that divides `decoder_hidden_dim`. Defaults to `16`.
        decoder_mlp_dim: integer or `None`, as `mlp_dim`. Defaults to `None`.
        mask_ratio: Python number, the share of hidden patches; at least one must be hidden and one visible. Defaults to
            `0.75`.
        normalize_pixels: bool. Whether the target is every patch less its mean, divided by its standard deviation,
            instead of the pixels themselves. Defaults to `True`.
        unbiased_variance: bool. Whether that is the variance with n - 1, as PyTorch computes it and the published
            results use it, or with n. Defaults to `True`.
        activation: activation of the feed-forward layers, as in `ViT`. Defaults to `"gelu"` (exact).
        feed_forward: feed-forward layer, as in `ViT`. Defaults to `"mlp"`.
        decoder_feed_forward: the decoder's, `None` for the same as the encoder's with the decoder's sizes. Defaults to
            `None`.
        normalization: as in `ViT`. Defaults to `"layer_norm"` (epsilon 1e-6).
        dropout: float in [0, 1), after the embedding, the attention, and in the feed-forward layers of the encoder.
            Defaults to `0.0`.
        attention_dropout: float in [0, 1), on the attention weights of the encoder. Defaults to `0.0`.
        drop_path: float in [0, 1). Stochastic depth rate of the encoder's last block; the rates grow linearly from 0 in
            the first. Defaults to `0.0`.
        qkv_bias: bool. Whether the attention's projections have biases. Defaults to `True`.
        data_format: `"channels_last"` or `"channels_first"`; `None` for `keras.config.image_data_format()`. Defaults to
            `None`.
        seed: optional integer, of the masks. Defaults to `None`.
        name: optional string.
        dtype: dtype or policy of all layers; `None` for the global policy. The loss is computed in at least float32.
            Defaults to `None`.
        trainable: bool. `False` freezes all layers. Defaults to `True`.

    Raises:
        ValueError: an unknown variant or name, a size, rate or choice out of range, a patch that does not divide the
            image, heads that do not divide the width, or a `mask_ratio` that hides nothing, hides everything, or is a
            tensor.

    Example:

    >>> import keras, keras_polycom
    >>> model = keras_polycom.models.MAE(
    ...     image_shape=(32, 48, 3), patch_size=8, num_layers=2, hidden_dim=24, num_heads=3, decoder_num_layers=1,
    ...     decoder_hidden_dim=16, decoder_num_heads=2, feed_forward="swiglu",
    ... )
    >>> images = keras.random.uniform((2, 32, 48, 3))
    >>> model(images)["prediction"].shape == (2, 24, 192)
    True
    >>> classifier = model.to_classifier(num_classes=10, drop_path=0.1)
    >>> classifier(images).shape == (2, 10)
    True

    Reference: He et al., Masked Autoencoders Are Scalable Vision Learners, arXiv 2111.06377.
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
        decoder_num_layers=8,
        decoder_hidden_dim=512,
        decoder_num_heads=16,
        decoder_mlp_dim=None,
        mask_ratio=0.75,
        normalize_pixels=True,
        unbiased_variance=True,
        activation="gelu",
        feed_forward="mlp",
        decoder_feed_forward=None,
        normalization="layer_norm",
        dropout=0.0,
        attention_dropout=0.0,
        drop_path=0.0,
        qkv_bias=True,
        data_format=None,
        seed=None,
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
        num_patches = grid[0] * grid[1]
        patch_pixels = patch_size[0] * patch_size[1] * image_sizes(image_shape, data_format)[2]
        check_sizes(
            num_layers=num_layers,
            hidden_dim=hidden_dim,
            num_heads=num_heads,
            decoder_num_layers=decoder_num_layers,
            decoder_hidden_dim=decoder_hidden_dim,
            decoder_num_heads=decoder_num_heads,
        )
        check_rates(dropout=dropout, attention_dropout=attention_dropout, drop_path=drop_path)
        num_visible = visible_count(num_patches, mask_ratio)
        if normalize_pixels and unbiased_variance and patch_pixels == 1:
            raise ValueError("Patches of one number have no unbiased variance: use unbiased_variance=False.")
        if mlp_dim is None:
            mlp_dim = feed_forwards.hidden_width(hidden_dim, feed_forwards.is_gated(feed_forward))
        dtype = keras.dtype_policies.get(dtype)
        if decoder_feed_forward is None:
            decoder_feed_forward = _with_decoder_sizes(feed_forward)
        if decoder_mlp_dim is None:
            gated = feed_forwards.is_gated(decoder_feed_forward)
            decoder_mlp_dim = feed_forwards.hidden_width(decoder_hidden_dim, gated)
        check_sizes(mlp_dim=mlp_dim, decoder_mlp_dim=decoder_mlp_dim)
        common = {"activation": activation, "normalization": normalization, "qkv_bias": qkv_bias, "dtype": dtype}

        # === Encoder, with the names of the layers of a ViT ===
        images = keras.Input(shape=tuple(image_shape), name="images")
        noise = keras.Input(shape=(num_patches,), dtype="float32", name="noise", optional=True)
        x = patch_tokens(images, patch_size, grid, hidden_dim, data_format, dtype)  # (batch, patches, hidden_dim)
        x = SinCosPositionEmbedding(grid, dtype=dtype, name="patch_positions")(x)
        masking = RandomMasking(mask_ratio, seed=seed, dtype=dtype, name="random_masking")
        x, mask, restore = masking(x, noise)  # (batch, visible, hidden_dim)
        x = ClassToken(dtype=dtype, name="class_token")(x)  # (batch, 1 + visible, hidden_dim)
        if dropout:
            x = keras.layers.Dropout(dropout, dtype=dtype, name="embedding_dropout")(x)
        x = transformer_blocks(
            x,
            "block",
            num_layers,
            drop_path,
            num_heads=num_heads,
            mlp_dim=mlp_dim,
            feed_forward=feed_forward,
            dropout=dropout,
            attention_dropout=attention_dropout,
            **common,
        )
        x = normalizations.get(normalization, name="final_norm", dtype=dtype)(x)

        # === Decoder ===
        x = keras.layers.Dense(decoder_hidden_dim, dtype=dtype, name="decoder_embedding")(x)
        x = FillMasked(prefix=1, dtype=dtype, name="mask_tokens")(
            x, restore
        )  # (batch, 1 + patches, decoder_hidden_dim)
        x = SinCosPositionEmbedding(grid, class_token=True, dtype=dtype, name="decoder_positions")(x)
        x = transformer_blocks(
            x,
            "decoder_block",
            decoder_num_layers,
            num_heads=decoder_num_heads,
            mlp_dim=decoder_mlp_dim,
            feed_forward=decoder_feed_forward,
            **common,
        )
        x = normalizations.get(normalization, name="decoder_norm", dtype=dtype)(x)
        x = keras.layers.Cropping1D((1, 0), dtype=dtype, name="decoder_patches")(x)  # without the class token
        prediction = keras.layers.Dense(patch_pixels, dtype=dtype, name="decoder_prediction")(x)
        super().__init__(
            inputs={"images": images, "noise": noise},
            outputs={"prediction": prediction, "mask": mask},
            name=name,
            trainable=trainable,
        )
        self.input_spec = None  # one tensor of images is a legal input too: `call` checks
        self.grid = grid
        self.num_patches = num_patches
        self.num_visible = num_visible

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
            decoder_num_layers=decoder_num_layers,
            decoder_hidden_dim=decoder_hidden_dim,
            decoder_num_heads=decoder_num_heads,
            decoder_mlp_dim=decoder_mlp_dim,
            mask_ratio=mask_ratio,
            normalize_pixels=bool(normalize_pixels),
            unbiased_variance=bool(unbiased_variance),
            activation=activations.serialize(activation, dtype=dtype),
            feed_forward=feed_forwards.serialize(
                feed_forward, hidden_dim=mlp_dim, activation=activation, dropout=dropout, dtype=dtype
            ),
            decoder_feed_forward=feed_forwards.serialize(
                decoder_feed_forward, hidden_dim=decoder_mlp_dim, activation=activation, dropout=0.0, dtype=dtype
            ),
            normalization=normalizations.serialize(normalization, dtype=dtype),
            dropout=dropout,
            attention_dropout=attention_dropout,
            drop_path=drop_path,
            qkv_bias=qkv_bias,
            data_format=data_format,
            seed=seed,
        )

    def call(self, inputs, training=None, mask=None):
        return super().call(self._named(inputs), training=training, mask=mask)

    def compute_output_spec(self, inputs, training=None, mask=None):
        batch = self._named(inputs)["images"].shape[0]
        return {name: keras.KerasTensor((batch, *x.shape[1:]), x.dtype) for name, x in self.output.items()}

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """The reconstruction loss, and the regularization losses if there are any; `y` is ignored."""
        if sample_weight is not None:
            raise ValueError("The loss of a masked autoencoder takes no sample weights. Leave `sample_weight` out.")
        loss = self.reconstruction_loss(self._named(x)["images"], y_pred["prediction"], y_pred["mask"])
        loss = sum((keras.ops.sum(keras.ops.cast(extra, loss.dtype)) for extra in self.losses), loss)
        return loss / _replicas()

    def reconstruction_loss(self, images, prediction, mask):
        """Mean squared error of the hidden patches, which `fit` minimises.

        Args:
            images: the images the prediction was made from.
            prediction, mask: what the model returned.

        Returns:
            Scalar tensor, float32 or float64.
        """
        return ops.masked_patch_loss(prediction, self.target_patches(images), mask)

    def target_patches(self, images):
        """The patches the prediction is compared with, (batch, patches, patch pixels), normalized if the model is."""
        patches = ops.patchify(images, self.patch_size, self.data_format)
        if not self.normalize_pixels:
            return patches
        mean, deviation = ops.patch_statistics(patches, self.unbiased_variance)
        return (keras.ops.cast(patches, mean.dtype) - mean) / deviation

    def reconstruct(self, images, noise=None):
        """Returns the images with their hidden patches replaced by the prediction.

        A model of normalized pixels predicts neither mean nor contrast of a patch: both are taken from the image.

        Args:
            images: as for a call.
            noise: optional array (batch, patches).

        Returns:
            float32 tensor of the images' shape, and the mask (batch, patches), 1 for a hidden patch.
        """
        images = keras.ops.convert_to_tensor(images, "float32")
        inputs = {"images": images} if noise is None else {"images": images, "noise": keras.ops.array(noise, "float32")}
        output = self(inputs, training=False)
        patches = ops.patchify(images, self.patch_size, self.data_format)
        painted = keras.ops.cast(output["prediction"], patches.dtype)
        if self.normalize_pixels:
            mean, deviation = ops.patch_statistics(patches, self.unbiased_variance)
            painted = painted * deviation + mean
        pasted = keras.ops.where(keras.ops.expand_dims(output["mask"], -1) > 0, painted, patches)
        return ops.unpatchify(pasted, self.patch_size, self.grid, self.data_format), output["mask"]

    def make_encoder(self):
        """Returns the encoder as a model of its own that shares the layers with this one.

        It sees all patches, so that two calls give the same: images in, (batch, 1 + patches, hidden_dim) out, the class
        token first, after the final norm.
        """
        visible = keras.Model(self.input, self.get_layer("final_norm").output)

        def call_without_masking(layer, *args, **kwargs):
            return (args[0],) * 3 if isinstance(layer, RandomMasking) else layer(*args, **kwargs)

        seeing = keras.models.clone_model(
            visible, clone_function=lambda layer: layer, call_function=call_without_masking
        )
        return keras.Model(seeing.input["images"], seeing.output, name=f"{self.name}_encoder")

    def to_classifier(self, num_classes=1000, **arguments):
        """Returns a `ViT` whose body is the encoder, with a copy of all its weights.

        The classifier sees all patches. Its position table, which is learned, starts as the encoder's fixed one; for
        images of another size as the same sines and cosines laid over the same area (`extent` of
        `ops.sincos_position_table`). The head starts afresh.

        Args:
            num_classes: integer, or `None` for no head. Defaults to `1000`.
            **arguments: any argument of `ViT` that does not decide the shape of the encoder's weights: `image_shape`,
                `pooling`, `dropout`, `attention_dropout`, `drop_path`, `classifier_activation`, `data_format`, `name`,
                `dtype`. Images, data format and dtype are by default those of this model.

        Returns:
            A `ViT`.

        Raises:
            ValueError: an argument that belongs to the encoder, or images with another number of channels.

        Reference: He et al., arXiv 2111.06377, section 4 and appendix A.1.
        """
        given = sorted({"variant", *ENCODER_ARGUMENTS} & set(arguments))
        if given or not arguments.get("class_token", True):
            raise ValueError(
                "A classifier takes its sizes, layers and class token from the encoder. Leave out: "
                f"{', '.join(given or ['class_token'])}"
            )
        config = self.get_config()
        taken = {key: config[key] for key in (*ENCODER_ARGUMENTS, "image_shape", "data_format", "dtype")}
        classifier = ViT(num_classes=num_classes, **{"class_token": True, **taken, **arguments})
        own, new = (image_sizes(m.image_shape, m.data_format)[2] for m in (self, classifier))
        if own != new:
            raise ValueError(
                f"The encoder was trained on images with {own} channels. Received: "
                f"image_shape={classifier.image_shape} with {new} channels"
            )
        for layer in classifier.layers:
            if layer.weights and layer.name not in ("position_embedding", "head"):
                layer.set_weights(self.get_layer(layer.name).get_weights())
        _, grid = patch_grid(classifier.image_shape, classifier.patch_size, classifier.data_format)
        table = ops.sincos_position_table(grid, self.hidden_dim, class_token=True, extent=self.grid)
        classifier.get_layer("position_embedding").table.assign(table[None])
        return classifier

    def _named(self, inputs):
        """The inputs as the dict the graph has, whichever way they were given."""
        named = inputs if isinstance(inputs, dict) else {"images": inputs}
        if "images" not in named or not set(named) <= {"images", "noise"}:
            raise ValueError(
                f'Expected images, or a dict with "images" and, optionally, "noise". Received: {sorted(named)}'
            )
        shape = getattr(named["images"], "shape", None)
        if shape is None or tuple(shape[1:]) != self.image_shape:
            raise ValueError(
                f"Expected images of shape (batch, {', '.join(map(str, self.image_shape))}). Received: "
                f"{type(named['images']).__name__} of shape {shape}"
            )
        return {"images": named["images"], "noise": named.get("noise")}


def _replicas():
    """How many replicas of a model `tf.distribute` trains: Keras adds their losses up, and divides its own by that."""
    if keras.backend.backend() != "tensorflow":
        return 1
    import tensorflow as tf

    return tf.distribute.get_strategy().num_replicas_in_sync


def _with_decoder_sizes(feed_forward):
    """A layer instance as its config without sizes it was built with: its weights, if any, have the encoder's."""
    if not isinstance(feed_forward, keras.layers.Layer):
        return feed_forward
    return {key: value for key, value in feed_forwards.serialize(feed_forward).items() if key != "build_config"}
