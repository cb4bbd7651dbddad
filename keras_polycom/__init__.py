"""Learnable nonlinearities for Keras 3."""

from keras_polycom import activations as activations
from keras_polycom import config as config
from keras_polycom import feed_forwards as feed_forwards
from keras_polycom import layers as layers
from keras_polycom import models as models
from keras_polycom import normalizations as normalizations
from keras_polycom import ops as ops
from keras_polycom.layers import FeedForward as FeedForward
from keras_polycom.layers import GatedFeedForward as GatedFeedForward
from keras_polycom.layers import GroupedPolyNorm as GroupedPolyNorm
from keras_polycom.layers import PolyCom as PolyCom
from keras_polycom.layers import PolyNorm as PolyNorm
from keras_polycom.layers import PolyPReLU as PolyPReLU
from keras_polycom.layers import PolyReLU as PolyReLU
from keras_polycom.layers import PolyReLUNorm as PolyReLUNorm

__version__ = "0.1.0"
