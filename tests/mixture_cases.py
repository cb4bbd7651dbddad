"""The reference files of the mixtures as layers with their weights set."""

import keras
import numpy as np
from reference_values import TOLERANCE, assert_close, gradients_of, inputs_of, load, value_and_gradients

from keras_polycom import GatedLAFeedForward, GatedMoAFeedForward, LAFeedForward, MoAFeedForward

VARIANTS = ("type1", "one_sided", "bi_sided", "quadratic")


def reference_layer(name, dtype):
    """The layer of a reference file, built, and the names of the file's weights in the order of the layer's."""
    case = load(name)
    meta, variant = case["meta"], next(v for v in VARIANTS if f"_{v}" in name)
    hidden, arguments = case["in_w1"].shape[1], {"activations": meta["activations"], "use_bias": False, "dtype": dtype}
    if "gate" in meta:
        arguments["gate"] = meta["gate"]
        mixing = ["v", "u"] if variant == "bi_sided" else ["u"]
    else:
        mixing = ["beta", "alpha"] if variant == "bi_sided" else ["alpha"]
    if variant == "type1":
        layer = (MoAFeedForward if "gate" in meta else LAFeedForward)(hidden, **arguments)
        projections = ["w1", "w2"]
    else:
        layer = (GatedMoAFeedForward if "gate" in meta else GatedLAFeedForward)(hidden, variant, **arguments)
        projections = ["w1", "w2", "w3"]
    layer.build(case["in_x"].shape)
    return layer, mixing + projections


def reference_values_at_layer_level(name, dtype):
    """Value, and gradients of the input and of every weight, of the layer with the file's weights."""
    case = load(name)
    layer, names = reference_layer(name, dtype)
    assert [tuple(w.shape) for w in layer.trainable_variables] == [case[f"in_{n}"].shape for n in names]

    def function(x, **weights):
        output, _ = layer.stateless_call([weights[n] for n in names], [], x)
        return output

    value, gradients = value_and_gradients(function, inputs_of(case), case["upstream"], dtype)
    # keras.layers.Dense multiplies float64 in float32 on PyTorch.
    tolerance = 1e-6 if dtype == "float64" and keras.backend.backend() == "torch" else TOLERANCE[dtype]
    assert_close(value, case["out"], tolerance, "value")
    for key, expected in gradients_of(case).items():
        assert np.any(expected != 0)
        assert_close(gradients[key], expected, tolerance, f"gradient of {key}")
