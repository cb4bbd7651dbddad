"""Learnable nonlinearities for Keras 3."""

from keras_polycom import activations as activations
from keras_polycom import config as config
from keras_polycom import convert as convert
from keras_polycom import exporting as exporting
from keras_polycom import feed_forwards as feed_forwards
from keras_polycom import layers as layers
from keras_polycom import models as models
from keras_polycom import normalizations as normalizations
from keras_polycom import ops as ops
from keras_polycom import surgery as surgery
from keras_polycom import theory as theory
from keras_polycom.exporting import export_onnx as export_onnx
from keras_polycom.layers import CPLN as CPLN
from keras_polycom.layers import PLN as PLN
from keras_polycom.layers import PLS as PLS
from keras_polycom.layers import ClassToken as ClassToken
from keras_polycom.layers import ConvParallelLayerNormalization as ConvParallelLayerNormalization
from keras_polycom.layers import DropPath as DropPath
from keras_polycom.layers import FeedForward as FeedForward
from keras_polycom.layers import FillMasked as FillMasked
from keras_polycom.layers import GatedFeedForward as GatedFeedForward
from keras_polycom.layers import GatedLAFeedForward as GatedLAFeedForward
from keras_polycom.layers import GatedMoAFeedForward as GatedMoAFeedForward
from keras_polycom.layers import GroupedPolyNorm as GroupedPolyNorm
from keras_polycom.layers import LAFeedForward as LAFeedForward
from keras_polycom.layers import MixNormalization as MixNormalization
from keras_polycom.layers import MoAFeedForward as MoAFeedForward
from keras_polycom.layers import PaddedMaxPooling2D as PaddedMaxPooling2D
from keras_polycom.layers import ParallelLayerNormalization as ParallelLayerNormalization
from keras_polycom.layers import ParallelLayerScaling as ParallelLayerScaling
from keras_polycom.layers import PatchGroupNormalization as PatchGroupNormalization
from keras_polycom.layers import PolyCom as PolyCom
from keras_polycom.layers import PolyNorm as PolyNorm
from keras_polycom.layers import PolyPReLU as PolyPReLU
from keras_polycom.layers import PolyReLU as PolyReLU
from keras_polycom.layers import PolyReLUNorm as PolyReLUNorm
from keras_polycom.layers import PositionEmbedding as PositionEmbedding
from keras_polycom.layers import RandomMasking as RandomMasking
from keras_polycom.layers import SinCosPositionEmbedding as SinCosPositionEmbedding
from keras_polycom.surgery import replace_activations as replace_activations
from keras_polycom.surgery import replace_normalizations as replace_normalizations

__version__ = "0.1.0"
