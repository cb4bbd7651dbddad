"""Other activations and normalizations for models that exist already."""

from keras_polycom.surgery.in_place import SwappedModel as SwappedModel
from keras_polycom.surgery.in_place import replace_activations_in_place as replace_activations_in_place
from keras_polycom.surgery.replace import find_activations as find_activations
from keras_polycom.surgery.replace import find_normalizations as find_normalizations
from keras_polycom.surgery.replace import replace_activations as replace_activations
from keras_polycom.surgery.replace import replace_normalizations as replace_normalizations
from keras_polycom.surgery.report import Report as Report
from keras_polycom.surgery.report import Site as Site
