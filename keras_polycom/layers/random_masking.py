"""Hiding a random part of a sequence, and filling the gaps again."""

import keras

from keras_polycom.layers.initial_values import get_initializer


def visible_count(tokens, mask_ratio):
    """The number of tokens that stay visible: `tokens * (1 - mask_ratio)`, cut to an integer in Python's float64.

    That is the published masked autoencoder's arithmetic: 100 tokens at 0.9 leave 9, since `1 - 0.9` is a little less
    than a tenth.

    Raises:
        ValueError: `mask_ratio` is not a Python number, or leaves no token visible, or none hidden.
    """
    visible = int(tokens * (1 - check_mask_ratio(mask_ratio)))
    if not 0 < visible < tokens:
        raise ValueError(
            "`mask_ratio` must leave at least one token visible and one hidden. Received: "
            f"mask_ratio={mask_ratio}, which leaves {visible} of {tokens} tokens visible"
        )
    return visible


def check_mask_ratio(mask_ratio):
    """Returns `mask_ratio`; raises `ValueError` unless it is a Python number between 0 and 1."""
    if isinstance(mask_ratio, bool) or not isinstance(mask_ratio, (int, float)):
        raise ValueError(
            "`mask_ratio` must be a Python number: it decides the shape of compiled code, which a tensor cannot. "
            f"Received: a {type(mask_ratio).__name__}"
        )
    if not 0 < mask_ratio < 1:
        raise ValueError(
            "`mask_ratio` must lie between 0, where nothing is hidden and there is nothing to learn, and 1, where "
            f"nothing is seen. Received: mask_ratio={mask_ratio}"
        )
    return mask_ratio


@keras.saving.register_keras_serializable(package="keras_polycom")
class RandomMasking(keras.layers.Layer):
    """Keeps a random part of a sequence, another one for every sample and every call, in training and inference.

    Formula: the tokens with the smallest noise stay, in the order of their noise; of equal ones the first comes first.
    Noise that is handed in hides the same tokens on every backend.

    Call arguments: `tokens` (batch, tokens, width), with known tokens and width, and optionally `noise` (batch,
    tokens), by default drawn uniformly from [0, 1).

    Output, a tuple: the visible tokens (batch, visible, width); the mask (batch, tokens), float32, 1 for a hidden token
    and 0 for a visible one; and `restore` (batch, tokens), int32, the place of every token in the sequence of the
    visible and then the hidden ones, which `FillMasked` undoes the shuffle with.

    Args:
        mask_ratio: number between 0 and 1, the share of hidden tokens. `int(tokens * (1 - mask_ratio))` stay visible;
            see `visible_count`. Defaults to `0.75`.
        seed: optional integer. Defaults to `None`.
        **kwargs: `name`, `dtype` of `keras.layers.Layer`.

    Raises:
        ValueError: `mask_ratio` is not a Python number, or leaves no token visible or none hidden; tokens or width are
            unknown; noise of another shape.

    Example:

    >>> import keras
    >>> from keras_polycom import layers
    >>> tokens = keras.ops.reshape(keras.ops.arange(4.0), (1, 4, 1))
    >>> noise = keras.ops.array([[0.3, 0.9, 0.1, 0.5]])
    >>> visible, mask, restore = layers.RandomMasking(0.5)(tokens, noise)
    >>> [float(v) for v in visible[0, :, 0]], [float(v) for v in mask[0]], [int(v) for v in restore[0]]
    ([2.0, 0.0], [0.0, 1.0, 0.0, 1.0], [1, 3, 0, 2])

    Reference: He et al., Masked Autoencoders Are Scalable Vision Learners, arXiv 2111.06377, section 3.
    """

    def __init__(self, mask_ratio=0.75, seed=None, **kwargs):
        super().__init__(autocast=False, **kwargs)  # noise in half precision would have ties
        self.mask_ratio = check_mask_ratio(mask_ratio)
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, tokens_shape, noise_shape=None):
        if len(tokens_shape) != 3 or None in tokens_shape[1:]:
            raise ValueError(
                "Expected an input of shape (batch, tokens, width) with known tokens and width. Received: "
                f"{tuple(tokens_shape)}"
            )
        visible_count(tokens_shape[1], self.mask_ratio)
        self.built = True

    def call(self, tokens, noise=None):
        tokens = keras.ops.cast(tokens, self.compute_dtype)
        count = tokens.shape[1]
        if noise is None:
            noise = keras.random.uniform((keras.ops.shape(tokens)[0], count), dtype="float32", seed=self.seed_generator)
        elif len(noise.shape) != 2 or noise.shape[1] != count:
            raise ValueError(f"Expected noise of shape (batch, {count}). Received: {tuple(noise.shape)}")
        visible = visible_count(count, self.mask_ratio)
        shuffle = keras.ops.argsort(noise, axis=1)  # stable on every backend
        restore = keras.ops.cast(keras.ops.argsort(shuffle, axis=1), "int32")
        mask = keras.ops.cast(restore >= visible, "float32")
        kept = keras.ops.take_along_axis(tokens, keras.ops.expand_dims(shuffle[:, :visible], -1), axis=1)
        return kept, mask, restore

    def compute_output_spec(self, tokens, noise=None):
        batch, count, width = tokens.shape
        return (
            keras.KerasTensor((batch, visible_count(count, self.mask_ratio), width), self.compute_dtype),
            keras.KerasTensor((batch, count), "float32"),
            keras.KerasTensor((batch, count), "int32"),
        )

    def get_config(self):
        return {**super().get_config(), "mask_ratio": self.mask_ratio, "seed": self.seed}


@keras.saving.register_keras_serializable(package="keras_polycom")
class FillMasked(keras.layers.Layer):
    """Puts visible tokens back in their places and one learned token in all the others.

    Call arguments: `tokens` (batch, prefix + visible, width), where the prefix, such as a class token, stays in front;
    and `restore` (batch, all tokens) as `RandomMasking` gives it. Output shape: (batch, prefix + all tokens, width).
    Weight: `token` (1, 1, width).

    Args:
        prefix: integer. Number of tokens in front that were never shuffled. Defaults to `0`.
        token_initializer: initializer of the token. Defaults to a truncated normal of standard deviation 0.02.
        token_regularizer: optional regularizer. Defaults to `None`.
        token_constraint: optional constraint. Defaults to `None`.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Raises:
        ValueError: tokens or width are unknown, or `prefix` is not an integer of at least 0.

    Example:

    >>> import keras
    >>> from keras_polycom import layers
    >>> visible = keras.ops.array([[[2.0], [0.0]]])
    >>> restore = keras.ops.array([[1, 3, 0, 2]])
    >>> filled = layers.FillMasked(token_initializer="ones")(visible, restore)
    >>> keras.ops.convert_to_numpy(filled)[0, :, 0].tolist()
    [0.0, 1.0, 2.0, 1.0]

    Reference: He et al., arXiv 2111.06377, section 3, "MAE decoder".
    """

    def __init__(self, prefix=0, *, token_initializer=None, token_regularizer=None, token_constraint=None, **kwargs):
        super().__init__(**kwargs)
        if isinstance(prefix, bool) or not isinstance(prefix, int) or prefix < 0:
            raise ValueError(f"`prefix` must be an integer of at least 0. Received: prefix={prefix!r}")
        if token_initializer is None:
            token_initializer = keras.initializers.TruncatedNormal(stddev=0.02)
        self.prefix = prefix
        self.token_initializer = get_initializer(token_initializer, "token_initializer")
        self.token_regularizer = keras.regularizers.get(token_regularizer)
        self.token_constraint = keras.constraints.get(token_constraint)

    def build(self, tokens_shape, restore_shape=None):
        if len(tokens_shape) != 3 or None in tokens_shape[1:]:
            raise ValueError(
                "Expected an input of shape (batch, tokens, width) with known tokens and width. Received: "
                f"{tuple(tokens_shape)}"
            )
        self.token = self.add_weight(
            name="token",
            shape=(1, 1, tokens_shape[-1]),
            initializer=self.token_initializer,
            regularizer=self.token_regularizer,
            constraint=self.token_constraint,
        )
        self.built = True

    def call(self, tokens, restore):
        hidden = restore.shape[1] - (tokens.shape[1] - self.prefix)
        token = keras.ops.cast(self.token, tokens.dtype)
        token = keras.ops.broadcast_to(token, (keras.ops.shape(tokens)[0], hidden, tokens.shape[2]))
        shuffled = keras.ops.concatenate([tokens[:, self.prefix :], token], axis=1)
        filled = keras.ops.take_along_axis(shuffled, keras.ops.expand_dims(restore, -1), axis=1)
        return keras.ops.concatenate([tokens[:, : self.prefix], filled], axis=1) if self.prefix else filled

    def compute_output_spec(self, tokens, restore):
        batch, _, width = tokens.shape
        return keras.KerasTensor((batch, self.prefix + restore.shape[1], width), self.compute_dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "prefix": self.prefix,
            "token_initializer": keras.initializers.serialize(self.token_initializer),
            "token_regularizer": keras.regularizers.serialize(self.token_regularizer),
            "token_constraint": keras.constraints.serialize(self.token_constraint),
        }
