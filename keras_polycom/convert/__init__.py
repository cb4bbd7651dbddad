"""Weights from PyTorch implementations into the layers and models of this package."""

from keras_polycom.convert.mae import load_mae as load_mae
from keras_polycom.convert.mae import make_mae as make_mae
from keras_polycom.convert.parallel_layer_norm import load_parallel_layer_norm as load_parallel_layer_norm
from keras_polycom.convert.parallel_layer_norm import make_parallel_layer_norm as make_parallel_layer_norm
from keras_polycom.convert.polynomials import load_polynomial as load_polynomial
from keras_polycom.convert.polynomials import make_poly_norm as make_poly_norm
from keras_polycom.convert.polynomials import make_poly_relu as make_poly_relu
from keras_polycom.convert.positions import resize_position_table as resize_position_table
from keras_polycom.convert.resnet import load_resnet as load_resnet
from keras_polycom.convert.resnet import make_resnet as make_resnet
from keras_polycom.convert.state_dicts import read_state_dict as read_state_dict
from keras_polycom.convert.transfer import Summary as Summary
from keras_polycom.convert.vit import load_vit as load_vit
from keras_polycom.convert.vit import make_vit as make_vit
