"""The layers. Each computes one of the functions in `keras_polycom.ops`."""

from keras_polycom.layers.feed_forward import FeedForward as FeedForward
from keras_polycom.layers.feed_forward import GatedFeedForward as GatedFeedForward
from keras_polycom.layers.poly_com import PolyCom as PolyCom
from keras_polycom.layers.poly_norm import GroupedPolyNorm as GroupedPolyNorm
from keras_polycom.layers.poly_norm import PolyNorm as PolyNorm
from keras_polycom.layers.poly_norm import PolyReLUNorm as PolyReLUNorm
from keras_polycom.layers.poly_relu import PolyPReLU as PolyPReLU
from keras_polycom.layers.poly_relu import PolyReLU as PolyReLU
