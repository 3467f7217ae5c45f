"""What a worker adds to the statistics (D-59), whatever happens to the database meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core import events
from horsies.core.db.pool import Pool
from horsies.core.models.recovery import RecoveryConfig, WorkerRecoveryConfig
from horsies.core.recovery.hooks import NoHooks
from horsies.core.recovery.reaper import Reaper
from horsies.core.store.tasks import Claimed
from horsies.core.tasks.moves import Claim, Complete, Expire, Fail, Leave, Move, Requeue, Retry, SetAside
from horsies.core.types.status import TaskStatus
from horsies.core.worker.fence import Pulse
from horsies.core.worker.finalize import OutcomeLog
from horsies.core.worker.in_hand import HeldTask
from horsies.core.worker.statistics import Statistics
from tests.factories import given_heartbeat, given_task, given_worker
from tests.recovery_support import LONG_AGO

Db = AsyncConnection[Any]
CLAIM = Claim("id-7", 1)
FAIL = Fail(CLAIM, "{}", "BAD", "no")
SUMS = """
    SELECT queue_name, task_name, error_code, sum(completed)::int, sum(failed)::int, sum(retried)::int,
           sum(expired)::int, max(example_id)
    FROM horsies_rollup WHERE span = 60 AND task_name <> '' GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
"""


def held(**row: Any) -> HeldTask:
    claimed = Claimed(0, 1, None, "id-7", 1, "resize", "images", None, None, None, 0, 0, False, None)._replace(**row)
    return HeldTask(claimed, is_async=False, token=1, claim=CLAIM)


def statistics(pool: Pool, worker_id: str = "me") -> tuple[OutcomeLog, Statistics]:
    outcomes = OutcomeLog(worker_id)
    return outcomes, Statistics(pool, outcomes, Pulse(2.0))


async def sums(db: Db) -> list[tuple[Any, ...]]:
    return await (await db.execute(SUMS)).fetchall()


@pytest.mark.parametrize(
    ("move", "code", "counts", "example"),
    [
        (Complete(CLAIM, "{}"), "", (1, 0, 0, 0), None),
        (FAIL, "BAD", (0, 1, 0, 0), "id-7"),
        (Retry(CLAIM, 5, FAIL), "BAD", (0, 0, 1, 0), None),
        (Expire(CLAIM, "{}"), "TASK_EXPIRED", (0, 0, 0, 1), None),
        (SetAside(CLAIM, "odd"), "ROW_SET_ASIDE", (0, 1, 0, 0), "id-7"),
    ],
    ids=lambda one: type(one).__name__,
)
async def test_d59_every_end_is_added(
    clean_db: Db, clean_pool: Pool, move: Move, code: str, counts: tuple[int, ...], example: str | None
) -> None:
    outcomes, writer = statistics(clean_pool)
    outcomes.note(held(), move)
    await writer.close()
    assert await sums(clean_db) == [("images", "resize", code, *counts, example)]


async def test_d59_what_returns_to_the_queue_has_not_ended(clean_db: Db, clean_pool: Pool) -> None:
    outcomes, writer = statistics(clean_pool)
    outcomes.note(held(), Requeue(CLAIM))
    outcomes.note(held(), Leave(CLAIM, 5.0, FAIL))
    await writer.close()
    assert await sums(clean_db) == []


async def test_d59_how_long_it_waited_and_ran(clean_db: Db, clean_pool: Pool) -> None:
    outcomes, writer = statistics(clean_pool)
    outcomes.ahead_s = 1_000_000.0
    task = held()
    task.due, task.started, task.settling_since = 1_000_100.0, 104.0, 104.5
    outcomes.note(task, Complete(CLAIM, "{}"))
    await writer.close()
    cursor = await clean_db.execute("SELECT wait_seconds, run_seconds FROM horsies_rollup WHERE span = 60")
    assert await cursor.fetchall() == [(4.0, 0.5)]


async def test_d59_nothing_is_written_if_nothing_has_ended(clean_db: Db, clean_pool: Pool) -> None:
    _, writer = statistics(clean_pool)
    await clean_db.execute("ALTER TABLE horsies_rollup RENAME TO elsewhere")  # a statement would fail, and be logged
    try:
        await writer.close()
    finally:
        await clean_db.execute("ALTER TABLE elsewhere RENAME TO horsies_rollup")


async def test_d59_what_cannot_be_written_now_is_added_later(
    db: Db, pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    outcomes, writer = statistics(pool)
    outcomes.note(held(), Complete(CLAIM, "{}"))
    await db.execute(
        "CREATE FUNCTION away() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN RAISE EXCEPTION 'gone' USING ERRCODE = 'admin_shutdown'; END$$"
    )
    await db.execute("CREATE TRIGGER away BEFORE INSERT ON horsies_rollup EXECUTE FUNCTION away()")
    await writer.write()
    assert "statistics cannot be written and are added later" in caplog.text
    outcomes.note(held(), Complete(CLAIM, "{}"))
    await db.execute("DROP TRIGGER away ON horsies_rollup")
    await writer.close()
    assert await sums(db) == [("images", "resize", "", 2, 0, 0, 0, None)]


@pytest.mark.parametrize("state", ["check_violation", "insufficient_privilege", "undefined_table"])
async def test_d59_what_the_database_refuses_is_dropped(
    db: Db, pool: Pool, caplog: pytest.LogCaptureFixture, state: str
) -> None:
    outcomes, writer = statistics(pool)
    await db.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{state}'; END$$".encode()
    )
    await db.execute("CREATE TRIGGER refuse BEFORE INSERT ON horsies_rollup EXECUTE FUNCTION refuse()")
    for _ in range(3):
        outcomes.note(held(), Complete(CLAIM, "{}"))
        await writer.write()
    await writer.close()
    assert not outcomes.tally and "statistics cannot be written and are dropped" in caplog.text
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) < 3, "told once in a while"


async def test_d59_what_cannot_be_written_as_json_is_dropped(
    clean_db: Db, clean_pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    outcomes, writer = statistics(clean_pool)
    outcomes.note(held(task_name="half a \ud800 character"), Complete(CLAIM, "{}"))
    await writer.write()
    await writer.close()
    assert await sums(clean_db) == [] and "are dropped" in caplog.text


async def test_d59_a_writer_that_is_ended_keeps_what_it_has_not_written(db: Db, database_url: str, pool: Pool) -> None:
    outcomes, writer = statistics(pool)
    outcomes.note(held(), Complete(CLAIM, "{}"))
    async with await AsyncConnection.connect(database_url) as other:
        await other.execute("LOCK TABLE horsies_rollup IN ACCESS EXCLUSIVE MODE")
        writing = asyncio.create_task(writer.write())
        await asyncio.sleep(0.1)  # it waits for the lock by then, or for a connection
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
    assert len(outcomes.tally) == 1
    await writer.close()
    assert await sums(db) == [("images", "resize", "", 1, 0, 0, 0, None)]


async def test_d59_recovery_is_counted_by_the_worker_that_does_it(clean_db: Db, clean_pool: Pool) -> None:
    """Workers of one process hear each other's events."""
    mine, my_writer = statistics(clean_pool)
    others, their_writer = statistics(clean_pool, "other")
    try:
        dead = {
            "status": TaskStatus.RUNNING,
            "started_at": LONG_AGO,
            "claimed_at": LONG_AGO,
            "claimed_by_worker_id": "w9",
        }
        await given_worker(clean_db, "w9", last_heartbeat_at=LONG_AGO)
        crashed = await given_task(clean_db, task_name="crashes", **dead)
        await given_heartbeat(clean_db, crashed, "runner", sent_at=LONG_AGO)
        for _ in range(2):
            await given_task(clean_db, task_name="late", queue_name="slow", good_until=LONG_AGO)
        await Reaper(clean_pool, RecoveryConfig(), WorkerRecoveryConfig(), NoHooks(), "me", Pulse(0.0)).tick()
        assert not others.tally
        await my_writer.write()
    finally:
        await my_writer.close()
        await their_writer.close()
    assert await sums(clean_db) == [
        ("default", "crashes", "WORKER_CRASHED", 0, 1, 0, 0, crashed),
        ("slow", "late", "TASK_EXPIRED", 0, 0, 0, 2, None),
    ]
    assert not mine.tally


async def test_d59_tasks_that_nobody_knows_are_counted(clean_db: Db, clean_pool: Pool) -> None:
    outcomes, writer = statistics(clean_pool)
    events.emit("tasks.unknown", by="me", names=Counter({("q", "gone"): 3}))
    await writer.close()
    assert await sums(clean_db) == [("q", "gone", "WORKER_RESOLUTION_ERROR", 0, 3, 0, 0, None)]
    events.emit("tasks.unknown", by="me", names=Counter({("q", "gone"): 3}))
    assert not outcomes.tally, "a writer that has ended hears nothing"


async def test_d59_r16_a_tick_notes_what_waits_once_a_minute(clean_db: Db, clean_pool: Pool) -> None:
    await given_task(clean_db, queue_name="mail")
    reaper = Reaper(clean_pool, RecoveryConfig(), WorkerRecoveryConfig(), NoHooks(), "me", Pulse(2.0))
    assert "gauges" in [name for name, _ in reaper.passes]
    await reaper.tick()
    cursor = await clean_db.execute("SELECT waiting FROM horsies_rollup WHERE span = 60 AND queue_name = 'mail'")
    assert await cursor.fetchall() == [(1,)]
    assert "gauges" not in [name for name, _ in reaper.passes], "not before the minute is over"
