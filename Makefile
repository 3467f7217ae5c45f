# Everything runs in .venv in this directory; each target makes it if it is missing.
PYTHON ?= python3
VENV := .venv
PEERS := .venv-peers
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
JOBS ?= 4

.PHONY: demo test test-quick lint fmt docs bench bench-peers soak proof chaos heavy clean

demo: $(STAMP)
	$(BIN)/horsies demo

# Compiled first: hundreds of processes are started.
test: $(STAMP)
	$(BIN)/python -m compileall -q horsies tests
	$(BIN)/python -m pytest -n $(JOBS) --dist loadscope -q

# For the inner loop: what needs no worker process. Under a minute on two cores, once mypy has its cache.
test-quick: $(STAMP)
	$(BIN)/python -m pytest -n logical --maxprocesses $(JOBS) --dist loadscope -q \
		tests/unit tests/architecture tests/store tests/deploy

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

fmt: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The pages that come from the code (settings, commands), then the site: build/site/index.html. A warning is an error.
docs: $(STAMP)
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# ONLY=drain,latency REPEAT=5 TASKS=50000 PG=max_wal_size=4GB JSON=1; DOC=1 writes the table into docs/performance.md.
bench: $(STAMP)
	$(BIN)/python -m benchmarks $(if $(ONLY),--only $(ONLY)) $(if $(TASKS),--tasks $(TASKS)) \
		$(if $(REPEAT),--repeat $(REPEAT)) $(foreach setting,$(PG),--pg $(setting)) \
		$(if $(JSON),--json) $(if $(DOC),--doc)

# Ours beside other queues, in docs/peers.md. TASKS=60000 ROUNDS=3 PINGS=100 ONLY=pgqueuer,oban DOCS=0 PEERS_PYTHON=python3.13
bench-peers: $(PEERS)/.installed
	$(PEERS)/bin/python -m benchmarks.peers

$(PEERS)/.installed: benchmarks/peers/install.py benchmarks/peers/constraints.txt constraints.txt pyproject.toml
	$(PYTHON) benchmarks/peers/install.py $(PEERS)

# Does anything grow? NOTIFY=when_waiting for another mode; benchmarks/out/soak.csv and soak.png.
SECONDS ?= 300
RATE ?= 500
PROCESSES ?= 2
soak: $(VENV)/.drawing
	$(BIN)/python -m benchmarks.soak --seconds $(SECONDS) --rate $(RATE) --processes $(PROCESSES) \
		$(if $(NOTIFY),--notify $(NOTIFY)) $(foreach setting,$(PG),--pg $(setting))

$(VENV)/.drawing: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[bench]"
	touch $@

# The state machine under random interleavings, with new stories each time. PROOF_EXAMPLES=200 instead of a time for the
# first of the properties, PROOF_SEED= of a run that found something.
PROOF_SECONDS ?= 300
proof: $(STAMP)
	$(BIN)/python -m tests.proof --seconds $(PROOF_SECONDS) $(if $(PROOF_EXAMPLES),--stories $(PROOF_EXAMPLES)) \
		$(if $(PROOF_SEED),--seed $(PROOF_SEED))
	PROOF_SECONDS=$(PROOF_SECONDS) $(BIN)/python -m pytest -n 2 -q tests/proof_pairs tests/proof_workflows

# Workers, the server and what is between them are killed, stopped and cut while tasks run; then nothing may be lost,
# doubled or stuck. SECONDS=1200 for the long run, SEED= of a run that found something.
chaos: $(STAMP)
	$(BIN)/python -m tests.chaos --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

# What takes minutes: recovery of 100,000 stale tasks, retention of a million old ones, a cut at every statement, ten
# schedulers that are killed again and again.
heavy: $(STAMP)
	HORSIES_HEAVY=1 $(BIN)/python -m pytest -n 0 -q -s tests/e2e/test_many_stale.py tests/e2e/test_retention_under_load.py \
		tests/e2e/test_database_cut.py tests/e2e/test_child_stuck.py tests/e2e/test_sweepers_at_once.py \
		tests/unit/test_calendar_search.py tests/e2e/test_schedulers_killed.py tests/e2e/test_scheduler_process.py \
		tests/store/test_monitoring_plans.py tests/e2e/test_getting_started.py

clean:
	rm -rf $(VENV) $(PEERS) .horsies .pytest_cache .mypy_cache .ruff_cache

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "horsies needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	@echo "installing into $(VENV): the first time this takes a minute or two"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@
