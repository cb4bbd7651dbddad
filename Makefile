# make demo   train on real images with GELU, PolyReLU and PolyNorm (BACKEND=jax, torch or tensorflow)
# make test   the test suite on all three backends
# make test-crashes   kills training scripts at many more moments than the suite does, on all three backends
# make lint   formatting and lint
# Each makes its own .venv; PYTHON names the interpreter it is made with.

PYTHON ?= python3.11
BACKEND ?= jax
BACKENDS := jax tensorflow torch
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --no-compile --constraint .ci/constraints.txt
# pip would write the byte code on one core. Packages ship a few templates in old Python, which do not compile.
COMPILE := $(BIN)/python -m compileall -q -j 0 .venv/lib > /dev/null || true

# TensorFlow's notes about missing GPUs, and its oneDNN notice, are not for the reader of a table.
export TF_CPP_MIN_LOG_LEVEL ?= 3

.PHONY: demo test test-crashes lint clean $(BACKENDS:%=test-%) $(BACKENDS:%=test-crashes-%)

ifeq ($(filter $(BACKEND),$(BACKENDS)),)
$(error BACKEND must be one of $(BACKENDS). Received: BACKEND=$(BACKEND))
endif

demo: .venv/installed-$(BACKEND)
	KERAS_BACKEND=$(BACKEND) $(BIN)/python examples/train_classifier.py --dataset digits \
		--activation gelu poly_relu poly_norm --output runs/demo-$(BACKEND)

test: $(BACKENDS:%=test-%)

$(BACKENDS:%=test-%): test-%: .venv/installed-all
	KERAS_BACKEND=$* $(BIN)/python -m pytest --numprocesses=auto --durations=15

test-crashes: $(BACKENDS:%=test-crashes-%)

$(BACKENDS:%=test-crashes-%): test-crashes-%: .venv/installed-all
	KERAS_BACKEND=$* $(BIN)/python -m pytest --numprocesses=auto -m long tests/examples/test_crashes.py

lint: .venv/installed-all
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed-all: .venv/bin/python pyproject.toml .ci/constraints.txt
	$(INSTALL) --editable ".[jax,tensorflow,torch,convert,export,examples,dev]"
	$(COMPILE)
	touch $@

.venv/installed-%: .venv/bin/python pyproject.toml .ci/constraints.txt
	$(INSTALL) --editable ".[$*,examples]"
	$(COMPILE)
	touch $@

clean:
	rm -rf .venv runs build dist *.egg-info
