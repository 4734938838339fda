# Everything runs inside .venv; a target whose inputs have not changed installs nothing again.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help setup demo test test-slow test-all lint docs bench results clean

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# One stamp a set of extras: it is newer than what decides the set, or the set is installed again.
$(VENV)/.installed-%: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing adaptive-labels[$*] into $(VENV) ..."
	$(PIP) -e ".[$*]"
	@touch $@

setup: $(VENV)/.installed-dev ## install everything needed to develop

demo: $(VENV)/.installed-demo ## set up, then compare methods on the embedded data
	$(BIN)/alr compare towns

test: $(VENV)/.installed-dev lint ## set up, lint, type-check, run the tests (under 10 minutes)
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-slow: $(VENV)/.installed-dev $(VENV)/.installed-tensorboard $(VENV)/.installed-adapters ## the tests that are longer, or need more installed
	$(BIN)/python -m pytest -n 2 -m slow

test-all: test test-slow ## all tests

lint: $(VENV)/.installed-dev ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.installed-dev ## run every example in the docs and docstrings
	$(BIN)/python -m pytest -n 2 tests/test_docs.py

bench: $(VENV)/.installed-dev ## time losses, training and data pipelines beside plain ones, as ratios
	$(BIN)/alr bench loss
	$(BIN)/alr bench train
	$(BIN)/alr bench data

results: $(VENV)/.installed-dev ## make the tables of results/ from its records
	$(BIN)/alr study tables --template studies/ablations.md --page docs/ablations.md
	$(BIN)/alr reproduce tables --template studies/reproduce.md --page docs/reproduce.md

clean: ## remove the environment and caches
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis
