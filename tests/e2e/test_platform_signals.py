"""A platform that stops a worker by a signal to every one of its processes, as some do: the tasks finish."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support import eventually
from tests.worker_support import Rows, WorkerProcess

pytestmark = pytest.mark.e2e


def family_of(pid: int) -> list[int]:
    """The fork server of a worker, its children and what they have started, the youngest first, and the worker."""
    return [*(one.pid for one in reversed(psutil.Process(pid).children(recursive=True))), pid]


async def test_w50a_tasks_finish_if_every_process_gets_sigterm(
    basic: Any, rows: Rows, database_url: str, traces: Path
) -> None:
    """A sync and an async one; what waited behind them goes back. The worker ends as after a signal to it alone."""
    sends = [basic.nap.send_async(2.0), basic.anap.send_async(2.0)]
    first = [(await send).unwrap().task_id for send in sends]
    with WorkerProcess(database_url, "--processes", "2", env={"TRACES": str(traces)}) as worker:
        await eventually(lambda: all((traces / name).exists() for name in ("nap", "anap")), what="both have begun")
        behind = (await basic.nap.send_async(0.0, name="behind")).unwrap().task_id
        family = family_of(worker.process.pid)
        assert len(family) >= 4, "the worker, its fork server and two children"
        for pid in family:
            os.kill(pid, signal.SIGTERM)
        code, said = await asyncio.to_thread(worker.wait)
    assert code == 0, said
    for task_id in first:
        row = await rows.task(task_id)
        assert (row["status"], row["retry_count"]) == ("COMPLETED", 0), said
        assert [one["outcome"] for one in await rows.attempts(task_id)] == ["COMPLETED"]
    assert await rows.status(behind) in ("PENDING", "COMPLETED")
