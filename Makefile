# Every target sets up what it needs; `make` alone lists them.
PYTHON ?= python3
VENV ?= .venv
ARGS ?=
EPISODES ?= 200

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup demo test lint soak bench docs bench-quick peers bubblewrap docker-engine chromium clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' Makefile

setup: $(VENV)/dev.stamp ## install the project and its tools into .venv

demo: $(VENV)/core.stamp ## play episodes against a bundled environment in its own process
	@$(VENV)/bin/rayfine rollout echo --episodes $(EPISODES) --turns 10

test: $(VENV)/dev.stamp ## run the tests (ARGS="-k wire" narrows them)
	@$(VENV)/bin/pytest -n auto --maxprocesses 4 --dist loadgroup $(ARGS)

lint: $(VENV)/dev.stamp ## check style, types and the import stair
	@$(VENV)/bin/ruff check
	@$(VENV)/bin/ruff format --check
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports --no-cache --no-logo

soak: $(VENV)/dev.stamp ## run every promise at its full count
	@RAYFINE_PROMISE_SCALE=full $(VENV)/bin/pytest -m "promise or soak" --timeout 3600 $(ARGS)

bench: $(VENV)/core.stamp ## measure us and the peers side by side, in one interleaved run
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check numpy
	@$(VENV)/bin/python benchmarks/run.py $(ARGS)
	@$(VENV)/bin/python benchmarks/sessions.py
	@$(VENV)/bin/python benchmarks/rollout.py

docs: $(VENV)/docs.stamp ## make the manual as a site, in build/site
	@$(VENV)/bin/mkdocs build --quiet --strict

bench-quick: ## the nearest of them only, in under a minute
	@$(MAKE) --no-print-directory bench ARGS=--quick

peers: $(VENV)/dev.stamp ## measure others' clients on our server against their own, interleaved
	@$(VENV)/bin/python benchmarks/doors.py $(ARGS)

bubblewrap: ## as root on Debian, install what the sandbox needs
	@command -v bwrap >/dev/null || { apt-get update -qq && apt-get install -y -qq bubblewrap >/dev/null; }

docker-engine: ## as root on Debian, install and start a Docker engine where none runs
	@scripts/docker-engine.sh

chromium: ## as root on Debian, install the browser that reports are checked in
	@command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq chromium >/dev/null; }

clean: ## remove everything that was made here
	rm -rf $(VENV) .venv-interop dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -prune -exec rm -rf {} +

# What the demo needs is a fraction of what the tests need, so each is installed by who asks for it.
$(VENV)/core.stamp: pyproject.toml
	$(call install,.)

$(VENV)/dev.stamp: pyproject.toml
	$(call install,.[dev])
	@touch $(VENV)/core.stamp

$(VENV)/docs.stamp: pyproject.toml
	$(call install,.[docs])

define install
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	echo "Install the Debian package python3 (3.11 or newer), or name another one: make PYTHON=python3.12" >&2; exit 1; }
@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	echo "Install the Debian package python3-venv: $(PYTHON) cannot make a virtual environment." >&2; exit 1; }
@test -x $(VENV)/bin/pip || $(PYTHON) -m venv --clear $(VENV)
@echo "Installing $(1) into $(VENV) ..."
@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '$(1)'
@touch $@
endef
