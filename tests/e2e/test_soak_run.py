"""`make soak` in a few seconds: a real worker, a real load, and samples of every kind."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.worker_support import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.slow("runs a benchmark")]

SECONDS = 3.0
RUN = f"""
import sys
from pathlib import Path
from benchmarks.server import Server
from benchmarks.soak import soak
from benchmarks.soak_report import as_csv
print(as_csv(soak(Server(Path(sys.argv[2]), sys.argv[1]), {SECONDS}, 100, 1, "always"), {SECONDS}), end="")
"""


def test_a_soak_of_three_seconds_sees_everything(database_url: str, tmp_path: Path) -> None:
    env = {**os.environ, "DATABASE_URL": database_url}
    command = [sys.executable, "-c", RUN, database_url, str(tmp_path)]
    text = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout
    samples = list(csv.DictReader(text.splitlines()))
    last = samples[-1]
    for name in ("sent", "done", "wait_p99_ms", "probe_ms", "table_bytes"):
        assert float(last[name]) > 0, name
    assert float(last["probe_pages"]) > 0 and float(last["indexes_bytes"]) > float(last["pending_index_bytes"]) > 0
