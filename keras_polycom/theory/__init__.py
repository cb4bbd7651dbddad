"""The theorems of [PLN], executable: each function returns the Keras model that the proof constructs.

Reference: Ni et al., Parallel Layer Normalization for Universal Approximation, arXiv 2505.13142v3. In its words an
LN[n]-Net alternates affine maps with layer normalizations of width n, a PLN[n]-Net with parallel ones; LS and PLS are
the same without centring. `epsilon=0` follows the paper's convention LN(c 1) = 0, LS(0) = 0.

The models take any dtype. On PyTorch, Keras multiplies float64 matrices in float32, which bounds the digits there.
"""

from keras_polycom.theory.convolutions import fold_into_convolutions as fold_into_convolutions
from keras_polycom.theory.elementary import phi_network as phi_network
from keras_polycom.theory.elementary import sign_network as sign_network
from keras_polycom.theory.equivalences import as_layer_norm_network as as_layer_norm_network
from keras_polycom.theory.equivalences import as_layer_scaling_network as as_layer_scaling_network
from keras_polycom.theory.equivalences import join_networks as join_networks
from keras_polycom.theory.equivalences import sum_of_networks as sum_of_networks
from keras_polycom.theory.lipschitz import lipschitz_network as lipschitz_network
from keras_polycom.theory.networks import Affine as Affine
from keras_polycom.theory.networks import Normalization as Normalization
from keras_polycom.theory.networks import build_network as build_network
from keras_polycom.theory.networks import read_network as read_network
