# Every command of the project. On a fresh machine: git, make and python3 >= 3.11 are enough.

PYTHON ?= python3
BIN := .venv/bin
# `make pins UPGRADE=--upgrade` takes the newest versions, `make pins` keeps those that still fit.
UPGRADE ?=
COMPILE := UV_CUSTOM_COMPILE_COMMAND="make pins" $(BIN)/uv pip compile --quiet --universal \
	--python-version 3.11 --generate-hashes --no-emit-index-url $(UPGRADE) pyproject.toml

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint bench mutants pins clean

help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-7s %s\n", $$1, $$2 }' Makefile

setup: .venv/.project  ## make .venv with the pinned, hashed dependencies and the project

demo: setup  ## the whole story on this machine, no key needed
	$(BIN)/cutover demo

# Bytecode is kept even where the environment forbids it: forty processes would compile it again.
# Three workers on two cores: a third of the time somebody waits for a process, a lease or a file.
test: setup  ## every test, with coverage of branches
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 3 --dist=worksteal \
		--cov --cov-report=term --cov-fail-under=90

lint: setup  ## ruff, format, mypy, the arrows between the packages
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup  ## measure the overhead of every layer into build/bench.json
	@mkdir -p build
	$(BIN)/python -m benchmarks

# On a copy of the tracked files: the tool writes each change into the file and takes it back.
mutants: setup  ## change the graph stack one operator at a time, run the parity suite on each
	rm -rf build/mutants && git checkout-index --all --prefix=build/mutants/
	cd build/mutants && export PATH="$(CURDIR)/$(BIN):$$PATH" \
		&& cosmic-ray init tests/cosmic-ray.toml mutants.sqlite \
		&& cr-filter-operators mutants.sqlite tests/cosmic-ray.toml \
		&& cosmic-ray baseline tests/cosmic-ray.toml \
		&& cosmic-ray exec tests/cosmic-ray.toml mutants.sqlite \
		&& cr-report mutants.sqlite --show-pending | tail -n 4

pins: setup  ## resolve pyproject.toml again into requirements/*.txt
	$(COMPILE) --all-extras --output-file requirements/dev.txt
	$(COMPILE) --constraint requirements/dev.txt --output-file requirements/run.txt
	$(COMPILE) --extra compare --extra flags --extra mcp --extra redis --extra s3 --extra workers --extra otel --extra postgres --extra sealed --extra local-embeddings --extra tokens --extra containers \
		--constraint requirements/dev.txt --output-file requirements/image.txt

clean:  ## remove everything that is built, .venv too
	rm -rf .venv build dist .coverage .coverage.* .hypothesis .import_linter_cache \
		.mypy_cache .pytest_cache .ruff_cache

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "cutover needs Python 3.11 or newer; '$(PYTHON)' is" \
			"$$($(PYTHON) --version 2>&1). Name another: make PYTHON=python3.12 $(MAKECMDGOALS)"; \
		exit 1; }
	$(PYTHON) -m venv .venv

# The pins are complete, so pip resolves nothing: asked to, it may look at a newer release of a
# package that another one names with an extra, and then stops, because that one has no hash.
.venv/.pins: requirements/dev.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps \
		--requirement requirements/dev.txt
	$(BIN)/python -m pip check --quiet
	@touch $@

.venv/.project: pyproject.toml client/pyproject.toml .venv/.pins
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
		--no-build-isolation --editable . --editable client
	@touch $@
