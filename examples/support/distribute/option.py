"""The option `--distribute`, and the devices that it asks for."""

import argparse
import contextlib
import importlib
import os
import re

import keras

from support.distribute.devices import ONE
from support.errors import UserError

HELP = (
    "share every batch among several devices. data: all devices, each with the whole model, or with data=N N of them; "
    "model=N: groups of N devices that split the model itself (JAX and transformers only; heads and hidden widths must "
    "be multiples of N). JAX: the accelerators, or on a CPU what XLA_FLAGS=--xla_force_host_platform_device_count=N "
    "makes of it; TensorFlow: the GPUs, or with data=N without any N parts of the CPU; PyTorch: the processes of "
    "`torchrun --nproc-per-node N`, which the script is then started by, and whose exit status is 1 for all that goes "
    "wrong. --batch-size stays that of all devices together (default: one device)"
)


def add_option(group):
    group.add_argument("--distribute", type=_checked, metavar="{data,data=N,model=N}", help=HELP)


def _checked(text):
    kind, number = parse(text)
    if kind is None or number == 0 or (kind == "model" and number is None):
        raise argparse.ArgumentTypeError(f"expected data, data=N or model=N with N of at least 1, got {text!r}")
    return text


def parse(text):
    """Returns the kind, `"data"` or `"model"`, and the number, `None` where there is none; twice `None` for others."""
    match = re.fullmatch(r"(data|model)(?:=(\d+))?", text)
    return (None, None) if match is None else (match[1], int(match[2]) if match[2] else None)


def run(main, options):
    """Calls `main(options, devices)` with the devices that `options.distribute` asks for.

    Raises:
        UserError: there are no such devices.
    """
    with _opened(options.distribute) as devices:
        main(options, devices)


def _opened(choice):
    processes = int(os.environ.get("WORLD_SIZE", 1))
    backend = keras.backend.backend()
    if choice is None:
        if processes > 1:
            raise UserError(
                f"this is one of {processes} processes of torchrun, which would all do the same: give --distribute "
                "data, or start the script without torchrun."
            )
        return contextlib.nullcontext(ONE)
    kind, number = parse(choice)
    if kind == "model" and backend != "jax":
        raise UserError(f"--distribute {choice} splits the model on JAX only: set KERAS_BACKEND=jax, or give data.")
    return importlib.import_module(f"support.distribute.{backend}").open_devices(choice, kind, number)
