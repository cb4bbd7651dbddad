"""The formulas, as pure functions of tensors. See each function's docstring for its equation."""

from keras_polycom.ops.activation_functions import ACTIVATION_FUNCTIONS as ACTIVATION_FUNCTIONS
from keras_polycom.ops.activation_functions import gelu as gelu
from keras_polycom.ops.activation_functions import identity as identity
from keras_polycom.ops.activation_functions import leaky_relu as leaky_relu
from keras_polycom.ops.activation_functions import relu2 as relu2
from keras_polycom.ops.concrete import check_index_range as check_index_range
from keras_polycom.ops.poly_com import poly_com as poly_com
from keras_polycom.ops.poly_norm import grouped_poly_norm as grouped_poly_norm
from keras_polycom.ops.poly_norm import poly_norm as poly_norm
from keras_polycom.ops.poly_norm import poly_relu_norm as poly_relu_norm
from keras_polycom.ops.poly_relu import poly_prelu as poly_prelu
from keras_polycom.ops.poly_relu import poly_relu as poly_relu
