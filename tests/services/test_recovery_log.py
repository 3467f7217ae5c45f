"""What the log says when tasks of others are recovered: how many, what became of them, and which have failed (R-55)."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.recovery.apply import LINES, recover_tasks
from horsies.core.recovery.decide import Action
from horsies.core.store import workers
from horsies.core.store.workers import WHENEVER, Gone
from horsies.core.types.status import TaskStatus
from tests.factories import given_task

Db = AsyncConnection[Any]

RETRYING = (
    '{"retry_policy": {"max_retries": 3, "intervals": [60, 120, 240], "backoff_strategy": "fixed", "jitter": false,'
    ' "auto_retry_for": ["WORKER_CRASHED"]}}'
)


async def given_held(db: Db, status: TaskStatus = TaskStatus.RUNNING, **columns: Any) -> str:
    times = {"claimed_at": "2020-01-01", "started_at": "2020-01-01" if status is TaskStatus.RUNNING else None}
    return await given_task(db, status=status, max_retries=3, **times, **columns)


async def recovered(db: Db) -> None:
    found = await workers.held(db, [Gone("w1", WHENEVER)], until=WHENEVER)
    tasks = [one.task for one in found]
    assert len(await recover_tasks(db, tasks, Action.RETRY_OR_FAIL, "its worker is gone", "me")) == len(tasks)


async def test_r55_each_task_that_fails_has_a_line(db: Db, caplog: pytest.LogCaptureFixture) -> None:
    """Also one whose deadline leaves no room for the retry that its policy wants (L-22)."""
    soon = await (await db.execute("SELECT now() + %s", [timedelta(seconds=30)])).fetchone()
    assert soon is not None
    failed = [
        await given_held(db, task_name="mail"),
        await given_held(db, task_name="late", task_options=RETRYING, good_until=soon[0]),
    ]
    await given_held(db, task_options=RETRYING)
    await given_held(db, TaskStatus.CLAIMED)
    await recovered(db)
    first, *lines = caplog.records
    counts = re.fullmatch(r"4 tasks recovered \((.*)\): its worker is gone", first.getMessage())
    assert counts is not None
    assert set(counts[1].split(", ")) == {"2 failed", "1 to be retried", "1 returned to the queue"}
    assert {line.__dict__["horsies"]["task_id"] for line in lines} == set(failed)
    for line in lines:
        facts = line.__dict__["horsies"]
        assert (line.levelname, facts["error_code"], facts["worker"]) == ("ERROR", "WORKER_CRASHED", "me")
        begin = f"task failed: {facts['task']} {facts['task_id']}: WORKER_CRASHED: its worker is gone: worker w1"
        assert line.getMessage().startswith(begin)


async def test_r55_one_task_is_one_and_many_are_counted(db: Db, caplog: pytest.LogCaptureFixture) -> None:
    await given_held(db, TaskStatus.CLAIMED)
    await recovered(db)
    assert caplog.messages == ["1 task recovered (1 returned to the queue): its worker is gone"]
    caplog.clear()
    for _ in range(LINES + 1):
        await given_held(db)
    await recovered(db)
    assert len(caplog.messages) == LINES + 2
    assert caplog.messages[-1] == "1 more task failed in the same way"
