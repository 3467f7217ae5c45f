"""Fixtures of the tests of the testing kit."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import IO

import pytest

from horsies.testing import worker_process
from tests import warm_start


@pytest.fixture(autouse=True)
def _workers_start_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker of a test costs its run, and not the import of the library. `test_plugin` starts workers cold."""

    def start(log: IO[str]) -> subprocess.Popen[str]:
        return warm_start.start(
            (),
            program=warm_start.DOOMED,
            cwd=Path.cwd(),
            env=os.environ,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
        )

    monkeypatch.setattr(worker_process, "start_process", start)
