"""`make bench ONLY=fleet,history,backlog,web` with tiny numbers: a real program, statements counted, and the report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.worker_support import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.slow("runs a benchmark")]

OPTIONS = ("--share", "0.002", "--repeat", "1", "--json")


@pytest.mark.timeout(300)
def test_scale_reports_its_figures_beside_their_bars(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "--only", "fleet,history,backlog", "--workers", "2", *OPTIONS]
    command += ["--rows", "2000", "--tasks", "200", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    rows = {row["key"]: row for row in found["rows"]}
    keys = ("idle_connections", "fleet_claims", "fleet_result", "history", "backlog", "disk")
    assert all(rows[key]["value"] > 0 for key in keys)
    assert rows["idle_statements"]["bar"] == {"limit": 1, "sense": "under"}
    assert json.loads((tmp_path / "bench.json").read_text())["rows"] == found["rows"]


@pytest.mark.timeout(400)
def test_m95_the_dashboard_is_measured_and_costs_nothing_while_nobody_looks(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "--only", "web", "--rows", "500", "--tasks", "500", *OPTIONS]
    done = subprocess.run([*command, "--out", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = {row["key"]: row for row in json.loads(done.stdout)["rows"]}
    assert rows["web_slowest"]["bar"] == {"limit": 150, "sense": "under"} and rows["web_slowest"]["value"] > 0
    assert rows["web_watched"]["bar"] == {"limit": 0.98, "sense": "at least"} and rows["web_watched"]["value"] > 0
    idle = [rows[f"web_idle_{what}"]["value"] for what in ("marks", "sessions", "statements")]
    assert idle == [0, 0, 0] and "1 and 1" in rows["web_idle_marks"]["note"]
    assert rows["web_broken"]["value"] == 0, rows["web_broken"]["note"]
    assert rows["web_watched_broken"]["value"] == 0
