# make demo   a real training run, watched live          make test   everything CI runs
# Both set themselves up in .venv and are safe to run twice.

PYTHON ?= python3
# On a machine with a GPU: make demo TORCH=torch. Elsewhere plain "torch" is a CUDA build of several GB; take the
# CPU build: TORCH='torch==2.13.0 --index-url <the CPU index that pytorch.org shows under "Get started">'
TORCH ?= torch==2.13.0

VENV := .venv
BIN := $(VENV)/bin
RUN := runs/demo-$(shell date +%H%M%S)
.DEFAULT_GOAL := help
.PHONY: help demo test lint unit e2e parity bench fuzz soak install system-packages clean

help:
	@sed -n '1,2s/^# //p' Makefile
	@echo "make lint   ruff, mypy, import contracts      make bench   the figures of docs/benchmarks.md"
	@echo "make fuzz   strange input to every parser (MINUTES=10 each)      make soak   a long watch (SECONDS=3600)"

$(VENV)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  found=$$($(PYTHON) --version 2>&1) || found="no Python that starts"; \
	  echo "$(PYTHON) is $$found, need Python 3.11 or newer; call: make PYTHON=/path/to/python3.11" >&2; exit 64; }
	@echo "== setting up $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# torch first and alone, so that no other package decides which build of it comes
$(VENV)/torch: $(VENV)/python
	@echo "== installing $(TORCH) (another build: see the head of the Makefile)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	@touch $@

$(VENV)/installed: $(VENV)/torch pyproject.toml
	@echo "== installing the toolkit with its test tools"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[train,dev]'
	@touch $@

install: $(VENV)/installed

demo: install
	@mkdir -p $(dir $(RUN))
	@echo "== training: dflash-train --preset tiny --run-dir $(RUN)   (CPU, about a minute; its output: $(RUN).txt)"
	@$(BIN)/dflash-train --preset tiny --run-dir $(RUN) > $(RUN).txt 2>&1 & \
	  trainer=$$!; trap 'kill $$trainer 2>/dev/null; wait $$trainer 2>/dev/null; true' INT TERM EXIT; \
	  echo "== watching: dflash-watch --run-dir $(RUN)   (q leaves)"; \
	  $(BIN)/dflash-watch --run-dir $(RUN); code=$$?; \
	  echo "== left: the run ends too and stays in $(RUN); break one on purpose: docs/training.md"; exit $$code

lint: install
	@echo "== ruff, mypy"
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/codespell README.md CHANGELOG.md docs playbooks

unit: install
	@echo "== tests without sshd and containers, three at a time as many wait"
	@$(BIN)/python -m pytest -q -n 3 --dist loadfile --ignore=tests/e2e --ignore=tests/bench

e2e: install
	@echo "== tests on a real sshd, a real LXC container and real faults, three at a time as they mostly wait (skipped with a reason where they cannot run)"
	@$(BIN)/python -m pytest -q -n 3 tests/e2e

# CI=1: that speculators cannot be had is a failure, not a reason to skip
parity: install
	@echo "== speculators 0.9.0, in .venv-parity, reads, computes and writes as we do"
	@CI=1 $(BIN)/python -m pytest -q tests/parity

test: lint unit e2e

bench: install
	@for bench in tests/bench/bench_*.py; do echo "== $$bench"; $(BIN)/python $$bench || exit 1; done

# MINUTES of CPU time for each parser, or for one of them with PARSER=log; not part of the tests
MINUTES ?= 10
fuzz: install
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[train,dev,fuzz]'
	@nice -n 10 $(BIN)/python tests/fuzz/campaign.py $(PARSER) --minutes $(MINUTES)

# A long watch of a small run: memory, descriptors, threads; SECONDS as long as you like
SECONDS ?= 3600
soak: install
	@$(BIN)/python tests/soak/soak.py --seconds $(SECONDS)

# What the tests need from the system; Debian and Ubuntu, as root.
system-packages:
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq gcc procps strace python3-venv tmux faketime openssh-server openssh-client sudo lxc lxcfs uidmap debootstrap >/dev/null

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
