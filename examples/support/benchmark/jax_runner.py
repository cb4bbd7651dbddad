"""JAX: everything in jax.jit."""

import hashlib

import jax
import numpy as np

from support.benchmark.stopwatch import Measurement


class Runner:
    """See `runners`."""

    saved_remark = (
        "saved: the residuals of jax.vjp, where arrays of one value count as that value and equal arrays once; inside "
        "of a larger compiled function XLA may keep fewer."
    )

    def __init__(self, mode):
        del mode  # there is one

    synchronise = staticmethod(jax.block_until_ready)

    def trace(self, case):
        jax.eval_shape(_fresh(case), case.learnable, case.fixed)

    def measurements(self, case, upstream):
        function = _fresh(case)
        forward = jax.jit(function)
        pull_back = jax.jit(lambda learnable, fixed: _vjp(function, learnable, fixed)[1])
        backward = jax.jit(lambda pulled_back, upstream: pulled_back(upstream))

        @jax.jit
        def both(learnable, fixed, upstream):
            y, pulled_back = _vjp(function, learnable, fixed)
            return y, pulled_back(upstream)

        arguments = (case.learnable, case.fixed)
        return {
            "both": Measurement(lambda _: both(*arguments, upstream)),
            "forward": Measurement(lambda _: forward(*arguments)),
            "backward": Measurement(
                lambda pulled_back: backward(pulled_back, upstream), setup=lambda: pull_back(*arguments)
            ),
        }

    def saved_bytes(self, case, upstream):
        del upstream
        function = _fresh(case)
        pull_back = jax.jit(lambda learnable, fixed: _vjp(function, learnable, fixed)[1])
        sizes = {}
        for leaf in jax.tree.leaves(pull_back(case.learnable, case.fixed)):
            values = np.asarray(leaf)
            if values.size and (values == values.flat[0]).all():
                values = values.ravel()[:1]
            content = hashlib.sha256(np.ascontiguousarray(values).view(np.uint8)).hexdigest()
            sizes[content, values.shape] = values.nbytes
        return sum(sizes.values())


def _vjp(function, learnable, fixed):
    return jax.vjp(lambda *values: function(values, fixed), *learnable)


def _fresh(case):
    """The function as a new object: JAX caches traces by the function, and these depend on the road too."""
    return lambda learnable, fixed: case.function(*learnable, *fixed)
