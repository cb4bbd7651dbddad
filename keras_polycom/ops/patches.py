"""Images as rows of patches and back, and the loss of masked autoencoders on them."""

import keras

from keras_polycom.ops._numerics import as_tensor, raise_precision

# Added to the variance of a patch before its root, as in the published results.
PATCH_EPSILON = 1e-6


def patchify(images, patch_size, data_format="channels_last"):
    """Cuts images into patches, one flat row of pixels each.

    The patches follow each other row by row. Within a patch the channel varies fastest, then the column, then the row,
    for both data formats.

    Args:
        images: tensor (batch, height, width, channels), or (batch, channels, height, width) for `"channels_first"`.
        patch_size: pair of integers (height, width).
        data_format: `"channels_last"` or `"channels_first"`. Defaults to `"channels_last"`.

    Returns:
        Tensor (batch, patches, patch height * patch width * channels).

    Raises:
        ValueError: the patch does not divide the image, or the image is not of rank 4.

    Example:

    >>> import keras
    >>> from keras_polycom import ops
    >>> image = keras.ops.reshape(keras.ops.arange(16), (1, 4, 4, 1))
    >>> [[int(v) for v in patch] for patch in ops.patchify(image, (2, 2))[0]]
    [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]

    Reference: He et al., Masked Autoencoders Are Scalable Vision Learners, arXiv 2111.06377, section 3.
    """
    images = as_tensor(images)
    if len(images.shape) != 4:
        raise ValueError(f"Expected images of rank 4. Received: images of shape {tuple(images.shape)}")
    if data_format == "channels_first":
        images = keras.ops.transpose(images, (0, 2, 3, 1))
    height, width, channels = images.shape[1:]
    rows, columns = _grid(height, width, patch_size)
    x = keras.ops.reshape(images, (-1, rows, patch_size[0], columns, patch_size[1], channels))
    x = keras.ops.transpose(x, (0, 1, 3, 2, 4, 5))  # (batch, rows, columns, patch height, patch width, channels)
    return keras.ops.reshape(x, (-1, rows * columns, patch_size[0] * patch_size[1] * channels))


def unpatchify(patches, patch_size, grid, data_format="channels_last"):
    """Puts the rows that `patchify` makes together again.

    Args:
        patches: tensor (batch, patches, patch height * patch width * channels).
        patch_size: pair of integers (height, width).
        grid: pair of integers (rows, columns) of patches.
        data_format: `"channels_last"` or `"channels_first"`. Defaults to `"channels_last"`.

    Returns:
        Images (batch, height, width, channels), or (batch, channels, height, width) for `"channels_first"`.

    Raises:
        ValueError: the patches are not as many as in the grid, or no whole number of channels.

    Example:

    >>> import keras
    >>> from keras_polycom import ops
    >>> image = keras.random.uniform((1, 4, 6, 3))
    >>> again = ops.unpatchify(ops.patchify(image, (2, 3)), (2, 3), (2, 2))
    >>> bool(keras.ops.all(again == image))
    True
    """
    patches = as_tensor(patches)
    shape, area = tuple(patches.shape), patch_size[0] * patch_size[1]
    if len(shape) != 3 or shape[1] != grid[0] * grid[1] or shape[2] % area:
        raise ValueError(
            f"Expected (batch, {grid[0] * grid[1]}, {area} * channels) for grid={tuple(grid)}, "
            f"patch_size={tuple(patch_size)}. Received: patches of shape {shape}"
        )
    channels = shape[2] // area
    x = keras.ops.reshape(patches, (-1, *grid, *patch_size, channels))
    x = keras.ops.transpose(x, (0, 1, 3, 2, 4, 5))  # (batch, rows, patch height, columns, patch width, channels)
    images = keras.ops.reshape(x, (-1, grid[0] * patch_size[0], grid[1] * patch_size[1], channels))
    return keras.ops.transpose(images, (0, 3, 1, 2)) if data_format == "channels_first" else images


def patch_statistics(patches, unbiased=True):
    """Mean and standard deviation of every patch, over all its pixels and channels.

    Formula, for a patch of n numbers:

    ```
    mean = sum(x) / n
    deviation = sqrt(sum((x - mean)^2) / (n - 1) + 1e-6)
    ```

    Args:
        patches: tensor (batch, patches, n).
        unbiased: bool. Whether the sum of squares is divided by n - 1, as PyTorch's `var` and therefore the published
            results do, or by n. Defaults to `True`.

    Returns:
        Two tensors (batch, patches, 1), in at least float32.

    Raises:
        ValueError: `unbiased` with n = 1.

    Example:

    >>> import keras
    >>> from keras_polycom import ops
    >>> mean, deviation = ops.patch_statistics(keras.ops.array([[[1.0, 3.0]]]))
    >>> round(float(mean[0, 0, 0]), 4), round(float(deviation[0, 0, 0]), 4)
    (2.0, 1.4142)
    """
    patches, _ = raise_precision(patches)
    size = patches.shape[-1]
    if unbiased and size == 1:
        raise ValueError("The unbiased variance of a patch of one number is undefined: use unbiased=False.")
    mean = keras.ops.sum(patches, axis=-1, keepdims=True) / size
    squares = keras.ops.sum(keras.ops.square(patches - mean), axis=-1, keepdims=True)
    return mean, keras.ops.sqrt(squares / (size - 1 if unbiased else size) + PATCH_EPSILON)


def masked_patch_loss(prediction, target, mask):
    """Mean squared error of the hidden patches; the visible ones do not count.

    Formula, with n numbers per patch:

    ```
    sum_p mask_p * mean_n((prediction_pn - target_pn)^2) / sum_p mask_p
    ```

    Args:
        prediction: tensor (batch, patches, n).
        target: tensor (batch, patches, n).
        mask: tensor (batch, patches), 1 for a hidden patch, 0 for a visible one. At least one is hidden.

    Returns:
        Scalar tensor, in at least float32.

    Example:

    >>> import keras
    >>> from keras_polycom import ops
    >>> target = keras.ops.zeros((1, 2, 4))
    >>> float(ops.masked_patch_loss(target + 2.0, target, keras.ops.array([[0.0, 1.0]])))
    4.0

    Reference: He et al., arXiv 2111.06377, section 3, "Reconstruction target".
    """
    prediction, _ = raise_precision(prediction)
    mask = keras.ops.cast(mask, prediction.dtype)
    squares = keras.ops.square(prediction - keras.ops.cast(target, prediction.dtype))
    errors = keras.ops.sum(squares, axis=-1) / prediction.shape[-1]  # keras.ops.mean would lower float64
    return keras.ops.sum(errors * mask) / keras.ops.sum(mask)


def _grid(height, width, patch_size):
    if len(patch_size) != 2 or height is None or width is None or height % patch_size[0] or width % patch_size[1]:
        raise ValueError(
            "`patch_size` must be a pair (height, width) that divides the height and the width of the images, which "
            f"must be known. Received: patch_size={patch_size}, image height={height}, width={width}"
        )
    return height // patch_size[0], width // patch_size[1]
