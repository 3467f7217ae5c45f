"""`make bench ONLY=scale` with tiny numbers: real programs, a real worker, and a report of every figure."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.worker_support import ROOT

pytestmark = pytest.mark.e2e

OPTIONS = ("--share", "0.002", "--rows", "1500", "--workers", "1", "--tasks", "100", "--repeat", "1", "--json")


def test_parts_of_scale_report_every_figure_beside_its_bar(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "--only", "waiters,looks,scale.retention", *OPTIONS]
    done = subprocess.run([*command, "--out", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    rows = {row["key"]: row for row in found["rows"]}
    assert rows["waiters_statements"]["value"] > 0
    assert rows["retention_rate"]["value"] >= 0 and rows["retention"]["bar"] == {"limit": 1.0, "sense": "at least"}
    assert rows["looks_broken"]["holds"] is True
    assert [int(rows) for rows, _ in found["curves"]["claim_ms"]] == [1_000, 1_500]
    assert json.loads((tmp_path / "bench.json").read_text())["rows"] == found["rows"]
