"""Models whose activation, feed-forward layer and normalization can be swapped."""

from keras_polycom.models.mae import MAE as MAE
from keras_polycom.models.resnet import ResNet50 as ResNet50
from keras_polycom.models.sharding import layout_map as layout_map
from keras_polycom.models.vit import ViT as ViT
