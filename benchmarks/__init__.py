"""`make bench`, `make bench-peers` and `make soak`. Here is what the measured app and the measurements both know."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
APP = "benchmarks.app:app"
APP_SETTINGS = "BENCH_APP"  # the variable with the settings of that app, as JSON
