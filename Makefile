# Every target does its own set-up; all it needs is make and Python 3.11 or newer.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo "$$python"; break; }; done)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
INSTALL := $(PIP) install --constraint constraints.txt --build-constraint constraints.txt
# A stamp is remade when what it was installed from is newer.
PINS := pyproject.toml constraints.txt

.PHONY: help demo test test-full test-ecosystem check format-check lint layers types docs \
	docs-serve wheel tables format bench bench-peers clean

help:  ## List the targets
	@awk -F ':.*  ## ' '/^[a-z-]+:.*  ## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- set-up ---------------------------------------------------------------------------------

.venv/stamp-venv:
	@test -n "$(PYTHON)" || { echo "headrace needs Python 3.11 or newer; name one: make PYTHON=..."; exit 1; }
	@echo "Setting up .venv, once: a minute or two, most of it for torch."
	@$(PYTHON) -m venv --clear .venv
	@$(PIP) install --constraint constraints.txt pip
	@touch $@

.venv/stamp-run: .venv/stamp-venv $(PINS)
	@$(INSTALL) --editable '.[cli,uvloop]'
	@touch $@

.venv/stamp-dev: .venv/stamp-run
	@$(INSTALL) --editable '.[cli,uvloop]' --group dev
	@touch $@

.venv/stamp-bench: .venv/stamp-run
	@$(INSTALL) --editable '.[cli,uvloop]' --group bench
	@touch $@

# Loaders that would bring other versions of what is measured: an environment each, which
# borrows torch and numpy from .venv, so that all are measured with the same.
PEERS := datasets litdata streaming webdataset
comma := ,
empty :=

.venv-peers/%/stamp: benchmarks/environments/%.txt .venv/stamp-bench
	@$(BIN)/python -m venv --without-pip --clear .venv-peers/$*
	@$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > \
		"$$(.venv-peers/$*/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/borrowed.pth"
	@$(PIP) --python .venv-peers/$*/bin/python install --requirement benchmarks/environments/$*.txt
	@touch $@

# Frameworks borrow in the same way; what they are tried with is the headrace of this tree.
.venv-ecosystem/stamp: tests/ecosystem/requirements.txt .venv/stamp-dev
	@echo "Setting up .venv-ecosystem, once: a minute or two."
	@$(BIN)/python -m venv --without-pip --clear .venv-ecosystem
	@{ $(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; echo "$(CURDIR)/src"; } > \
		"$$(.venv-ecosystem/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/borrowed.pth"
	@$(PIP) --python .venv-ecosystem/bin/python install --requirement tests/ecosystem/requirements.txt
	@touch $@

# --- use ------------------------------------------------------------------------------------

demo: .venv/stamp-run  ## Train a small model through the loader, stop it, resume it exactly
	$(BIN)/headrace demo

bench: .venv/stamp-bench  ## Measure headrace beside other loaders, the quick form
	$(BIN)/python benchmarks/run.py --quick

bench-peers: $(PEERS:%=.venv-peers/%/stamp)  ## Measure it beside loaders with environments of their own
	$(BIN)/python benchmarks/run.py --check --workloads R,J,S --peers $(subst $(empty) ,$(comma),$(PEERS))
	$(BIN)/python benchmarks/run.py --workloads R,J,S --metrics rate \
		--peers headrace,torch-2,strong,$(subst $(empty) ,$(comma),$(PEERS))

# --- tests and checks -----------------------------------------------------------------------

test: .venv/stamp-dev  ## Run the tests, a quick subset of the big matrices (SEED=n replays)
	$(BIN)/python -m pytest --verbosity=0 --session-timeout=1200 $(if $(SEED),--seed=$(SEED))

test-full: .venv/stamp-dev  ## Run the tests with every matrix whole
	$(BIN)/python -m pytest --verbosity=0 --full $(if $(SEED),--seed=$(SEED))

test-ecosystem: .venv-ecosystem/stamp  ## Train with Lightning and its like, kill the runs, resume them
	.venv-ecosystem/bin/python -m pytest --verbosity=0 tests/ecosystem

check: format-check lint layers types docs wheel  ## Run all checks that are not tests

format-check: .venv/stamp-dev
	$(BIN)/ruff format --check .

lint: .venv/stamp-dev
	$(BIN)/ruff check .

layers: .venv/stamp-dev
	$(BIN)/lint-imports --no-cache

types: .venv/stamp-dev
	$(BIN)/mypy

# Not --quiet: it would keep the warnings from --strict.
docs: .venv/stamp-dev  ## Build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: .venv/stamp-dev  ## Serve the documentation on this machine
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

wheel: .venv/stamp-dev
	bash .ci/check-wheel

tables: .venv/stamp-dev  ## Remake docs/coverage.md and docs/errors.md
	$(BIN)/python docs/make_coverage.py
	$(BIN)/python docs/make_errors.py

format: .venv/stamp-dev  ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## Remove everything that make made
	rm -rf .venv .venv-peers .venv-ecosystem build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
