# Everything runs inside .venv; a target whose inputs have not changed installs nothing again.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help setup demo test test-slow test-all torture mutants lint docs words pictures bench results clean

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# One stamp per set of extras: it is newer than what decides the set and than the kernel's source, or the set is
# installed again. An old kernel that is called by new code ends the process.
KERNEL := $(addprefix src/adaptive_labels/losses/fused/,alr.c alr_loops.h)
$(VENV)/.installed-%: pyproject.toml constraints.txt $(KERNEL) | $(BIN)/python
	@echo "Installing adaptive-labels[$*] into $(VENV) ..."
	$(PIP) -e ".[$*]"
	@touch $@

setup: $(VENV)/.installed-dev ## install everything needed to develop

demo: $(VENV)/.installed-demo ## set up, then compare methods on the embedded data
	$(BIN)/alr compare towns
	@echo "  . $(BIN)/activate    # before these, so that alr is found"

test: $(VENV)/.installed-dev lint ## set up, lint, type-check, run the tests (under 10 minutes)
	$(BIN)/python -m pytest -n 2 -m "not slow"

SLOW := dev tensorboard adapters encoders export sweeps mlflow wandb
test-slow: $(SLOW:%=$(VENV)/.installed-%) ## the tests that are longer, or need more installed
	$(BIN)/python -m pytest -n 2 -m slow

test-all: test test-slow ## all tests

torture: $(VENV)/.installed-dev ## 1,000 kills, every failed write, every damaged file (hours on a busy machine; a short form is in test-slow)
	$(BIN)/python tests/torture/torture.py --count 1000 --csv benchmarks/results/torture-$(shell date +%F).csv

mutants: $(VENV)/.installed-dev ## the share of small faults that the tests notice (half an hour)
	$(BIN)/python tests/mutants.py

lint: $(VENV)/.installed-dev ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.installed-dev ## run every example in the docs and docstrings
	$(BIN)/python -m pytest -n 2 tests/test_docs.py

words: ## count the words of the documentation
	@$(PYTHON) docs/words.py

pictures: $(VENV)/.installed-dev ## draw the picture of the README from a fresh comparison
	$(BIN)/python docs/pictures.py

bench: $(VENV)/.installed-dev ## time losses, training and data pipelines, as ratios to plain ones
	for script in loss train data; do $(BIN)/python benchmarks/$$script.py || exit; done

results: $(VENV)/.installed-dev ## make the pages of evidence/tables from its records
	$(BIN)/python evidence/pages.py

clean: ## remove the environment and caches
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis
