"""PolyNorm and PolyReLU of the public implementations into ours."""

from typing import NamedTuple

import numpy as np

from keras_polycom.convert.rows import Row
from keras_polycom.convert.state_dicts import read_state_dict
from keras_polycom.convert.transfer import transfer
from keras_polycom.convert.transforms import Rearranged, Transform
from keras_polycom.layers.poly_norm import GroupedPolyNorm, PolyNorm, PolyReLUNorm
from keras_polycom.layers.poly_relu import PolyReLU

EPSILON = 1e-6  # of every public implementation
ORDERS = ("cubic_first", "linear_first")


class Convention(NamedTuple):
    """How an implementation stores and uses its coefficients.

    Attributes:
        order: `"cubic_first"`, `"linear_first"`, or `None` where both are in use.
        layers: the classes of ours its state dicts belong to.
        settings: arguments those layers must have.
        grouped_bias_limit: float or `None`, to which the bias of a per-expert layer is clipped.
    """

    order: str | None
    layers: tuple
    settings: dict
    grouped_bias_limit: float | None = None

    def bias_limit(self, grouped):
        return self.grouped_bias_limit if grouped else None


PLAIN = {"coefficient_transform": None, "output_scale": None}
STABILISED = {"coefficient_transform": "sigmoid", "output_scale": 0.5}
CONVENTIONS = {
    "polycom": Convention(None, (PolyNorm, PolyReLU, PolyReLUNorm), PLAIN),
    "liger": Convention("cubic_first", (PolyNorm,), PLAIN),
    "motif": Convention("cubic_first", (PolyNorm, GroupedPolyNorm), STABILISED, 0.5),
}


def load_polynomial(layer, state, *, source, coefficient_order=None):
    """Loads the coefficients of a public PolyNorm or PolyReLU into a layer of ours.

    | source | `weight` | `bias` | ours |
    |---|---|---|---|
    | `"polycom"` | (3,), in either order | (1,) | `PolyNorm`, `PolyReLU`, `PolyReLUNorm` |
    | `"liger"` | (3,), cubic first | () | `PolyNorm` |
    | `"motif"`, dense | (3,), cubic first, before the sigmoid | (1,), not clipped | `PolyNorm` [1] |
    | `"motif"`, experts | (experts, 3), the same | (experts, 1), before the clipping | `GroupedPolyNorm` [2] |

    [1] with `coefficient_transform="sigmoid", output_scale=0.5`; [2] with `bias_limit=0.5` besides.

    `weight` becomes `coefficients`, ascending; `bias` of shape () or (1,), and (experts,) or (experts, 1), becomes
    `bias`. A layer whose settings make something else of the numbers is refused; a `bias_limit` only matters where it
    clips this bias: Motif's dense layers, unclipped, fit a layer with `bias_limit=0.5` if the bias is within it.

    Args:
        layer: `PolyNorm`, `GroupedPolyNorm`, `PolyReLU` or `PolyReLUNorm`.
        state: mapping or path, as for `read_state_dict`, whose `prefix` takes one layer out of a whole model.
        source: string, one of those above.
        coefficient_order: `"cubic_first"` (the highest power first) or `"linear_first"`. Needed for `"polycom"`, where
            the same names hold either, and three numbers do not tell; for the others known. Defaults to `None`.

    Returns:
        A `Summary` of what was loaded.

    Raises:
        ValueError: an unknown source, no order where one is needed or another than the source's; or any tensor missing,
            unused or misshapen and any setting that does not fit, all of them in one message.
        TypeError: not a layer of the source's kind.
        ImportError, FileNotFoundError: as `read_state_dict`.

    Example:

    >>> import numpy as np, keras_polycom
    >>> from keras_polycom import convert
    >>> layer = keras_polycom.PolyNorm()
    >>> state = {"weight": np.array([0.5, 0.25, 0.125]), "bias": np.array(1.0)}
    >>> convert.load_polynomial(layer, state, source="liger").loaded
    ('coefficients', 'bias')
    >>> layer.get_weights()[0].tolist(), layer.get_weights()[1].tolist()
    ([0.125, 0.25, 0.5], [1.0])

    Source: PolyCom's README and arXiv 2411.03884, listing 1; Liger kernels, `poly_norm.py`; Motif 3's published model.
    """
    state = read_state_dict(state)
    convention, order = _convention(source, coefficient_order)
    if not isinstance(layer, convention.layers):
        names = " or ".join(kind.__name__ for kind in convention.layers)
        raise TypeError(f"State dicts of source={source!r} are for a {names}. Received: {type(layer).__name__}")
    return transfer(
        layer.name,
        {"coefficients": layer.coefficients, "bias": layer.bias},
        [Row("weight", "coefficients", _COEFFICIENTS[order]), Row("bias", "bias", _BIAS)],
        state,
        problems=_setting_problems(layer, convention, state, source),
    )


def make_poly_norm(state, *, source, coefficient_order=None, **arguments):
    """Builds the `PolyNorm` or `GroupedPolyNorm` a state dict belongs to, and loads it: see `load_polynomial`.

    The order and the number of groups are read off `weight`; the source decides about sigmoid, clipping and scale.

    Args:
        state, source, coefficient_order: as for `load_polynomial`.
        **arguments: other arguments of the layer: `axis`, `name`, `dtype`, regularizers, ...

    Returns:
        A `PolyNorm`, or a `GroupedPolyNorm` for `weight` of shape (experts, order).

    Raises:
        ValueError, TypeError, ImportError, FileNotFoundError: as `load_polynomial`.

    Example:

    >>> import numpy as np
    >>> from keras_polycom import convert
    >>> state = {"weight": np.zeros((4, 3)), "bias": np.zeros((4, 1))}
    >>> layer = convert.make_poly_norm(state, source="motif")
    >>> type(layer).__name__, layer.num_groups, layer.order, layer.coefficient_transform, layer.bias_limit
    ('GroupedPolyNorm', 4, 3, 'sigmoid', 0.5)
    """
    state = read_state_dict(state)
    convention, _ = _convention(source, coefficient_order)
    *groups, order = _weight_shape(state)
    settings = {**convention.settings, "bias_limit": convention.bias_limit(bool(groups))}
    layer = (GroupedPolyNorm if groups else PolyNorm)(*groups, **{"order": order, **settings, **arguments})
    load_polynomial(layer, state, source=source, coefficient_order=coefficient_order)
    return layer


def make_poly_relu(state, *, coefficient_order, **arguments):
    """Builds the `PolyReLU` a state dict of PolyCom's belongs to, and loads it: see `load_polynomial`.

    Args:
        state: as for `load_polynomial`.
        coefficient_order: `"cubic_first"` or `"linear_first"`.
        **arguments: other arguments of the layer: `name`, `dtype`, regularizers, ...

    Returns:
        A `PolyReLU`.

    Raises:
        ValueError, ImportError, FileNotFoundError: as `load_polynomial`.

    Example:

    >>> import numpy as np
    >>> from keras_polycom import convert
    >>> state = {"weight": np.array([1.0, 2.0, 3.0]), "bias": np.zeros(1)}
    >>> convert.make_poly_relu(state, coefficient_order="cubic_first").get_weights()[0].tolist()
    [3.0, 2.0, 1.0]
    """
    state = read_state_dict(state)
    layer = PolyReLU(**{"order": _weight_shape(state)[-1], **arguments})
    load_polynomial(layer, state, source="polycom", coefficient_order=coefficient_order)
    return layer


def _convention(source, coefficient_order):
    """The convention of a source and the order that holds."""
    if source not in CONVENTIONS:
        raise ValueError(f"`source` must be one of {', '.join(map(repr, CONVENTIONS))}. Received: {source!r}")
    if coefficient_order not in (None, *ORDERS):
        raise ValueError(
            f"`coefficient_order` must be one of {', '.join(map(repr, ORDERS))}. Received: {coefficient_order!r}"
        )
    convention = CONVENTIONS[source]
    if convention.order is None and coefficient_order is None:
        raise ValueError(
            f"State dicts of source={source!r} hold the coefficients in either order, and nothing in them tells which. "
            "Give coefficient_order='cubic_first' for the class of PolyCom's README, 'linear_first' for the listing of "
            "the paper."
        )
    if None not in (convention.order, coefficient_order) and convention.order != coefficient_order:
        raise ValueError(
            f"Coefficients of source={source!r} are stored {convention.order}. Received: "
            f"coefficient_order={coefficient_order!r}"
        )
    return convention, coefficient_order or convention.order


def _weight_shape(state):
    shape = state["weight"].shape if "weight" in state else None
    if shape is None or len(shape) not in (1, 2):
        raise ValueError(
            f"Expected `weight` of shape (order,) or (experts, order), and `bias`. Received: "
            f"{', '.join(f'{name} {array.shape}' for name, array in state.items())}"
        )
    return shape


def _setting_problems(layer, convention, state, source):
    problems = []
    for name, expected in {**convention.settings, "epsilon": EPSILON}.items():
        own = getattr(layer, name, expected)  # PolyReLU has none of these
        if own != expected and not (name == "output_scale" and {own, expected} == {None, 1}):
            problems.append(f"the layer has {name}={own!r}, the weights of source={source!r} are for {expected!r}")
    own, theirs = getattr(layer, "bias_limit", None), convention.bias_limit(isinstance(layer, GroupedPolyNorm))
    bias = state.get("bias")
    if bias is not None and not np.array_equal(_clipped(bias, own), _clipped(bias, theirs)):
        problems.append(
            f"the layer has bias_limit={own}, the weights of source={source!r} are for {theirs}, and the bias goes to "
            f"{np.abs(bias).max():.3g}"
        )
    return problems


def _clipped(bias, limit):
    return bias if limit is None else np.clip(bias, -limit, limit)


# The one place where the order of the coefficients is turned round: ours ascend.
_COEFFICIENTS = {
    "cubic_first": Rearranged(lambda shape: shape, lambda tensor, shape: tensor[..., ::-1]),
    "linear_first": Rearranged(lambda shape: shape, lambda tensor, shape: tensor),
}


class _Bias(Transform):
    """Transform of a bias, which some store as () or (groups, 1) and others as (1,) or (groups,)."""

    def problem(self, tensor, shape):
        fitting = [shape, (*shape, 1)] + ([()] if shape == (1,) else [])
        return None if tensor.shape in fitting else f"has the shape {tensor.shape} where {fitting[-1]} is expected"

    def convert(self, tensor, shape):
        return tensor.reshape(shape)


_BIAS = _Bias()
