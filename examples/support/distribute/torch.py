"""Several devices on PyTorch: one process for each, started by torchrun, which add up their gradients."""

import contextlib
import os
import sys
import time

import torch
from torch import distributed

from support.distribute.shares import Share, SharedBatches
from support.errors import Interrupted, UserError, sentence_of

# Gradients that are sent together: enough for a network to be used well, little enough to need no second model's size.
BUCKET = 2**23
# Seconds an error of a process that does not lead waits to be told. Most are everybody's: then the leading process
# tells it, and torchrun ends the others.
PATIENCE = 15


class TorchDevices(SharedBatches):
    """The processes of a process group, of which this one has the device `device`."""

    def __init__(self, device):
        self.device = device
        self.part = distributed.get_rank()
        self.parts = distributed.get_world_size()
        self.leads = self.part == 0
        self.names = [f"{device.type} of process {rank}" for rank in range(self.parts)]

    def adopt(self, model):
        """Has the optimizer average the gradients over the processes before it does anything else with them."""
        apply = model.optimizer.apply

        def apply_mean(gradients, trainable_variables=None):
            _add_up([g for g in gradients if g is not None], self.parts)
            return apply(gradients, trainable_variables)

        model.optimizer.apply = apply_mean

    def lead(self, function, *args):
        told = [function(*args) if self.leads else None]
        _together(distributed.broadcast_object_list, told, device=self.device)
        return told[0]

    def spread(self, model):
        with torch.no_grad():
            for variable in (*model.variables, *model.optimizer.variables):
                value = variable.value
                sent = value.detach().clone() if value.is_floating_point() else value.to(torch.int64)
                _together(distributed.broadcast, sent, 0)
                value.copy_(sent)

    def share(self, batches):
        return Share(batches, self.part, self.parts)

    def mean(self, numbers):
        values = torch.tensor([float(number) for number in numbers.values()], dtype=torch.float64, device=self.device)
        _together(distributed.all_reduce, values)
        return dict(zip(numbers, (values / self.parts).tolist(), strict=True))

    def settle(self, model):
        statistics = [v.value for v in model.non_trainable_weights if v.value.is_floating_point()]
        with torch.no_grad():
            _add_up(statistics, self.parts)


def _add_up(tensors, parts):
    """Replaces tensors by their means over the processes, many at a time."""
    bucket, size = [], 0
    for tensor in tensors:
        if bucket and (size + tensor.numel() > BUCKET or tensor.dtype != bucket[0].dtype):
            _add_up_bucket(bucket, parts)
            bucket, size = [], 0
        bucket.append(tensor)
        size += tensor.numel()
    if bucket:
        _add_up_bucket(bucket, parts)


def _add_up_bucket(tensors, parts):
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    _together(distributed.all_reduce, flat)
    flat /= parts
    for tensor, mean in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(mean.view_as(tensor))


def _together(collective, *args, **kwargs):
    """A call that all processes make at the same time, and that fails where one of them has ended."""
    try:
        collective(*args, **kwargs)
    except RuntimeError as error:
        reason = sentence_of(error).split(". ")[0]
        raise UserError(
            f"another process of torchrun has ended or is out of reach ({reason}): see what it says, put that right, "
            "and start again."
        ) from error


@contextlib.contextmanager
def open_devices(choice, kind, number):
    """A `with` block that is given `TorchDevices`. In all processes but the first, what is printed is dropped."""
    processes = int(os.environ.get("WORLD_SIZE", 1))
    if processes == 1 or number not in (None, processes):
        raise UserError(
            f"--distribute {choice} asks for {'several' if number is None else number} processes, and there "
            f"{'is one' if processes == 1 else f'are {processes}'}: start the script by `torchrun --nproc-per-node "
            f"{number or 2} SCRIPT --distribute data`, or leave --distribute out."
        )
    device = _own_device()
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    devices = TorchDevices(device)
    with contextlib.nullcontext() if devices.leads else _following():
        yield devices
        _together(distributed.barrier)
    distributed.destroy_process_group()


def _own_device():
    if not torch.cuda.is_available():
        return torch.device("cpu")
    local = int(os.environ["LOCAL_RANK"])
    if local >= torch.cuda.device_count():
        raise UserError(
            f"torchrun started more processes on this machine than it has GPUs, {torch.cuda.device_count()}: give that "
            "number as --nproc-per-node."
        )
    torch.cuda.set_device(local)  # Keras puts everything on the current one
    return torch.device("cuda", local)


@contextlib.contextmanager
def _following():
    with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
        try:
            yield
        except (KeyboardInterrupt, Interrupted):
            _fall_silent()
            raise
        except Exception:
            try:
                time.sleep(PATIENCE)
            except KeyboardInterrupt:
                _fall_silent()
            raise


def _fall_silent():
    sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  until the process ends
