# The commands of this project; `make help` lists them. Only Python 3.11, git, make and gcc are expected.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
.DEFAULT_GOAL := help
.PHONY: help up test check scenarios scenarios-full bench fmt lock clean

help: ## List the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

up: .venv/.runtime ## Start the whole system here and keep it running until Ctrl-C (DEMO=0: no engines, no traffic)
	@exec $(BIN)/python -m control.supervisor

test: .venv/.dev ## Run every test that is not marked slow or bench
	$(BIN)/python -m pytest -q -m "not slow and not bench"

check: .venv/.dev ## Format, lint, import contracts, types, Django checks, tests of core and contract
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/lint-imports --no-logo > .venv/lint-imports.log || (cat .venv/lint-imports.log; false)
	$(BIN)/mypy
	SLUICEGATE_STATE_DIR=.venv $(BIN)/python manage.py check --fail-level WARNING
	SLUICEGATE_STATE_DIR=.venv $(BIN)/python manage.py makemigrations --check --dry-run
	$(BIN)/python -m pytest -q -m "not slow and not bench" tests/gateway/core tests/gateway/contract

scenarios: .venv/.dev ## Run the scenarios on the virtual clock and hold them against the targets
	$(BIN)/python -m gateway.simulation.scenarios

scenarios-full: .venv/.dev ## The same with ten seeds and all profiles (long)
	$(BIN)/python -m gateway.simulation.scenarios --full

bench: .venv/.dev ## Measure speed; exits non-zero below what must hold (needs nginx: apt-get install nginx-light)
	@status=0; for part in core gateway; do $(BIN)/python -m benchmarks.$$part || status=1; done; exit $$status

fmt: .venv/.dev ## Format the code and mend what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: ## Resolve requirements/*.in anew (needs uv on the PATH)
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
		requirements/runtime.in -o requirements/runtime.lock
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
		-c requirements/runtime.lock requirements/dev.in -o requirements/dev.lock

clean: ## Remove the virtualenv and caches; keeps var/ (your data)
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

.venv/.runtime: requirements/runtime.lock
	@test -n "$(PYTHON)" || { echo "No python3.11 on the PATH. Set PYTHON=/path/to/python3.11."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "$(PYTHON) is too old: Python 3.11 or newer is needed.")'
	@$(BIN)/python -m pip --version > /dev/null 2>&1 || { echo "Creating .venv ..."; $(PYTHON) -m venv --clear .venv; }
	@echo "Installing what the product needs (about half a minute the first time) ..."
	@$(PIP) install --require-hashes -r requirements/runtime.lock
	@$(PIP) install --no-deps --no-build-isolation --no-index -e .
	@touch $@

.venv/.dev: requirements/dev.lock .venv/.runtime
	@echo "Installing what the tests need (about a minute the first time) ..."
	@$(PIP) install --require-hashes -r requirements/dev.lock
	@touch $@
