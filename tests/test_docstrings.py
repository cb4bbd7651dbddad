"""Every example in a docstring runs, and every public layer, op and conversion has one."""

import doctest
import importlib
import inspect
import pkgutil

import keras
import pytest

import keras_polycom
from keras_polycom import convert, layers, ops

MODULES = ["keras_polycom"] + [
    info.name
    for info in pkgutil.walk_packages(keras_polycom.__path__, "keras_polycom.")
    if not info.name.startswith("keras_polycom.ops.fused.")  # the file of a backend not in use cannot be imported
]


# On torch an example that shows float(y) of a layer is warned about its gradient; examples are kept short instead.
@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad:UserWarning")
@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    for example in doctest.DocTestFinder(exclude_empty=True).find(module, name):
        if example.examples:
            runner.run(example)
    assert runner.summarize(verbose=False).failed == 0


PUBLIC = {
    f"{module.__name__.split('.')[-1]}.{name}": thing
    for module in (convert, layers, ops)
    for name, thing in vars(module).items()
    if not name.startswith("_")
    and ((inspect.isclass(thing) and issubclass(thing, keras.layers.Layer)) or inspect.isfunction(thing))
    and thing.__module__.startswith("keras_polycom")
}
WITHOUT_EXAMPLE = set(ops.ACTIVATION_FUNCTIONS.values()) | {ops.check_index_range}  # one-line functions; a check


@pytest.mark.parametrize("name", [name for name, thing in PUBLIC.items() if thing not in WITHOUT_EXAMPLE])
def test_public_layers_and_functions_show_an_example(name):
    assert ">>>" in (PUBLIC[name].__doc__ or ""), f"{name} has no example"
