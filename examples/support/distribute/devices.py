"""The devices a script trains on, seen from one process: what its other parts may ask of them."""

import contextlib


class Devices:
    """A single device, which has nothing to share. The files named after the backends have those that do.

    Attributes:
        parts: integer. The number of parts that every batch is cut into.
        part: integer. Which of them this process computes, where there is a process for each; else 0.
        leads: bool. Whether this process reads and writes the experiment's folder and prints; all others only compute.
        names: list of strings, the devices, or `None` for whichever the backend takes.
    """

    parts = 1
    part = 0
    leads = True
    names = None

    def check_batch_size(self, batch_size):
        """Raises `UserError` for a batch that can't be cut into equal parts."""

    def check_model(self, name, is_transformer):
        """Raises `UserError` for a model that can't be distributed as was asked for."""

    def scope(self):
        """A `with` block in which models are built, compiled, trained and evaluated."""
        return contextlib.nullcontext()

    def adopt(self, model):
        """Prepares a compiled model whose optimizer is built."""

    def lead(self, function, *args):
        """Returns in every process what `function(*args)` returned in the leading one, which alone calls it."""
        return function(*args)

    def spread(self, model):
        """Gives all processes the state of the leading one: of the model and of its optimizer."""

    def share(self, batches):
        """The part of the batches that this process computes."""
        return batches

    def mean(self, numbers):
        """The mean over the processes of every number of a dict, whose parts are of one size."""
        return numbers

    def settle(self, model):
        """Brings together what a process follows on its own in an epoch: the statistics of batch normalization."""

    def set_state(self, variable, draw):
        """Sets the state of a random generator to `draw(part)`, where it draws for a part of the batch alone."""
        variable.assign(draw(self.part))

    def evaluate(self, batches, evaluate):
        """Returns `evaluate(batches)`, a dict of means over the images of the batches."""
        return evaluate(batches)


ONE = Devices()
