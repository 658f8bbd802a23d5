# `make search` runs the main job and `make test` the whole test suite; both first set up what they need in .venv.
#
#   make search ARGS="--op forward --T 2048"   another problem
#   make test-torch                            the tests of PyTorch and Transformers, which it installs (about 3 GB)
#   make search GPU=0                          never install PyCUDA, whatever GPU there is
#   make search PYTHON=python3.12              the interpreter of the environment

VENV ?= .venv
PYTHON ?=
GPU ?= auto
ARGS ?= --op backward --T 1024
JOBS ?= 2

BIN := $(VENV)/bin
BASE := $(VENV)/.installed
DEV := $(VENV)/.installed-dev
TORCH := $(VENV)/.installed-torch
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder
INPUTS := pyproject.toml scripts/setup.sh scripts/install-pycuda.sh

.PHONY: help search test pytest test-torch setup dev lint docs pycuda clean
.DELETE_ON_ERROR:

help:
	@sed -n '1,6{s/^#   /  /; s/^# //; /^#$$/d; p}' Makefile
	@echo "targets: search test test-torch setup dev lint docs pycuda clean"

search: $(BASE)
	$(BIN)/autotune search $(ARGS)

# The linters run beside the tests: each alone leaves a core idle at some time.
test: $(DEV)
	$(MAKE) --no-print-directory -j 2 lint pytest

pytest: $(DEV)
	$(PYTEST)

test-torch: $(TORCH)
	$(PYTEST) tests/integrations tests/cli/test_readme.py

setup: $(BASE)

dev: $(DEV)

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff check --preview --select PLW1514 autotune benchmarks examples
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict

docs: $(BASE)
	$(BIN)/python -m autotune.cli.docs docs/cli.md
	$(BIN)/python -m autotune.report.gpus docs/gpus.md

pycuda: $(BASE)
	FORCE=1 scripts/install-pycuda.sh $(VENV)

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis

# An environment with the development tools has everything the base one has.
$(BASE): $(INPUTS)
	@PYTHON="$(PYTHON)" GPU="$(GPU)" scripts/setup.sh $(VENV) .
	@touch $@

$(DEV): $(INPUTS)
	@PYTHON="$(PYTHON)" GPU="$(GPU)" scripts/setup.sh $(VENV) '.[dev]'
	@touch $(BASE) $@

$(TORCH): $(DEV)
	@PYTHON="$(PYTHON)" GPU="$(GPU)" scripts/setup.sh $(VENV) '.[dev,transformers]'
	@touch $@
