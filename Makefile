# `make help` lists the targets. Everything sets itself up: a virtual environment in .venv, system packages where a target needs them.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= auto
N ?= 10000
SEED ?= 0
FIRST ?= 0
SECONDS ?= 60
.DEFAULT_GOAL := help
.PHONY: help demo test test-docs newcomer check golden sweep fuzz fuzz-reader bench renode docs site dist format clean system

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(VENV)/.made:
	@./tests/setup.sh venv $(PYTHON) $(VENV)

$(VENV)/.demo: $(VENV)/.made pyproject.toml
	@echo "installing aot and the emulator into $(VENV) ..."
	@$(BIN)/pip install --quiet --disable-pip-version-check -e '.[emulate]'
	@touch $@

$(VENV)/.test: $(VENV)/.made pyproject.toml
	@echo "installing aot and what its tests need into $(VENV) ..."
	@$(BIN)/pip install --quiet --disable-pip-version-check -e '.[test]'
	@$(BIN)/pip install --quiet --disable-pip-version-check -e '.[oracles]' || echo "the oracles (tflite-micro, ai-edge-litert) have no wheel for this machine: tests that compare with them will skip"
	@$(BIN)/pip install --quiet --disable-pip-version-check -e '.[fuzz]' || echo "atheris has no wheel for this machine: its fuzzing will be skipped"
	@$(BIN)/pip install --quiet --disable-pip-version-check --only-binary=atheris -e '.[fuzz]' || echo "atheris has no wheel for this machine: tests that need it will skip"
	@touch $@

$(VENV)/.bench: $(VENV)/.test
	@$(BIN)/pip install --quiet --disable-pip-version-check -e '.[bench]'
	@touch $@

demo: $(VENV)/.demo ## Bundle a digit classifier for a Cortex-M4 and run it in the emulator
	@$(BIN)/python bundles/demo.py

test: $(VENV)/.test system ## Install what the tests need and run them all (large sweeps sampled)
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test-docs: $(VENV)/.test system ## Run every command of README.md, docs/ and --help
	@AOT_SWEEP=1 $(BIN)/python -m pytest -n $(WORKERS) tests/documentation

newcomer: $(VENV)/.test ## Type what docs/start.md says, in a fresh copy and an empty environment, and say how long it took
	@$(BIN)/python -m tests.documentation.newcomer

check: $(VENV)/.test ## Lint, format, types and the fast tests: before every commit
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/pyright && $(BIN)/python -m pytest -n $(WORKERS) -m "not slow" tests/graph tests/lower tests/cli tests/golden tests/test_architecture.py

golden: $(VENV)/.test ## Update the golden text files, then look at `git diff`
	@AOT_UPDATE_GOLDEN=1 $(BIN)/python -m pytest -m golden tests/golden && git --no-pager diff --stat -- tests

sweep: $(VENV)/.test system ## Every kernel x shape, whole (long)
	@AOT_SWEEP=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

fuzz: $(VENV)/.test ## N=10000 fuzzed models: mutated files, others compared with TFLite Micro, nets by rows (SEED=0; long)
	@$(BIN)/python tests/fuzz.py --cases $(N) --seed $(SEED)

fuzz-reader: $(VENV)/.test ## N=10000 mutated files read or refused, then atheris for SECONDS=60 (FIRST=0: number of the first file)
	@$(BIN)/python -m tests.hardening.fuzz_reader --cases $(N) --first $(FIRST) --seconds $(SECONDS)

bench: $(VENV)/.bench system ## Count everything again: bench/*.json, docs/benchmarks.md, docs/workspaces.md (minutes)
	@$(BIN)/python -m bench

renode: $(VENV)/.test system ## The sample firmware under Renode (where it is installed), and the same ELFs on QEMU
	@$(BIN)/python -m bundles.emulate

docs: $(VENV)/.test ## Write the generated pages of docs/ again: operators (also from the real models, where they are), targets, command line, pictures
	@$(BIN)/python docs/generate.py

dist: $(VENV)/.test ## The wheel and the source archive of a release, in dist/
	@SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m build --outdir dist . && ls dist

site: $(VENV)/.test ## The documentation as a site: build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: $(VENV)/.test ## Format the sources
	@$(BIN)/ruff check --fix . && $(BIN)/ruff format .

system:
	@./tests/setup.sh system

clean: ## Remove what was built
	rm -rf $(VENV) build out *.egg-info
