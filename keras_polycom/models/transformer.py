"""The pre-norm transformer block, as a function of a symbolic tensor."""

import math

import keras

from keras_polycom import feed_forwards, normalizations
from keras_polycom.layers.drop_path import DropPath
from keras_polycom.models.configured import with_policies


def transformer_blocks(x, prefix, num_layers, drop_path=0.0, **arguments):
    """A stack of `transformer_block`s called `prefix` and their number: `block_0`, `block_1`, ...

    Args:
        x: symbolic tensor (batch, tokens, width).
        prefix: string.
        num_layers: integer.
        drop_path: float in [0, 1). Stochastic depth rate of the last block; the rates grow linearly from 0 in the
            first. Defaults to `0.0`.
        **arguments: the other arguments of `transformer_block`.

    Returns:
        Symbolic tensor (batch, tokens, width).
    """
    for index in range(num_layers):
        rate = drop_path * index / max(num_layers - 1, 1)
        x = transformer_block(x, f"{prefix}_{index}", drop_path=rate, **arguments)
    return x


def transformer_block(
    x,
    prefix,
    *,
    num_heads,
    mlp_dim,
    activation="gelu",
    feed_forward="mlp",
    normalization="layer_norm",
    dropout=0.0,
    attention_dropout=0.0,
    drop_path=0.0,
    qkv_bias=True,
    dtype=None,
):
    """Pre-norm transformer block of any width.

    Formula:

    ```
    x = x + drop_path(attention(norm(x)))
    x = x + drop_path(feed_forward(norm(x)))
    ```

    Layers, each behind `prefix` and an underscore: `attention_norm`, `attention`, `attention_dropout`,
    `attention_drop_path`, `attention_add`, `feed_forward_norm`, `feed_forward`, `feed_forward_drop_path`,
    `feed_forward_add`. A rate of 0 adds no layer.

    Args:
        x: symbolic tensor (batch, tokens, width) of known width.
        prefix: string, in front of every layer's name.
        num_heads: integer that divides the width.
        mlp_dim: integer. Hidden width of the feed-forward layer.
        activation, feed_forward, normalization: as in `keras_polycom.models.ViT`.
        dropout: float in [0, 1), after the attention and inside the feed-forward layer.
        attention_dropout: float in [0, 1), on the attention weights.
        drop_path: float in [0, 1), rate of stochastic depth of both branches.
        qkv_bias: bool. Whether the attention's projections have biases.
        dtype: dtype policy of every layer.

    Returns:
        Symbolic tensor (batch, tokens, width).

    Raises:
        ValueError: `num_heads` does not divide the width.

    Reference: Dosovitskiy et al., An Image is Worth 16x16 Words, arXiv 2010.11929, equations 2 and 3.
    """
    branch = normalizations.get(normalization, name=f"{prefix}_attention_norm", dtype=dtype)(x)
    attention = _attention(x.shape[-1], num_heads, attention_dropout, qkv_bias, dtype, f"{prefix}_attention")
    branch = _attend(attention, branch)
    if dropout:
        branch = keras.layers.Dropout(dropout, name=f"{prefix}_attention_dropout", dtype=dtype)(branch)
    x = _add(x, branch, drop_path, dtype, f"{prefix}_attention")

    branch = normalizations.get(normalization, name=f"{prefix}_feed_forward_norm", dtype=dtype)(x)
    branch = feed_forwards.get(
        with_policies(feed_forward, dtype),
        hidden_dim=mlp_dim,
        activation=activation,
        dropout=dropout,
        name=f"{prefix}_feed_forward",
        dtype=dtype,
    )(branch)
    return _add(x, branch, drop_path, dtype, f"{prefix}_feed_forward")


def _attention(width, num_heads, dropout, use_bias, dtype, name):
    if width % num_heads:
        raise ValueError(f"`num_heads` must divide the width. Received: num_heads={num_heads}, width={width}")
    # Keras computes Glorot's fans from the (width, heads, width / heads) kernel as if it were a convolution's, which
    # depends on the number of heads. This is Glorot's limit for the (width, width) matrix that it is.
    limit = math.sqrt(6 / (2 * width))
    return keras.layers.MultiHeadAttention(
        num_heads,
        key_dim=width // num_heads,
        dropout=dropout,
        use_bias=use_bias,
        kernel_initializer=keras.initializers.RandomUniform(-limit, limit),
        dtype=dtype,
        name=name,
    )


def _attend(attention, x):
    """Self-attention. JAX's own attention refuses float16 on a CPU; the way that keeps the scores does not use it."""
    if keras.backend.backend() == "jax" and attention.compute_dtype == "float16":
        on_cpu = all(device.startswith("cpu") for device in keras.distribution.list_devices())
        return attention(x, x, return_attention_scores=True)[0] if on_cpu else attention(x, x)
    return attention(x, x)


def _add(x, branch, drop_path, dtype, name):
    if drop_path:
        branch = DropPath(drop_path, dtype=dtype, name=f"{name}_drop_path")(branch)
    return keras.layers.Add(dtype=dtype, name=f"{name}_add")([x, branch])
