# The one entry. `make` alone says what there is.
# Needs git, make and Python 3.11 or newer; what else is missing is installed, and said.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
PYTHON := .venv/bin/python

.PHONY: help demo test test-all test-realvllm check lab-up lab-down campaign docs hashes release bench importer clean

help:
	@echo "make demo       two virtual Sparks, provisioned and proven by site.yml  (15 min at most, 6 the second time; root)"
	@echo "make test       every gate, role tests, the pair suite, the page        (35 min on 2 cores; root)"
	@echo "make test-all   the tests on the lab's hosts, those included that take long         (4 hours; root)"
	@echo "make test-realvllm   the unit's lives with a real vLLM on the CPU, if GB10_REAL_VLLM names one   (20 min)"
	@echo "make check      linters, types, unit tests                              (3 min on 2 cores)"
	@echo "make lab-up     two virtual Sparks, nothing on them yet                 (5 min, the second time seconds; root)"
	@echo "make lab-down   stop them and remove their state                        (seconds; root)"
	@echo "make campaign   100 killed runs of site.yml, each completed by the next   (30 min; root)"
	@echo "make bench      what a run costs, beside pyinfra and others, on 1 to 60 hosts   (35 min on 2 cores; root)"
	@echo "make docs       the manual as a site in site/                             (1 min)"
	@echo "make hashes     requirements-hashed.txt from the package index            (10 s)"
	@echo "make release VERSION=X.Y.Z   wheel, tarball, site, checksums in dist/, a commit and a tag; pushes nothing   (2 min)"
	@echo "make importer   galaxy-importer with flake8 over the collection's tarball             (5 min)"
	@echo "make clean      remove what these targets wrote here, the lab's cache excepted"

demo: .venv/.installed-run
	@scripts/demo

test: .venv/.installed-dev
	@$(PYTHON) -m scripts.test

test-all: .venv/.installed-dev
	@echo "Every test on containers and virtual Sparks. Takes about four hours; needs root."
	@$(PYTHON) -m scripts.check --each-python
	@$(PYTHON) -m scripts.check --each-core
	@$(PYTHON) -m pytest tests/unit/rollout -m long -v
	@scripts/as-root $(PYTHON) -m lab deps
	@scripts/as-root $(PYTHON) -m scripts.attacks --whole
	@scripts/as-root $(PYTHON) -m pytest tests/fleet tests/lab -v

test-realvllm: .venv/.installed-dev .venv-openai/.installed-openai
	@echo "Lives of vLLM's unit with the real program, of the folder that GB10_REAL_VLLM names. Takes about 20 minutes."
	@GB10_OPENAI=$(CURDIR)/.venv-openai/bin $(PYTHON) -m pytest tests/realvllm -v

check: .venv/.installed-dev
	@$(PYTHON) -m scripts.check

lab-up: .venv/.installed-run
	@echo "Starting two virtual Sparks, cabled p0 to p0. First time about 5 minutes, then seconds."
	@scripts/as-root $(PYTHON) -m lab deps
	@scripts/as-root $(PYTHON) -m lab up pair

lab-down: .venv/.installed-run
	@echo "Stopping the virtual Sparks; takes seconds."
	@scripts/as-root $(PYTHON) -m lab down

campaign: .venv/.installed-dev
	@echo "Killing runs on four containers, a hundred times. Takes about 30 minutes; needs root."
	@scripts/as-root $(PYTHON) -m scripts.campaign

docs: .venv/.installed-dev
	@echo "Writing the manual to site/; takes about a minute."
	@$(PYTHON) -m scripts.docs

hashes: .venv/.installed-dev
	@echo "Asking the package index for versions and checksums; takes about ten seconds."
	@$(PYTHON) -m scripts.hashes

release: .venv/.installed-dev
	@$(PYTHON) -m scripts.release $(VERSION)

bench: .venv/.installed-run
	@echo "Measuring on 1 to 60 virtual hosts; takes about 35 minutes. How: benchmarks/README.md"
	@scripts/as-root $(PYTHON) -m benchmarks

importer: .venv/.installed-dev
	@$(PYTHON) -m scripts.check --importer

clean:
	@echo "Removing build outputs, caches and virtual environments of this checkout."
	@rm -rf .venv .venv-3.13 .venv-openai .work build dist site .mypy_cache .pytest_cache .ruff_cache

.venv/.installed-%: pyproject.toml
	@scripts/venv .venv $*

.venv-openai/.installed-%: pyproject.toml
	@scripts/venv .venv-openai $*
