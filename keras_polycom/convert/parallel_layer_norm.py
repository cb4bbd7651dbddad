"""The published `ParallelLN` into ours."""

from keras_polycom.convert.rows import Row
from keras_polycom.convert.state_dicts import read_state_dict
from keras_polycom.convert.transfer import transfer
from keras_polycom.convert.transforms import Transform
from keras_polycom.layers.affine_normalization import channel_axis, check_data_format
from keras_polycom.layers.parallel_layer_normalization import (
    ConvParallelLayerNormalization,
    ParallelLayerNormalization,
    ParallelLayerScaling,
    RunNormalization,
)
from keras_polycom.ops.block_normalization import EPSILON


def load_parallel_layer_norm(layer, state, *, centering=True, epsilon=EPSILON):
    """Loads a published `ParallelLN` into a layer of ours.

    | ParallelLN | ours |
    |---|---|
    | `weight` (1, channels, 1, 1), (1, 1, channels) or (1, channels) | `gamma` (channels,) |
    | `bias`, the same | `beta` (channels,) |

    The number of channels per group is not in the state dict: it is the layer's `norm_size`. Only `p=2`, the default,
    has a layer here.

    Args:
        layer: a built `ParallelLayerNormalization` or `ConvParallelLayerNormalization`; for `centering=False` a
            `ParallelLayerScaling`.
        state: mapping or path, as for `read_state_dict`.
        centering: bool, the argument of `ParallelLN`. Defaults to `True`.
        epsilon: float, `eps` of `ParallelLN`; the layer's must be the same. Defaults to `1e-5`.

    Returns:
        A `Summary` of what was loaded.

    Raises:
        ValueError: the layer is not built; or any tensor missing, unused or misshapen, another epsilon or centring, all
            of them in one message.
        TypeError: not a layer of this family.
        ImportError, FileNotFoundError: as `read_state_dict`.

    Example:

    >>> import numpy as np, keras_polycom
    >>> from keras_polycom import convert
    >>> layer = keras_polycom.ParallelLayerNormalization(norm_size=3)
    >>> layer.build((None, 6))
    >>> state = {"weight": np.full((1, 6, 1, 1), 2.0), "bias": np.zeros((1, 6, 1, 1))}
    >>> convert.load_parallel_layer_norm(layer, state).loaded
    ('gamma', 'beta')

    Source: the authors' `pln.py`; Ni et al., arXiv 2505.13142, definition 3.2.
    """
    state = read_state_dict(state)
    if not isinstance(layer, RunNormalization):
        raise TypeError(
            "ParallelLN belongs into a ParallelLayerNormalization, ConvParallelLayerNormalization or "
            f"ParallelLayerScaling. Received: {type(layer).__name__}"
        )
    if not layer.built:
        raise ValueError(
            f"{layer.name!r} has no weights yet: they depend on the channels. Call layer.build(input_shape) first."
        )
    problems = []
    if layer.subtracts_mean != centering:
        problems.append(f"{type(layer).__name__} is for centering={layer.subtracts_mean}. Received: {centering}")
    if layer.epsilon != epsilon:
        problems.append(f"the layer has epsilon={layer.epsilon:g}, ParallelLN eps={epsilon:g}")
    weights = {name: getattr(layer, name) for name in ("gamma", "beta") if getattr(layer, name) is not None}
    rows = [Row("weight", "gamma", _CHANNELS), Row("bias", "beta", _CHANNELS)]
    return transfer(layer.name, weights, rows, state, problems=problems)


def make_parallel_layer_norm(state, norm_size, *, centering=True, epsilon=EPSILON, data_format=None, **arguments):
    """Builds the layer a published `ParallelLN` belongs to, and loads it: see `load_parallel_layer_norm`.

    Args:
        state: mapping or path, as for `read_state_dict`.
        norm_size: integer, `num_per_group` of `ParallelLN`, which its state dict does not tell.
        centering: bool, as there. Defaults to `True`.
        epsilon: float, `eps` there. Defaults to `1e-5`.
        data_format: for weights (1, channels, 1, 1), those of feature maps: `"channels_last"`, `"channels_first"`, or
            `None` for `keras.config.image_data_format()`. Defaults to `None`.
        **arguments: other arguments of the layer: `name`, `dtype`, regularizers, ...

    Returns:
        A built `ConvParallelLayerNormalization` for weights (1, channels, 1, 1), else a `ParallelLayerNormalization`;
        with `centering=False` a `ParallelLayerScaling` on that axis.

    Raises:
        ValueError: as `load_parallel_layer_norm`, and a `norm_size` that does not divide the channels.
        ImportError, FileNotFoundError, TypeError: as `read_state_dict`.

    Example:

    >>> import numpy as np
    >>> from keras_polycom import convert
    >>> state = {"weight": np.ones((1, 1, 6)), "bias": np.zeros((1, 1, 6))}
    >>> layer = convert.make_parallel_layer_norm(state, norm_size=3)
    >>> type(layer).__name__, layer.norm_size, layer.gamma.shape[0]
    ('ParallelLayerNormalization', 3, 6)
    """
    state = read_state_dict(state)
    shape = state["weight"].shape if "weight" in state else ()
    if _channels(shape) is None:
        raise ValueError(
            "Expected `weight` of shape (1, channels, 1, 1), (1, 1, channels) or (1, channels). Received: "
            f"{', '.join(f'{name} {array.shape}' for name, array in state.items())}"
        )
    feature_map = len(shape) == 4
    axis = channel_axis(check_data_format(data_format)) if feature_map else -1
    if feature_map and centering:
        layer = ConvParallelLayerNormalization(norm_size, data_format, epsilon, **arguments)
    else:
        kind = ParallelLayerNormalization if centering else ParallelLayerScaling
        layer = kind(norm_size, axis, epsilon, **arguments)
    sides = [None] * len(shape)
    sides[axis] = _channels(shape)
    layer.build(tuple(sides))
    load_parallel_layer_norm(layer, state, centering=centering, epsilon=epsilon)
    return layer


def _channels(shape):
    """The number of channels a weight of this shape is for, or `None`."""
    if len(shape) == 4 and (shape[0], *shape[2:]) == (1, 1, 1):
        return shape[1]
    return shape[-1] if len(shape) in (2, 3) and set(shape[:-1]) == {1} else None


class _Channels(Transform):
    """Transform of a vector that is stored with axes of size 1 around it."""

    def problem(self, tensor, shape):
        if _channels(tensor.shape) == shape[0]:
            return None
        size = shape[0]
        return f"has the shape {tensor.shape} where (1, {size}, 1, 1), (1, 1, {size}) or (1, {size}) is expected"

    def convert(self, tensor, shape):
        return tensor.reshape(shape)


_CHANNELS = _Channels()
