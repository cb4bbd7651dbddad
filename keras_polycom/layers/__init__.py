"""The layers. Each computes one of the functions in `keras_polycom.ops`."""

from keras_polycom.layers.class_token import ClassToken as ClassToken
from keras_polycom.layers.drop_path import DropPath as DropPath
from keras_polycom.layers.feed_forward import FeedForward as FeedForward
from keras_polycom.layers.feed_forward import GatedFeedForward as GatedFeedForward
from keras_polycom.layers.la_feed_forward import GatedLAFeedForward as GatedLAFeedForward
from keras_polycom.layers.la_feed_forward import LAFeedForward as LAFeedForward
from keras_polycom.layers.max_pooling import PaddedMaxPooling2D as PaddedMaxPooling2D
from keras_polycom.layers.mix_normalization import MixNormalization as MixNormalization
from keras_polycom.layers.moa_feed_forward import GatedMoAFeedForward as GatedMoAFeedForward
from keras_polycom.layers.moa_feed_forward import MoAFeedForward as MoAFeedForward
from keras_polycom.layers.parallel_layer_normalization import CPLN as CPLN
from keras_polycom.layers.parallel_layer_normalization import PLN as PLN
from keras_polycom.layers.parallel_layer_normalization import PLS as PLS
from keras_polycom.layers.parallel_layer_normalization import (
    ConvParallelLayerNormalization as ConvParallelLayerNormalization,
)
from keras_polycom.layers.parallel_layer_normalization import ParallelLayerNormalization as ParallelLayerNormalization
from keras_polycom.layers.parallel_layer_normalization import ParallelLayerScaling as ParallelLayerScaling
from keras_polycom.layers.patch_group_normalization import PatchGroupNormalization as PatchGroupNormalization
from keras_polycom.layers.poly_com import PolyCom as PolyCom
from keras_polycom.layers.poly_norm import GroupedPolyNorm as GroupedPolyNorm
from keras_polycom.layers.poly_norm import PolyNorm as PolyNorm
from keras_polycom.layers.poly_norm import PolyReLUNorm as PolyReLUNorm
from keras_polycom.layers.poly_relu import PolyPReLU as PolyPReLU
from keras_polycom.layers.poly_relu import PolyReLU as PolyReLU
from keras_polycom.layers.position_embedding import PositionEmbedding as PositionEmbedding
from keras_polycom.layers.position_embedding import SinCosPositionEmbedding as SinCosPositionEmbedding
from keras_polycom.layers.random_masking import FillMasked as FillMasked
from keras_polycom.layers.random_masking import RandomMasking as RandomMasking
