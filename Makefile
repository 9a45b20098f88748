# Every command of the project. On a fresh machine: git, make and python3 >= 3.11 are enough.

PYTHON ?= python3
BIN := .venv/bin
# `make pins UPGRADE=--upgrade` takes the newest versions, `make pins` keeps those that still fit.
UPGRADE ?=
COMPILE := UV_CUSTOM_COMPILE_COMMAND="make pins" $(BIN)/uv pip compile --quiet --universal \
	--python-version 3.11 --generate-hashes --no-emit-index-url $(UPGRADE) pyproject.toml

.DEFAULT_GOAL := help
.PHONY: help setup demo serve studio test lint bench nightly pins clean

help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

setup: .venv/.project  ## make .venv with the pinned, hashed dependencies and the project

demo: setup  ## show a whole rollout with a simulated model, in a minute or two
	$(BIN)/cutover demo

serve: setup  ## serve the five flows at 127.0.0.1:8080 with a simulated model
	$(BIN)/cutover serve --simulate

# langgraph reports its use unless told not to, and looks before it reads langgraph.json.
studio: setup  ## open the five graphs in LangGraph Studio, with a model at OPENAI_BASE_URL
	LANGGRAPH_CLI_NO_ANALYTICS=1 $(BIN)/langgraph dev

# Three workers on two cores: a third of the time one waits for a process or a file.
test: setup  ## every test
	$(BIN)/python -m pytest -n 3 --dist=worksteal

lint: setup  ## ruff, format, mypy, the arrows between the packages
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup  ## measure tape, gateway, pass-through and mirror, side by side
	$(BIN)/python -m benchmarks

nightly: setup  ## long tests: kills, random hypothesis
	$(BIN)/python -m pytest -n 2 -m nightly --hypothesis-profile=long

pins: setup  ## resolve pyproject.toml again into requirements/*.txt
	$(COMPILE) --all-extras --output-file requirements/dev.txt
	$(COMPILE) --extra all --constraint requirements/dev.txt --output-file requirements/run.txt

clean:  ## remove everything that is built, .venv too
	rm -rf .venv build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "cutover needs Python 3.11 or newer. Name another: make PYTHON=python3.12 $(MAKECMDGOALS)"; \
		exit 1; }
	$(PYTHON) -m venv .venv

# The pins are complete, so pip resolves nothing: asked to, it may look at a newer release of a
# package that another one names with an extra, and then stops, because that one has no hash.
.venv/.pins: requirements/dev.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps \
		--requirement requirements/dev.txt
	$(BIN)/python -m pip check --quiet
	@touch $@

.venv/.project: pyproject.toml .venv/.pins
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
		--no-build-isolation --editable .
	@touch $@
