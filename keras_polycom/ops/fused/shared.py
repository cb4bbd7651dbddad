"""What the files of the backends have in common: the way to the formulas, and reasons not to take an input."""

import importlib

from keras_polycom import config
from keras_polycom.ops.activation_functions import ACTIVATION_FUNCTIONS

# Below it the powers of tiny rows decide the result, and they leave the range of float32.
SMALLEST_EPSILON = 1e-20

# Fewer numbers than that are not worth compiling for.
WORTHWHILE = 64 * 1024

# XLA on a CPU sums along memory one number at a time, and down a column many at once: a row is summed as that many
# pieces, whose sums are then added up.
PIECES = (8, 12, 6, 4, 16, 10, 5, 7, 3)

# Down a whole column every number is on a page of memory of its own: so many rows are summed at a time.
ROWS = 8

_FUNCTIONS_OF_A_NUMBER = frozenset(ACTIVATION_FUNCTIONS.values())


def formulas(name):
    """The file `keras_polycom.ops.NAME`; not to be imported at the top, as it imports the dispatcher."""
    return importlib.import_module(f"keras_polycom.ops.{name}")


def epsilon_refusal(epsilon):
    return f"epsilon={epsilon} is below {SMALLEST_EPSILON}" if epsilon < SMALLEST_EPSILON else None


def size_refusal(size):
    """Of the number of numbers; an explicit wish for the faster version is met at any size."""
    return "its input is too small for it to pay" if size < WORTHWHILE and config.fast_roads() == "auto" else None


def runs_refusal(channels, runs):
    return f"{runs} runs of {channels} channels are of unequal sizes" if channels % runs else None


def dictionary_refusal(*dictionaries, known=_FUNCTIONS_OF_A_NUMBER):
    taken = all(function in known for dictionary in dictionaries for function in dictionary)
    return None if taken else "its dictionary holds more than the functions of the papers"


class Mixtures:
    """The mixtures of a backend that takes them all the same way.

    Args:
        mix: function `(formula, branches, weights, dictionaries)` that returns
            `formula(*branches, *weights, *dictionaries)`.
        refusal: function of a branch that returns why it cannot be taken, or `None`.
    """

    def __init__(self, mix, refusal):
        self._mix = mix
        self._refusal = refusal

    def mix_activations(self, h, weights, activations):
        """See `keras_polycom.ops.mix_activations`."""
        return self._mixed("_mix_activations", (h,), (weights,), activations)

    def mix_activations_refuses(self, h, weights, activations):
        return self._refuses(h, activations)

    def mix_one_sided(self, y, z, weights, activations):
        """See `keras_polycom.ops.mix_one_sided`."""
        return self._mixed("_mix_one_sided", (y, z), (weights,), activations)

    def mix_one_sided_refuses(self, y, z, weights, activations):
        return self._refuses(y, activations)

    def mix_bi_sided(self, y, z, gate_weights, up_weights, activations, up_activations):
        """See `keras_polycom.ops.mix_bi_sided`."""
        return self._mixed("_mix_bi_sided", (y, z), (gate_weights, up_weights), activations, up_activations)

    def mix_bi_sided_refuses(self, y, z, gate_weights, up_weights, activations, up_activations):
        return self._refuses(y, activations, up_activations)

    def mix_quadratic(self, y, z, weights, activations, up_activations):
        """See `keras_polycom.ops.mix_quadratic`."""
        return self._mixed("_mix_quadratic", (y, z), (weights,), activations, up_activations)

    def mix_quadratic_refuses(self, y, z, weights, activations, up_activations):
        return self._refuses(y, activations, up_activations)

    def _mixed(self, name, branches, weights, *dictionaries):
        return self._mix(getattr(formulas("mix_activations"), name), branches, weights, dictionaries)

    def _refuses(self, branch, *dictionaries):
        return dictionary_refusal(*dictionaries) or self._refusal(branch)
