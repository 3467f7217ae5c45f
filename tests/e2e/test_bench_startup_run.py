"""`make bench ONLY=startup`, once: real programs, and the report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.worker_support import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.slow("starts each command twice, a worker four times")]


@pytest.mark.timeout(300)
def test_every_start_is_reported_beside_its_bar(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "--only", "startup", "--repeat", "1", "--json"]
    done = subprocess.run([*command, "--out", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = {row["key"]: row for row in json.loads(done.stdout)["rows"]}
    keys = ("import", "app", "send", "help", "check", "first", "first_cpu", "ready", "web", "dev")
    assert all(rows[f"startup_{key}"]["value"] > 0 for key in keys)
    assert rows["startup_ready"]["value"] <= rows["startup_first"]["value"]
    assert rows["startup_first"]["bar"] == {"limit": 0.7, "sense": "at most"}
    if sys.platform == "linux":
        assert rows["startup_worker_memory"]["value"] > rows["startup_send_memory"]["value"] > 0
