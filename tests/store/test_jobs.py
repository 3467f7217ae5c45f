"""Tasks as recovery hooks see them, loaded from their rows (R-71)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from horsies import Job, TaskStatus
from horsies.core.store.task_reads import jobs
from tests.factories import given_task

Db = AsyncConnection[Any]


async def test_r71_l38_a_view_has_what_the_row_has(db: Db) -> None:
    times = [datetime(2026, 1, 1, 12, n, tzinfo=UTC) for n in range(4)]
    task_id = await given_task(
        db,
        status=TaskStatus.RUNNING,
        task_name="charge_card",
        queue_name="slow",
        args='["a", 1]',
        kwargs='{"b": [true]}',
        flags=Jsonb({"careful": True}),
        retry_count=2,
        max_retries=5,
        priority=7,
        enqueued_at=times[0],
        claimed_at=times[1],
        started_at=times[2],
        good_until=times[3],
        claimed_by_worker_id="host:1:abc",
    )
    [view] = await jobs(db, [task_id])
    assert view == Job(
        task_id, "charge_card", "slow", TaskStatus.RUNNING, "host:1:abc", 2, 5, 7,
        times[0], times[1], times[2], times[3], '["a", 1]', '{"b": [true]}', '{"careful": true}',
    )  # fmt: skip
    assert (view.args, view.kwargs, view.flags, view.attempts) == (["a", 1], {"b": [True]}, {"careful": True}, 3)


async def test_r71_views_come_in_the_order_of_the_ids_and_missing_ones_are_left_out(db: Db) -> None:
    ids = [await given_task(db, status=status) for status in (TaskStatus.CLAIMED, TaskStatus.RUNNING) * 3]
    wanted = [ids[3], "nobody", ids[0], ids[5], ids[1]]
    found = await jobs(db, wanted)
    assert [view.id for view in found] == [ids[3], ids[0], ids[5], ids[1]]
    assert [view.status.value for view in found] == ["RUNNING", "CLAIMED", "RUNNING", "RUNNING"]
    assert found[0].enqueued_at is not None and found[0].enqueued_at.utcoffset() is not None
    assert await jobs(db, []) == []
