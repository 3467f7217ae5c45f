"""Run-ahead keeps no work from other workers: three of them share what takes its time, whatever came before (W-25a)."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any

import pytest

from tests.e2e.killing import worker_of
from tests.support import eventually
from tests.worker_support import Rows, WorkerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow("many tasks and several workers")]

WORKERS = 3
SHORT, LONGER = 300, 60
NAP_S = 0.2


async def shares(rows: Rows, task: Any, calls: list[Any]) -> list[int]:
    """Send these all at once; how many of them each worker has run, once all have ended."""
    ids = [handle.task_id for handle in (await task.send_many_async(calls)).unwrap()]
    query = "SELECT claimed_by_worker_id AS worker FROM horsies_tasks WHERE status = 'COMPLETED' AND id = ANY(%s)"

    async def all_ended() -> list[dict[str, Any]] | None:
        found = await rows.all(query, ids)
        return found if len(found) == len(ids) else None

    found = await eventually(all_ended, 60, what=f"{len(ids)} tasks have ended")
    return sorted(Counter(row["worker"] for row in found or []).values())


@pytest.mark.parametrize("is_same_name", [False, True], ids=["of another name", "of the same name"])
async def test_w25a_longer_tasks_after_many_short_ones_are_shared_by_all_workers(
    basic: Any, rows: Rows, database_url: str, is_same_name: bool
) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(WORKERS):
            worker = stack.enter_context(WorkerProcess(database_url, "--processes", "2"))
            await worker_of(rows, worker)
        await shares(rows, *((basic.doze, [(0.0,)] * SHORT) if is_same_name else (basic.noop, [()] * SHORT)))
        found = await shares(rows, basic.doze, [(NAP_S,)] * LONGER)
    assert len(found) == WORKERS
    assert found[-1] <= LONGER // 2, f"one worker kept most of them: {found}"
    attempts = await rows.all("SELECT outcome FROM horsies_task_attempts")
    assert Counter(row["outcome"] for row in attempts) == {"COMPLETED": SHORT + LONGER}
