"""One backend per process, taken from KERAS_BACKEND; the same seed before every test."""

import importlib
import os
import tempfile

BACKEND = os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if BACKEND == "jax":  # a CPU that looks like four devices, for the tests of several; all else uses the first
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # what one process has compiled, the others take over
        shared_by_all_processes = tempfile.TemporaryDirectory(prefix="keras-polycom-tests-")  # removed at the end
        os.environ["JAX_COMPILATION_CACHE_DIR"] = shared_by_all_processes.name
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

backend_module = importlib.import_module(BACKEND)  # first of all, and an error here fails the whole run

if BACKEND == "jax":
    backend_module.config.update("jax_enable_x64", True)  # otherwise float64 is float32 in disguise
    backend_module.config.update("jax_default_matmul_precision", "highest")
    importlib.import_module("jax_draws").use()
elif BACKEND == "torch":
    backend_module.backends.cuda.matmul.allow_tf32 = False
    backend_module.backends.cudnn.allow_tf32 = False
    if not backend_module.cuda.is_available():
        os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Keras loads Triton: kernels on CPU tensors
else:
    backend_module.config.experimental.enable_tensor_float_32_execution(False)
    backend_module.config.set_logical_device_configuration(
        backend_module.config.list_physical_devices("CPU")[0],
        [backend_module.config.LogicalDeviceConfiguration()] * 2,  # for the tests of several; all else uses the first
    )

import keras  # noqa: E402
import pytest  # noqa: E402

# Where the arithmetic itself is tested, XLA does all it does for a user. Elsewhere compiling is most of the time, and
# what is tested lies outside of the compiled code: JAX then leaves the machine code as it comes.
FULLY_OPTIMIZED = {"ops", "theory"}


def pytest_runtest_setup(item):
    if BACKEND == "jax":
        hastily = item.path.parent.name not in FULLY_OPTIMIZED
        backend_module.config.update("jax_disable_most_optimizations", hastily)
        os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = str(hastily)  # for the processes that a test starts


def pytest_report_header():
    from keras_polycom import config

    return f"keras {keras.__version__} on {keras.backend.backend()}, fast roads {config.fast_roads()}"


@pytest.fixture(autouse=True)
def fixed_seed():
    keras.utils.set_random_seed(20241106)


@pytest.fixture
def rng():
    import numpy as np

    return np.random.default_rng(7)


@pytest.fixture
def global_policy():
    """Sets the global dtype policy for one test: `global_policy("mixed_float16")`."""
    former = keras.config.dtype_policy()
    yield keras.config.set_dtype_policy
    keras.config.set_dtype_policy(former)
