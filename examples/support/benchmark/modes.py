"""How code is run: compiled whole, as a graph, or op by op."""

import keras

from support.errors import UserError

# Backend -> its modes, the default first.
MODES = {"jax": ("jit",), "tensorflow": ("graph", "jit", "eager"), "torch": ("eager", "compile")}
NAMES = ("jit", "graph", "eager", "compile")


def resolve(mode):
    """Returns `mode`, or the backend's default for `None`.

    Raises:
        UserError: the backend has no such mode.
    """
    backend = keras.backend.backend()
    own = MODES[backend]
    if mode is None:
        return own[0]
    if mode not in own:
        others = [name for name, modes in MODES.items() if mode in modes]
        raise UserError(
            f"--backend-mode {mode} is not a mode of {backend}, which has {' and '.join(own)}: choose one of those, or "
            f"set KERAS_BACKEND to {' or '.join(others)}."
        )
    return mode
