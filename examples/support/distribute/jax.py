"""Several devices on JAX: `keras.distribution` cuts the arrays, and one compiled step computes with all of them."""

import contextlib

import keras
import numpy as np

from keras_polycom import models
from support.distribute.shares import SharedBatches
from support.errors import UserError

FORCE = "XLA_FLAGS=--xla_force_host_platform_device_count=4"


class JaxDevices(SharedBatches):
    """Args: the names of the devices, and into how many parts each group of them splits a model, 1 for not at all."""

    def __init__(self, names, split):
        self.names = names
        self.parts = len(names) // split
        self.split = split
        if split == 1:
            self.distribution = keras.distribution.DataParallel(devices=names)
        else:
            mesh = keras.distribution.DeviceMesh((self.parts, split), ("batch", "model"), np.array(names))
            self.distribution = keras.distribution.ModelParallel(
                layout_map=models.layout_map(mesh), batch_dim_name="batch"
            )

    def check_model(self, name, is_transformer):
        if self.split > 1 and not is_transformer:
            raise UserError(f"--distribute model={self.split} splits transformers only, not {name}: give data.")

    def scope(self):
        return self.distribution.scope()


def open_devices(choice, kind, number):
    """A `with` block that is given `JaxDevices`."""
    names = keras.distribution.list_devices()
    split = number if kind == "model" else 1
    if kind == "data" and number is not None:
        if number > len(names):
            raise _too_few(choice, names)
        names = names[:number]
    if len(names) == 1 or split == 1 == number or len(names) % split:
        raise _too_few(choice, names)
    return contextlib.nullcontext(JaxDevices(names, split))


def _too_few(choice, names):
    seen = f"{len(names)} devices ({names[0]} to {names[-1]})" if len(names) > 1 else f"one device ({names[0]})"
    return UserError(
        f"--distribute {choice} does not go with {seen}: leave it out, give a number that fits, or on a CPU set "
        f"{FORCE} before the script starts."
    )
