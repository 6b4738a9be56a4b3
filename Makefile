PYTHON3 ?= python3
BIN := .venv/bin
LOCK := build/lock/bin/uv pip compile --universal --generate-hashes --python-version 3.11 --no-header --quiet
IMAGE := --extra amqp --extra apprise --extra postgresql
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test quick soak chaos docs check format bench dist newcomer tour lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## make the Python environment, or find it up to date
	@$(PYTHON3) scripts/setup.py

demo: setup ## watch a simulated world being collected
	@$(BIN)/mistnet demo $(ARGS)

test: setup ## everything a release needs: checks and all tests (ARGS=... goes to pytest)
	@$(BIN)/python scripts/run_tests.py $(ARGS)

quick: setup ## for the daily loop: checks, unit tests, contract tests on SQLite
	@$(BIN)/python scripts/run_tests.py --quick $(ARGS)

soak: setup ## the long searches, and a service that must stay flat for a day (ARGS='--minutes 30 --steady-hours 1')
	@$(BIN)/python scripts/soak.py $(ARGS)

chaos: setup ## play every fault against real processes (ARGS='--seed 7 --minutes 5')
	@$(BIN)/python scripts/chaos.py $(ARGS)

check: setup ## style, types and the import contract
	@failed=; \
	for tool in "ruff check" "ruff format --check" mypy lint-imports; do \
		echo "$$tool"; $(BIN)/$$tool || failed="$$failed, $$tool"; \
	done; \
	if [ -n "$$failed" ]; then echo "check failed:$${failed#,}" >&2; exit 1; fi

format: setup ## let ruff write what it can
	$(BIN)/ruff check --fix-only --quiet
	$(BIN)/ruff format

bench: setup ## measure (ARGS=... goes to bench.run)
	@$(PYTHON3) scripts/setup.py --env .venv-bench --lock bench/requirements.lock
	.venv-bench/bin/python -m bench.run $(ARGS)

docs: ## build the documentation site into build/site; a broken link fails
	@$(PYTHON3) scripts/setup.py --env .venv-docs --lock docs/requirements.lock
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --quiet && echo "build/site/index.html is the start page"

dist: setup ## build the wheel and the source distribution into dist/
	@rm -rf dist
	$(BIN)/python -m hatchling build -d dist

tour: setup ## make the pictures of docs/tour.md
	@$(BIN)/python scripts/make_tour.py $(ARGS)

newcomer: setup ## install the wheel as a newcomer does, and follow the first steps and the tutorial
	@$(BIN)/python scripts/newcomer.py $(ARGS)

lock: ## rewrite the lock files from pyproject.toml (ARGS=--upgrade for newer versions)
	@test -x build/lock/bin/uv || { $(PYTHON3) -m venv build/lock && build/lock/bin/pip install --quiet uv; }
	$(LOCK) $(ARGS) --all-extras --group dev pyproject.toml -o requirements.lock
	$(LOCK) $(ARGS) --all-extras --group dev pyproject.toml bench/requirements.in -o bench/requirements.lock
	$(LOCK) $(ARGS) docs/requirements.in -o docs/requirements.lock
	$(LOCK) --constraint requirements.lock $(IMAGE) pyproject.toml -o deploy/requirements.lock

clean: ## remove what the tools made; the environments too
	rm -rf .venv .venv-bench .venv-docs build dist .mypy_cache .ruff_cache .hypothesis .import_linter_cache
