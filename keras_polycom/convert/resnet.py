"""Residual networks of timm and torchvision into `models.ResNet50`."""

import re

import keras

from keras_polycom.convert import rows
from keras_polycom.convert.state_dicts import read_state_dict
from keras_polycom.convert.transfer import beginnings, check_layers, epsilon_problems, named_weights, transfer
from keras_polycom.convert.vit import refuse_read_off
from keras_polycom.models.configured import check_data_format
from keras_polycom.models.resnet import ResNet50

EPSILON = 1e-5  # of the batch norms, in timm and torchvision


def load_resnet(model, state, *, head=True, epsilon=EPSILON, ignore=()):
    """Loads a residual network with bottleneck blocks of timm or torchvision into a `ResNet50`; both have these names.

    | timm, torchvision | ours |
    |---|---|
    | `conv1`, `bn1` | `stem_convolution`, `stem_norm` |
    | `layer1.0.conv1`, `bn1` (2, 3 alike) | `stage_0_block_0_convolution_1`, `stage_0_block_0_norm_1` |
    | `layer1.0.downsample.0`, `downsample.1` | `stage_0_block_0_shortcut_convolution`, `..._shortcut_norm` |
    | `fc` | `head` |
    | `weight`, `bias` of a batch norm | `gamma`, `beta` |
    | `running_mean`, `running_var` | `moving_mean`, `moving_variance` |
    | `num_batches_tracked` | not used |

    Everything is compared before anything is written: a call that fails leaves the model as it was. Weights of learned
    activations keep their values: a model with `activation="poly_norm"` can start from one trained with ReLU.
    ResNet-50, 101 and 152 fit in their version 1.5, with the stride on the 3x3 convolution; basic blocks (18, 34), wide
    and grouped ones, and deep stems do not, and are refused.

    Args:
        model: `keras_polycom.models.ResNet50`, or a model with its layers.
        state: mapping or path, as for `read_state_dict`.
        head: bool. `False` leaves the classifier out, on both sides: the model's keeps its values. Defaults to `True`.
        epsilon: float. That of the batch norms the weights were trained with; the model's must have the same. Defaults
            to `1e-5`.
        ignore: names, or beginnings of names, of tensors to leave out. Defaults to none.

    Returns:
        A `Summary` of what was loaded, kept and left out.

    Raises:
        ValueError: any tensor missing, unused or misshapen, any weight without a tensor, any batch norm with another
            epsilon: all of them in one message.
        ImportError, FileNotFoundError, TypeError: as `read_state_dict`.

    Example:

    >>> import numpy as np
    >>> import keras_polycom
    >>> from keras_polycom import convert
    >>> model = keras_polycom.models.ResNet50(image_shape=(32, 32, 3), depths=(1,), widths=(4,), num_classes=None)
    >>> convert.load_resnet(model, {"conv1.weight": np.zeros((4, 3, 7, 7))})
    Traceback (most recent call last):
        ...
    ValueError: The state dict does not fit 'res...' (24 missing, 0 unused, 0 misshapen). Nothing was written...

    Source of the names: torchvision, `resnet.py`; timm, `resnet.py`.
    """
    state = read_state_dict(state)
    check_layers(model, "ResNet50", "stem_convolution", "stem_norm")
    weights, activations = named_weights(model)
    kept, left_out, table = list(activations), beginnings(ignore), _rows(weights)
    if not head:
        kept += [path for path in weights if path.startswith("head/")]
        weights = {path: variable for path, variable in weights.items() if not path.startswith("head/")}
        left_out.append("fc.")
    return transfer(
        model.name,
        weights,
        table,
        state,
        kept=kept,
        left_out=left_out,
        problems=epsilon_problems(model, keras.layers.BatchNormalization, epsilon),
        hints=[(r"\b(fc\.|head/)", "To leave the classifier out, on both sides: head=False.")] if head else [],
    )


def make_resnet(state, *, image_shape=None, head=True, epsilon=EPSILON, ignore=(), **arguments):
    """Builds the `ResNet50` a state dict of timm or torchvision belongs to, and loads it: see `load_resnet`.

    Read off the state dict: channels, blocks per stage, widths, the stem (a 7x7 convolution is the one for ImageNet, a
    3x3 one that for small images) and number of classes.

    Args:
        state: mapping or path, as for `read_state_dict`.
        image_shape: triple of integers in the order of the data format; height and width may be `None`. Defaults to
            224 x 224.
        head: bool. `False` leaves the state dict's classifier out; with `num_classes=...` the model then has a fresh
            one. Defaults to `True`.
        epsilon, ignore: as for `load_resnet`.
        **arguments: the arguments of `ResNet50` that are not read off: `activation`, `pooling`, `data_format`, `dtype`,
            `name`, ...

    Returns:
        A `ResNet50`.

    Raises:
        ValueError: as `load_resnet`; an argument that is read off; no bottleneck blocks.

    Example:

    >>> import numpy as np
    >>> from keras_polycom import convert
    >>> convert.make_resnet({"conv1.weight": np.zeros((4, 3, 7, 7)), "layer1.0.conv2.weight": np.zeros((4, 4, 3, 3))})
    Traceback (most recent call last):
        ...
    ValueError: No bottleneck blocks: a ResNet50 has layer1.0.conv1, conv2 and conv3...
    """
    state = read_state_dict(state)
    data_format = check_data_format(arguments.get("data_format"))
    sizes = _sizes(state)
    channels = state["conv1.weight"].shape[1]
    if image_shape is None:
        image_shape = (224, 224, channels) if data_format == "channels_last" else (channels, 224, 224)
    refuse_read_off(arguments, {"variant", *sizes})
    classifier = state.get("fc.weight") if head else None
    arguments.setdefault("num_classes", None if classifier is None else len(classifier))
    if epsilon != EPSILON:
        arguments.setdefault("normalization", keras.layers.BatchNormalization(epsilon=epsilon, momentum=0.9))
    model = ResNet50(**{**sizes, **arguments, "image_shape": image_shape, "data_format": data_format})
    load_resnet(model, state, head=head, epsilon=epsilon, ignore=ignore)
    return model


def _sizes(state):
    blocks = {match.groups() for name in state if (match := re.match(r"layer(\d+)\.(\d+)\.conv3\.weight$", name))}
    stages = sorted({int(stage) for stage, _ in blocks})
    stem = state.get("conv1.weight")
    firsts = [state.get(f"layer{stage}.0.conv1.weight") for stage in stages]
    if (
        not stages
        or stages != list(range(1, len(stages) + 1))
        or any(w is None or w.ndim != 4 for w in [stem, *firsts])
    ):
        raise ValueError(
            "No bottleneck blocks: a ResNet50 has layer1.0.conv1, conv2 and conv3 (ResNet-18 and 34 have no conv3), "
            "and a conv1 before them. If the names begin with something else, take that off: read_state_dict(source, "
            f"prefix=...). The state dict's names: {', '.join(state)}"
        )
    return {
        "depths": tuple(sum(int(s) == stage for s, _ in blocks) for stage in stages),
        "widths": tuple(len(weight) for weight in firsts),
        "stem": "cifar" if stem.shape[2] == 3 else "imagenet",
        "stem_width": len(stem),
    }


def _rows(weights):
    """The table of names, as far as the model has the weights."""
    table = [
        *rows.convolution("conv1", "stem_convolution", bias=False),
        *rows.batch_norm("bn1", "stem_norm"),
        *rows.linear("fc", "head"),
    ]
    blocks = {match.groups() for path in weights if (match := re.match(r"stage_(\d+)_block_(\d+)_", path))}
    for stage, block in sorted(blocks, key=lambda pair: (int(pair[0]), int(pair[1]))):
        module, layer = f"layer{int(stage) + 1}.{block}", f"stage_{stage}_block_{block}"
        for part in (1, 2, 3):
            table += rows.convolution(f"{module}.conv{part}", f"{layer}_convolution_{part}", bias=False)
            table += rows.batch_norm(f"{module}.bn{part}", f"{layer}_norm_{part}")
        table += rows.convolution(f"{module}.downsample.0", f"{layer}_shortcut_convolution", bias=False)
        table += rows.batch_norm(f"{module}.downsample.1", f"{layer}_shortcut_norm")
    return table
