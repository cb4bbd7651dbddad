"""Several devices that share each batch: `--distribute`.

Losses and weights are those of one device, up to rounding, with two exceptions on TensorFlow and PyTorch: dropout, drop
path and random masks are drawn for each part of a batch on its own; and batch normalization looks at a part of the
batch, its moving statistics being the means over the parts. On JAX both are as on one device.
"""

from support.distribute.devices import Devices as Devices
from support.distribute.follower import experiment as experiment
from support.distribute.option import add_option as add_option
from support.distribute.option import run as run
