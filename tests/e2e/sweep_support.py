"""Workers that sweep each other, for tests with real processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support import eventually
from tests.worker_support import ROOT, Rows, WorkerProcess

SWEEPING = ROOT / "tests" / "apps" / "sweeping.py"


def sweeping_worker(database_url: str, *options: str, **env: str) -> WorkerProcess:
    return WorkerProcess(database_url, *options, locator=f"{SWEEPING}:app", env=env)


async def registered(rows: Rows, process: WorkerProcess) -> str:
    """Its worker id, as soon as it has registered."""

    async def found() -> list[dict[str, Any]]:
        return await rows.all("SELECT worker_id FROM horsies_workers WHERE pid = %s", process.process.pid)

    (row,) = await eventually(found, 30, what="the worker has registered")
    return str(row["worker_id"])


def lines(traces: Path, name: str) -> list[list[str]]:
    """What was traced under this name, each line in words."""
    path = traces / name
    return [line.split(maxsplit=2) for line in path.read_text().splitlines()] if path.exists() else []
