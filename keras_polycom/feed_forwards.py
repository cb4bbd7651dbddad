"""Feed-forward layers by name, for the `feed_forward=` argument of models and scripts."""

from keras_polycom.registry import Registry

registry = Registry("feed-forward layer")

register = registry.register
names = registry.names
get = registry.get
serialize = registry.serialize


def hidden_width(width, gated=False):
    """The papers' hidden width for a model of `width`: `4 width`, or `int(8 width / 3)` for a gated layer.

    Both have the same number of parameters, the gated layer having three projections instead of two.

    >>> from keras_polycom import feed_forwards
    >>> feed_forwards.hidden_width(768), feed_forwards.hidden_width(768, gated=True)
    (3072, 2048)

    Reference: Wang et al., arXiv 2605.26647, section 2 (equations 1 and 2).
    """
    return 8 * width // 3 if gated else 4 * width


def is_gated(identifier, **arguments):
    """Whether the layer that `identifier` stands for has a gate projection beside the up projection.

    `arguments` are those a maker needs besides `hidden_dim`, as for `get`.
    """
    return bool(getattr(get(identifier, **{"hidden_dim": 1, **arguments}), "gated", False))
