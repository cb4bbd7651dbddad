"""Models in other formats compute what they computed: ONNX, SavedModel, torch.export."""

import importlib

import keras
import numpy as np
import pytest

import keras_polycom
from keras_polycom import config, models
from keras_polycom.ops.exporting import exporting_scope, is_exporting

BACKEND = keras.backend.backend()
pytestmark = pytest.mark.filterwarnings("ignore")  # the exporters' own, about each other's versions


def small(patch_groups=True):
    """Every family once, in a network with images as input."""
    images = keras.Input((6, 6, 3), name="images")
    x = keras.layers.Conv2D(8, 3, activation=keras_polycom.PolyReLU(), name="convolution")(images)
    x = keras_polycom.CPLN(4)(x)
    x = keras_polycom.PatchGroupNormalization(2, 2)(x) if patch_groups else x
    x = keras.layers.Reshape((16, 8))(x)
    x = keras_polycom.MixNormalization(3, 2)(x)
    x = keras_polycom.GatedMoAFeedForward(12, variant="quadratic")(x)
    x = keras_polycom.LAFeedForward(12)(x)
    x = keras_polycom.PolyNorm()(keras.layers.Dense(8, "gelu")(x))
    return keras.Model(images, keras.layers.Dense(3)(keras.layers.Flatten()(x)))


def pooling():
    """What a ResNet has besides. On JAX max pooling used to come out in a form that onnxruntime does not compute."""
    images = keras.Input((6, 6, 3), name="images")
    x = keras.layers.BatchNormalization()(keras.layers.ZeroPadding2D(1)(images))
    x = keras.layers.MaxPooling2D(3, strides=2)(x)
    x = keras_polycom.PaddedMaxPooling2D(3, 2, 1)(x)
    x = keras.layers.Concatenate()(
        [keras.layers.AveragePooling2D(2)(x), keras.layers.MaxPooling2D(2, padding="same")(x)]
    )
    return keras.Model(images, keras_polycom.PolyNorm()(keras.layers.GlobalAveragePooling2D()(x)))


def transformer(**changes):
    return models.ViT(
        image_shape=(6, 6, 3), patch_size=3, num_layers=1, hidden_dim=8, num_heads=2, num_classes=3,
        activation="poly_norm", **{"normalization": "pln[4]", **changes},
    )  # fmt: skip


MODELS = {"small": small, "pooling": pooling, "transformer": transformer}


@pytest.fixture(params=list(MODELS))
def model(request):
    return MODELS[request.param]()


@pytest.fixture
def x(rng):
    return rng.standard_normal((5, 6, 6, 3)).astype("float32")


def computed(model, x):
    return keras.ops.convert_to_numpy(model(x, training=False))


def test_onnx(model, x, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    keras_polycom.export_onnx(model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    (actual,) = session.run(None, {session.get_inputs()[0].name: x})
    np.testing.assert_allclose(actual, computed(model, x), rtol=1e-5, atol=1e-5)
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


def test_large_weights_are_in_the_file(tmp_path):
    """The exporter for JAX puts them into another file, which did not go with the one that was moved into place."""
    onnxruntime = pytest.importorskip("onnxruntime")
    model = keras.Sequential([keras.Input((700,)), keras.layers.Dense(700)])
    for _ in range(2):
        keras_polycom.export_onnx(model, tmp_path / "model.onnx")
        assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    (tmp_path / "elsewhere").mkdir()
    path = (tmp_path / "model.onnx").rename(tmp_path / "elsewhere" / "model.onnx")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    x = np.ones((2, 700), "float32")
    (actual,) = session.run(None, {session.get_inputs()[0].name: x})
    np.testing.assert_allclose(actual, computed(model, x), rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(BACKEND == "torch", reason="Keras writes no SavedModel on PyTorch")
def test_saved_model(model, x, tmp_path):
    tensorflow = importlib.import_module("tensorflow")
    model.export(str(tmp_path), verbose=False)
    loaded = tensorflow.saved_model.load(str(tmp_path))
    np.testing.assert_allclose(loaded.serve(x).numpy(), computed(model, x), rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="the format of TensorFlow")
def test_saved_model_in_half_precision(x, tmp_path):
    """CASES 093: the served model takes float32 and computes what the model computes, in a graph too."""
    tensorflow = importlib.import_module("tensorflow")
    model = transformer(normalization="layer_norm", dtype="mixed_float16")
    expected = computed(model, x).astype("float32")
    model.export(str(tmp_path), verbose=False)
    loaded = tensorflow.saved_model.load(str(tmp_path))
    served = loaded.serve(x).numpy()
    graph = tensorflow.function(lambda x: model(x, training=False))(x).numpy()
    for actual in (served, graph):
        np.testing.assert_allclose(actual.astype("float32"), expected, rtol=2e-3, atol=2e-3)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="Keras writes LiteRT from TensorFlow, or by packages not used here")
@pytest.mark.parametrize("make", [lambda: small(patch_groups=False), pooling, transformer], ids=list(MODELS))
def test_litert(make, x, tmp_path):
    """Compiled halves used to be refused by the converter, or end in operations that phones do not have (CASES 048)."""
    tensorflow = importlib.import_module("tensorflow")
    images = keras.Input((6, 6, 3))
    model = keras.Model(images, make()(keras.layers.RandomFlip()(images)))
    model.export(str(tmp_path / "model.tflite"), format="litert", verbose=False)
    interpreter = tensorflow.lite.Interpreter(str(tmp_path / "model.tflite"))
    (inputs,), (outputs,) = interpreter.get_input_details(), interpreter.get_output_details()
    interpreter.resize_tensor_input(inputs["index"], x.shape)
    interpreter.allocate_tensors()  # fails where there is an operation of TensorFlow itself, "flex"
    interpreter.set_tensor(inputs["index"], x)
    interpreter.invoke()
    np.testing.assert_allclose(interpreter.get_tensor(outputs["index"]), computed(model, x), rtol=1e-3, atol=1e-4)


@pytest.mark.skipif(BACKEND != "torch", reason="the format of PyTorch")
def test_torch_export(model, x, tmp_path):
    torch = importlib.import_module("torch")
    x = torch.tensor(x)
    program = torch.export.export(model, (x,), dynamic_shapes=(({0: torch.export.Dim.DYNAMIC},),))
    torch.export.save(program, str(tmp_path / "model.pt2"))
    loaded = torch.export.load(str(tmp_path / "model.pt2")).module()
    for images in (x, x[:3]):
        np.testing.assert_allclose(loaded(images).detach().numpy(), computed(model, images), rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(BACKEND == "torch", reason="export_onnx takes another way than Keras there")
def test_faster_versions_step_aside_in_keras_own_export(x, tmp_path, monkeypatch):
    """TensorFlow used to write a node into the file that onnxruntime refused to load."""
    pytest.importorskip("onnxruntime")
    seen = []
    big = keras.Input((64,), batch_size=2048)
    model = keras.Model(big, keras_polycom.PolyNorm()(big))
    fused = importlib.import_module("keras_polycom.ops.fused")
    monkeypatch.setattr(
        fused._backend_module, "poly_norm", lambda x, *args, **kwargs: seen.append(x.shape) or x, raising=True
    )
    model(np.ones((2048, 64), "float32"))
    assert len(seen) == 1
    model.export(str(tmp_path / "model.onnx"), format="onnx", verbose=False)
    assert len(seen) == 1


def test_scope():
    assert not is_exporting()
    with exporting_scope():
        assert is_exporting()
        with config.fast_roads_scope("on"), pytest.raises(ValueError, match="the model is being exported"):
            keras_polycom.PolyNorm()(np.ones((2, 3), "float32"))
    assert not is_exporting()


def test_half_precision_is_refused(tmp_path):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, dtype="mixed_float16", name="half")])
    with pytest.raises(ValueError, match="written from float32 models.*half compute in half precision"):
        keras_polycom.export_onnx(model, tmp_path / "model.onnx")


def test_a_model_without_inputs_is_refused(tmp_path):
    with pytest.raises(ValueError, match="must be built and its inputs known"):
        keras_polycom.export_onnx(keras.Sequential([keras.layers.Dense(3)]), tmp_path / "model.onnx")


def test_a_failure_leaves_the_old_file(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    path = tmp_path / "model.onnx"
    path.write_text("former")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])

    def failing(*args, **kwargs):
        raise OSError("no space left")

    exporting = importlib.import_module("keras_polycom.exporting")
    monkeypatch.setattr(exporting, "_write_with_keras", failing)
    monkeypatch.setattr(exporting, "_write_with_torch", failing)
    with pytest.raises(OSError, match="no space left"):
        keras_polycom.export_onnx(model, path)
    assert path.read_text() == "former" and list(tmp_path.iterdir()) == [path]
    assert not is_exporting()


def test_a_missing_exporter_is_named(tmp_path, monkeypatch):
    exporting = importlib.import_module("keras_polycom.exporting")
    monkeypatch.setitem(exporting._PACKAGES, BACKEND, "no_such_exporter")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    with pytest.raises(ImportError, match="pip install onnx no_such_exporter"):
        keras_polycom.export_onnx(model, tmp_path / "model.onnx")
