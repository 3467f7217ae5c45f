# Everything runs in .venv in this directory. Each target creates it if it is missing, and installs the dependency group of
# pyproject.toml that it needs: $(call with,test) is the stamp of the group `test`.
PYTHON ?= python3
VENV := .venv
PEERS := .venv-peers
BIN := $(VENV)/bin
JOBS ?= 6
with = $(foreach group,$(1),$(VENV)/.installed-$(group))
# RETRY=3: if at most three tests fail, run them once more, alone. TESTS="tests/store -k claim" runs only those.
RUN_TESTS = $(BIN)/python -m tests.run --jobs $(JOBS) $(if $(RETRY),--retry $(RETRY))

.DEFAULT_GOAL := help
.NOTPARALLEL: # two pips must not write into one environment
.PHONY: help demo test lint fmt dev docs test-quick test-slow test-times test-browser bench bench-peers soak proof chaos clean

help: ## show this list
	@echo "make PYTHON=python3.13 TARGET uses another Python (remove $(VENV) first)."
	@awk -F ':.*## ' '/^##/ { sub(/^## /, ""); printf "\n%s\n", $$0 } /^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

## Try horsies
demo: $(call with,demo) ## a small shop: send, run, retry, cancel, kill and recover thousands of tasks; WEB=1: with its dashboard, until Ctrl-C
	$(BIN)/horsies demo $(if $(WEB),--web)
	$(if $(WEB),,@echo "The same shop with its dashboard, until Ctrl-C: make demo WEB=1")

test: $(call with,test) ## run the main tests; TESTS="tests/store -k claim" for some, VERSIONS=13,18 on other PostgreSQL servers
	$(BIN)/python -m compileall -q horsies tests
	$(if $(VERSIONS),$(BIN)/python -m tests.versions --jobs $(JOBS) $(if $(filter-out all,$(VERSIONS)),--versions $(VERSIONS)) $(TESTS),$(RUN_TESTS) $(TESTS))

## Change horsies
lint: $(call with,lint docs) ## ruff, mypy --strict, what users' type checkers see, and the documentation site
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tests.typing
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

fmt: $(call with,lint) ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test-quick: JOBS = 4
test-quick: $(call with,test) ## the tests that start no worker process, in less than 40 seconds
	$(RUN_TESTS) tests/unit tests/architecture tests/store --ignore-glob='*_plans.py' --ignore-glob='*_schema_*' $(TESTS)

# Faults that take minutes, large data, pages, installations, each Python and framework version that is found. Some need
# the package index, npm, Go or PgBouncer, and are skipped without them.
test-slow: $(call with,test) ## the tests that take too long for `make test`; TESTS=tests/install for some of them
	$(BIN)/python -m compileall -q horsies tests
	$(RUN_TESTS) --slow $(TESTS)

test-times: $(call with,test) ## run the main tests; show the slowest files, and where their time goes
	$(RUN_TESTS) -p tests.times $(TESTS)

test-browser: $(call with,browser) ## the tests of the dashboard in a real browser, which must be installed
	$(BIN)/python -m compileall -q horsies tests
	HORSIES_TEST_BROWSER=1 $(RUN_TESTS) --jobs 2 $(or $(TESTS),tests/browser)

docs: $(call with,docs) $(if $(PICTURES),$(call with,browser)) ## write the generated pages and build the site into build/site; PICTURES=1: and the screenshots
	$(if $(PICTURES),HORSIES_TEST_BROWSER=1 HORSIES_TEST_SCREENSHOTS=docs/images $(BIN)/python -m pytest -q tests/browser/test_screenshots.py)
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

dev: $(call with,develop) ## install everything for work on horsies into .venv

## Measure and prove
# ONLY=drain,latency REPEAT=5 TASKS=50000 PG=max_wal_size=4GB JSON=1; DOC=1 writes the table into docs/performance.md.
# AGAINST=DIR ROUNDS=5 compares with the checkout in DIR, which has its own .venv: startup, drain, latency, send.
# ONLY=scale ROWS=10000000 WORKERS=16 for docs/scale.md; recovery, schedules and web only with ONLY=. PROFILE=drain
# (or fan_out, roots, mapped, chain, diamonds; SIZE=10000) shows which statements take the server's time.
bench: $(call with,bench) ## measure every figure of docs/performance.md; ONLY=startup for some, AGAINST=DIR next to another checkout
	$(if $(PROFILE),$(BIN)/python -m benchmarks.profile --shape $(PROFILE) $(if $(SIZE),--size $(SIZE)),\
		$(BIN)/python -m benchmarks $(if $(ONLY),--only $(ONLY)) $(if $(TASKS),--tasks $(TASKS)) \
		$(if $(REPEAT),--repeat $(REPEAT)) $(foreach setting,$(PG),--pg $(setting)) \
		$(if $(ROWS),--rows $(ROWS)) $(if $(WORKERS),--workers $(WORKERS)) \
		$(if $(JSON),--json) $(if $(DOC),--doc) \
		$(if $(AGAINST),--against $(AGAINST)) $(if $(ROUNDS),--rounds $(ROUNDS)))

# TASKS=60000 ROUNDS=3 PINGS=100 ONLY=pgqueuer,oban DOCS=0; PYTHON=python3.13, because not all of them run on 3.11.
bench-peers: $(PEERS)/.installed ## measure other queues next to horsies, for docs/peers.md
	$(PEERS)/bin/python -m benchmarks.peers

$(PEERS)/.installed: benchmarks/peers/install.py benchmarks/peers/constraints.txt constraints.txt pyproject.toml
	$(PYTHON) benchmarks/peers/install.py $(PEERS)

# RATE=500 PROCESSES=2 NOTIFY=when_waiting for another mode; benchmarks/out/soak.csv.
SECONDS ?= 300
soak: $(call with,bench test) ## a steady load for SECONDS: does anything grow? DEPLOYS=1: a fleet that is deployed back and forth
	$(if $(DEPLOYS),$(BIN)/python -m tests.deploys --seconds $(SECONDS) $(if $(WORKERS),--workers $(WORKERS)),\
		$(BIN)/python -m benchmarks.soak --seconds $(SECONDS) --rate $(or $(RATE),500) --processes $(or $(PROCESSES),2) \
		$(if $(NOTIFY),--notify $(NOTIFY)) $(foreach setting,$(PG),--pg $(setting)))

# STORIES=200 instead of a time for the first of the properties, SEED= of a run that found something.
proof: $(call with,test) ## the state machine against its model, with new random stories for SECONDS
	$(BIN)/python -m tests.proof --seconds $(SECONDS) $(if $(STORIES),--stories $(STORIES)) $(if $(SEED),--seed $(SEED))
	PROOF_SECONDS=$(SECONDS) $(BIN)/python -m pytest -n 2 -q tests/proof_pairs tests/proof_workflows

chaos: $(call with,test) ## kill, pause and cut everything for SECONDS while tasks run, then check the history; SEED=
	$(BIN)/python -m tests.chaos --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

clean: ## remove the environments, the embedded database, downloaded servers and the caches
	rm -rf $(VENV) $(PEERS) .venv-django .horsies .postgres .pytest_cache .mypy_cache .ruff_cache

# pip reports what it does and why it fails, which --quiet would hide. The project comes from this directory; the groups
# name its extras.
$(VENV)/.installed-%: $(VENV)/.ready pyproject.toml constraints.txt
	@echo "Installing horsies with what '$*' needs into $(VENV). The first time this takes up to a minute or two."
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e . --group $*
	@touch $@

AGAIN = make PYTHON=python3.12 $(MAKECMDGOALS)
# An environment from before the distribution was renamed has the stamp .made, and the old name in it. The pip of
# Python 3.11 and 3.12 knows no groups.
$(VENV)/.ready:
	@command -v $(firstword $(PYTHON)) >/dev/null \
		|| { echo "$(PYTHON) was not found. Install Python 3.11 or newer, or name one that you have: $(AGAIN)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "$(PYTHON) is older than Python 3.11, or does not run. Name another one: $(AGAIN)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "$(PYTHON) cannot make virtual environments: its module venv or ensurepip is missing." >&2; \
		echo "On Debian or Ubuntu: sudo apt install python3-venv. Or name another Python: $(AGAIN)" >&2; exit 1; }
	@test ! -e $(VENV)/.made || rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --upgrade -c constraints.txt pip
	@touch $@
