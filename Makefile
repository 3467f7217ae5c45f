# Everything runs in .venv in this directory. Each target makes it if it is missing, and installs what it needs into it:
# $(call with,test) is the stamp of the extra `test` of pyproject.toml. The targets work in any order.
PYTHON ?= python3
VENV := .venv
PEERS := .venv-peers
BIN := $(VENV)/bin
JOBS ?= 4
BROWSERS ?= 2
with = $(foreach extra,$(1),$(VENV)/.installed-$(extra))

.DEFAULT_GOAL := help
.NOTPARALLEL: # two pips must not write into one environment
.PHONY: help demo test test-quick test-versions test-django test-pooler test-browser test-languages screenshots test-install test-new lint docs-check fmt docs dev bench profile bench-peers soak soak-deploys proof chaos heavy clean

help: ## show this list
	@echo "make PYTHON=python3.13 TARGET uses another Python (remove $(VENV) first). The targets:"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# WEB=1: instead, a shop that stays busy, and its dashboard, until Ctrl-C.
demo: $(call with,embedded) $(if $(WEB),$(call with,web)) ## thousands of tasks: sent, run, retried, cancelled, killed and recovered
	$(BIN)/horsies demo $(if $(WEB),--web)
	$(if $(WEB),,@echo "A dashboard, and a shop that stays busy for it: make demo WEB=1")

# Compiled first: hundreds of processes are started.
test: $(call with,test) ## all tests
	$(BIN)/python -m compileall -q horsies tests
	$(BIN)/python -m pytest -n $(JOBS) --dist loadscope -q

# For the inner loop: what needs no worker process. Under a minute on two cores, once mypy has its cache.
test-quick: $(call with,test) ## the tests that need no worker process
	$(BIN)/python -m pytest -n logical --maxprocesses $(JOBS) --dist loadscope -q \
		tests/unit tests/architecture tests/store tests/deploy

# Servers of the system, and for the others archives of npm, kept in .postgres. VERSIONS=15,16 for some of them, TESTS= for
# other tests. With HORSIES_TEST_DATABASE_URL the same tests run on that server alone.
test-versions: $(call with,test) ## the tests of store, schema, recovery and workflows on PostgreSQL 13 to 18
	$(BIN)/python -m compileall -q horsies tests
	$(BIN)/python -m tests.versions --jobs $(JOBS) $(if $(VERSIONS),--versions $(VERSIONS)) $(TESTS)

# With each Python that is found, in environments of their own (.venv-django). It asks the package index.
test-django: $(call with,test) ## the tests of Django with its oldest and newest version, and Django's own of its tasks
	$(BIN)/python -m tests.django.versions --jobs $(JOBS)

test-pooler: $(call with,test) ## the tests with a real PgBouncer between, which must be installed
	HORSIES_TEST_POOLER=1 $(BIN)/python -m pytest -n $(JOBS) -q tests/pooler

test-browser: $(call with,browser) ## the tests of the dashboard in a real browser, which must be installed
	$(BIN)/python -m compileall -q horsies tests
	HORSIES_TEST_BROWSER=1 $(BIN)/python -m pytest -n $(BROWSERS) --dist loadscope -q tests/browser

# TypeScript's compiler and the driver `pg` come from npm; Go is used if it is installed.
test-languages: $(call with,test) ## the tests of the pages about other languages, with what npm and Go can check
	HORSIES_TEST_LANGUAGES=1 $(BIN)/python -m pytest -n $(JOBS) -q tests/e2e/test_other_languages_page.py tests/e2e/test_typescript.py

screenshots: $(call with,browser) ## write the pictures of docs/images again, with a real browser
	HORSIES_TEST_BROWSER=1 HORSIES_TEST_SCREENSHOTS=docs/images $(BIN)/python -m pytest -n 0 -q tests/browser/test_screenshots.py

test-install: $(call with,test) ## resolve the pinned versions for each supported Python, and build the package
	HORSIES_TEST_INSTALL=1 $(BIN)/python -m pytest -n $(JOBS) -q tests/install

# Asks the package index, like test-install. TEMPLATE=django for one of them, NEW_PYTHON=python3.13 for another Python.
test-new: $(call with,test) ## projects of horsies new, in new environments with the built package
	HORSIES_TEST_NEW=1 $(BIN)/python -m pytest -n 1 -q tests/install/test_new_projects.py $(if $(TEMPLATE),-k $(TEMPLATE))

lint: $(call with,lint docs) ## ruff, mypy --strict, and the documentation site without a warning
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@$(MAKE) --no-print-directory docs-check

docs-check: $(call with,docs) ## build the documentation site; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

fmt: $(call with,lint) ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The pages that come from the code (settings, commands), then the site: build/site/index.html. A warning is an error.
docs: $(call with,docs) ## write the generated pages again and build the site, build/site/index.html
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

dev: $(call with,develop) ## install everything for work on horsies into .venv

# ONLY=drain,latency REPEAT=5 TASKS=50000 PG=max_wal_size=4GB JSON=1; DOC=1 writes the table into docs/performance.md.
# AGAINST=DIR ROUNDS=5 compares with the checkout in DIR, which has its own .venv: ratios of startup, drain, latency, send.
# ONLY=scale ROWS=10000000 WORKERS=16 for docs/scale.md, ONLY=scale.caps or ONLY=web for a part of it.
bench: $(call with,embedded uvloop dev web $(if $(findstring scale,$(ONLY)),bench)) ## measure every figure of docs/performance.md, about seven minutes
	$(BIN)/python -m benchmarks $(if $(ONLY),--only $(ONLY)) $(if $(TASKS),--tasks $(TASKS)) \
		$(if $(REPEAT),--repeat $(REPEAT)) $(foreach setting,$(PG),--pg $(setting)) \
		$(if $(ROWS),--rows $(ROWS)) $(if $(WORKERS),--workers $(WORKERS)) \
		$(if $(JSON),--json) $(if $(DOC),--doc) $(if $(AGAINST),--against $(AGAINST)) $(if $(ROUNDS),--rounds $(ROUNDS))

# Which statements take the server's time. SHAPE=drain, or fan_out, roots, mapped, chain, diamonds of workflows; SIZE=10000
profile: $(call with,embedded uvloop) ## show which statements a drain or a workflow spends the server's time on
	$(BIN)/python -m benchmarks.profile $(if $(SHAPE),--shape $(SHAPE)) $(if $(SIZE),--size $(SIZE))

# Ours beside other queues, in docs/peers.md. TASKS=60000 ROUNDS=3 PINGS=100 ONLY=pgqueuer,oban DOCS=0 PEERS_PYTHON=python3.13
bench-peers: $(PEERS)/.installed ## measure other queues beside ours
	$(PEERS)/bin/python -m benchmarks.peers

$(PEERS)/.installed: benchmarks/peers/install.py benchmarks/peers/constraints.txt constraints.txt pyproject.toml
	$(PYTHON) benchmarks/peers/install.py $(PEERS)

# Does anything grow? NOTIFY=when_waiting for another mode; benchmarks/out/soak.csv and soak.png.
SECONDS ?= 300
RATE ?= 500
PROCESSES ?= 2
soak: $(call with,embedded uvloop bench) ## a steady load for SECONDS: does anything grow?
	$(BIN)/python -m benchmarks.soak --seconds $(SECONDS) --rate $(RATE) --processes $(PROCESSES) \
		$(if $(NOTIFY),--notify $(NOTIFY)) $(foreach setting,$(PG),--pg $(setting))

# Workers of two versions of an app, deployed back and forth while both are sent to: no task may fail. WORKERS=5 for more places.
soak-deploys: $(call with,test) ## a fleet that is deployed back and forth for SECONDS: does a task fail?
	$(BIN)/python -m tests.deploys --seconds $(SECONDS) $(if $(WORKERS),--workers $(WORKERS))

# The state machine under random interleavings, with new stories each time. PROOF_EXAMPLES=200 instead of a time for the
# first of the properties, PROOF_SEED= of a run that found something.
PROOF_SECONDS ?= 300
proof: $(call with,test) ## the state machine against its model, with new stories for PROOF_SECONDS
	$(BIN)/python -m tests.proof --seconds $(PROOF_SECONDS) $(if $(PROOF_EXAMPLES),--stories $(PROOF_EXAMPLES)) \
		$(if $(PROOF_SEED),--seed $(PROOF_SEED))
	PROOF_SECONDS=$(PROOF_SECONDS) $(BIN)/python -m pytest -n 2 -q tests/proof_pairs tests/proof_workflows

# Workers, the server and what is between them are killed, stopped and cut while tasks run; then nothing may be lost,
# doubled or stuck. SECONDS=1200 for the long run, SEED= of a run that found something.
chaos: $(call with,test) ## break everything for SECONDS while tasks run, then check the history
	$(BIN)/python -m tests.chaos --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

# What takes minutes: recovery of 100,000 stale tasks, retention of a million old ones, a cut at every statement, ten
# schedulers that are killed again and again.
heavy: $(call with,test) ## the tests that take minutes
	HORSIES_HEAVY=1 $(BIN)/python -m pytest -n 0 -q -s tests/e2e/test_many_stale.py tests/e2e/test_retention_under_load.py \
		tests/e2e/test_database_cut.py tests/e2e/test_child_stuck.py tests/e2e/test_sweepers_at_once.py \
		tests/unit/test_calendar_search.py tests/e2e/test_schedulers_killed.py tests/e2e/test_scheduler_process.py \
		tests/store/test_monitoring_plans.py tests/e2e/test_getting_started.py tests/e2e/test_reload.py \
		tests/install/test_new_projects.py

clean: ## remove the environments, the embedded database, fetched servers and the caches
	rm -rf $(VENV) $(PEERS) .venv-django .horsies .postgres .pytest_cache .mypy_cache .ruff_cache

# pip says what it does and why it fails, which --quiet would hide.
$(VENV)/.installed-%: $(VENV)/.made pyproject.toml constraints.txt
	@echo "Installing horsies with the extra '$*' into $(VENV). The first time this takes up to a minute or two."
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e ".[$*]"
	@touch $@

AGAIN = make PYTHON=python3.12 $(MAKECMDGOALS)
$(VENV)/.made:
	@command -v $(firstword $(PYTHON)) >/dev/null \
		|| { echo "$(PYTHON) was not found. Install Python 3.11 or newer, or name one that you have: $(AGAIN)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "$(PYTHON) is older than Python 3.11, or does not run. Name another one: $(AGAIN)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "$(PYTHON) cannot make virtual environments: its module venv or ensurepip is missing." >&2; \
		echo "On Debian or Ubuntu: sudo apt install python3-venv. Or name another Python: $(AGAIN)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@
