"""`make bench ONLY=scale` with tiny numbers: a real program, statements counted, and the report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.worker_support import ROOT

pytestmark = pytest.mark.e2e

OPTIONS = ("--share", "0.002", "--repeat", "1", "--json")


@pytest.mark.timeout(300)
def test_a_part_of_scale_reports_its_figures_beside_their_bars(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "--only", "waiters", *OPTIONS]
    done = subprocess.run([*command, "--out", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    rows = {row["key"]: row for row in found["rows"]}
    assert rows["waiters_statements"]["value"] > 0
    assert rows["waiters"]["bar"] == {"limit": 3, "sense": "under"}
    assert json.loads((tmp_path / "bench.json").read_text())["rows"] == found["rows"]
