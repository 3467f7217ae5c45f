"""A worker is killed between the write of a task's end and anything that follows. The end is one statement with the
attempt and the end of the claim, so nothing of the task is left to repair; what the worker leaves beside it is.
"""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from psycopg import AsyncConnection

from tests.support import eventually
from tests.worker_support import Rows, WorkerProcess

pytestmark = pytest.mark.e2e

WAITS_FOR_THE_ROW = """
    SELECT 1 FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%%SET status = ''COMPLETED''%%'
"""


def kill(worker: WorkerProcess) -> None:
    """The supervisor and everything below it, at once."""
    os.killpg(worker.process.pid, signal.SIGKILL)
    worker.process.wait()


async def only_worker(rows: Rows, *gone: str) -> str | None:
    found = [row["worker_id"] for row in await rows.all("SELECT worker_id FROM horsies_workers")]
    return found[0] if len(found) == 1 and found[0] not in gone else None


async def test_r55_r56_an_end_that_was_written_stays_though_nobody_read_the_answer(
    db: AsyncConnection[Any], database_url: str, basic: Any, rows: Rows
) -> None:
    handle = (await basic.nap.send_async(2.0)).unwrap()
    with WorkerProcess(database_url) as first:
        await rows.until(handle.task_id, "RUNNING")
        dead = await only_worker(rows)
        async with db.transaction():
            found = await db.execute("SELECT status FROM horsies_tasks WHERE id = %s FOR UPDATE", [handle.task_id])
            assert await found.fetchone() == ("RUNNING",)
            await eventually(lambda: rows.all(WAITS_FOR_THE_ROW), what="the worker waits to write the end")
            first.process.send_signal(signal.SIGSTOP)
        # The statement is the server's now: it commits, and the worker cannot even read that.
        ended = await rows.until(handle.task_id, "COMPLETED")
        kill(first)
    assert dead is not None
    assert (ended["claimed"], ended["claim_expires_at"]) == (False, None)
    with WorkerProcess(database_url) as second:
        survivor = await eventually(lambda: only_worker(rows, dead), what="the dead worker's row is cleared away")
        assert survivor != dead
        assert (await (await basic.add.send_async(1, 2)).unwrap().get_async(timeout_ms=20_000)).ok == 3
        assert second.stop()[0] == 0
    assert (await handle.get_async(timeout_ms=5_000)).is_ok()
    assert await rows.task(handle.task_id) == ended
    assert [attempt["outcome"] for attempt in await rows.attempts(handle.task_id)] == ["COMPLETED"]


async def test_l12_t80_a_retry_needs_no_worker_that_remembers_it(database_url: str, basic: Any, rows: Rows) -> None:
    """The one that wrote it would have rung when it is due."""
    handle = (await basic.flaky.send_async("flaky", 1)).unwrap()
    with WorkerProcess(database_url) as first:

        async def is_written() -> bool:
            row = await rows.task(handle.task_id)
            return (row["status"], row["retry_count"]) == ("PENDING", 1)

        await eventually(is_written, every=0.005)
        kill(first)
    with WorkerProcess(database_url) as second:
        assert (await handle.get_async(timeout_ms=20_000)).ok == 2
        assert second.stop()[0] == 0
    found = [(a["attempt"], a["outcome"], a["will_retry"]) for a in await rows.attempts(handle.task_id)]
    assert found == [(1, "FAILED", True), (2, "COMPLETED", False)]
