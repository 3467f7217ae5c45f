"""What the tests that kill workers share. They kill only processes that they have started themselves."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import psutil

from horsies import TaskHandle
from horsies.core.recovery import start_journal
from tests.support import eventually
from tests.worker_support import ROOT, Rows, WorkerProcess

MORTAL = f"{ROOT / 'tests' / 'apps' / 'mortal.py'}:app"


async def send(task: Any, *args: Any, **kwargs: Any) -> TaskHandle[Any]:
    handle: TaskHandle[Any] = (await task.send_async(*args, **kwargs)).unwrap()
    return handle


async def begun(traces: Path, name: str, times: int = 1) -> int:
    """Wait until this task has begun so often; the pid of its last process."""
    path = traces / name
    await eventually(
        lambda: path.exists() and len(path.read_text().splitlines()) >= times,
        30,
        what=f"{name} has begun {times} times",
    )
    return int(path.read_text().splitlines()[times - 1].split()[0])


def lines(traces: Path, name: str) -> list[str]:
    """What this task has left, without the pids."""
    path = traces / name
    return [line.partition(" ")[2] for line in path.read_text().splitlines()] if path.exists() else []


def family_of(worker: WorkerProcess) -> list[psutil.Process]:
    """Its processes but for itself."""
    return psutil.Process(worker.process.pid).children(recursive=True)


def kill_all(worker: WorkerProcess) -> None:
    """The supervisor first, so that it can take notice of nothing any more."""
    family = family_of(worker)
    worker.process.kill()
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


async def worker_of(rows: Rows, worker: WorkerProcess) -> dict[str, Any]:
    """Its row, once it is registered."""
    query = "SELECT * FROM horsies_workers WHERE pid = %s"
    found = await eventually(lambda: rows.all(query, worker.process.pid), 30, what="the worker is registered")
    return found[0]


async def outcomes(rows: Rows, task_id: str) -> list[tuple[str, bool]]:
    return [(row["outcome"], row["will_retry"]) for row in await rows.attempts(task_id)]


def journal_of(worker_id: str) -> Path:
    (directory,) = start_journal.directories()
    return directory / start_journal.file_name(worker_id)
