"""The statistics by minute (D-59): what workers add, what waits and runs, and what is deleted."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.rows import dict_row

from horsies.core.store import retention, rollup
from horsies.core.tasks.tally import EndKind, OutcomeTally
from horsies.core.types.status import TaskStatus
from tests.factories import given_audit, given_rollup, given_task, given_workflow
from tests.unit.test_outcome_tally import note

Db = AsyncConnection[Any]
HOUR = timedelta(hours=1)


def counted(*ends: tuple[str, str, EndKind, str], wait_s: float = 1.0, run_s: float = 0.1) -> OutcomeTally:
    tally = OutcomeTally()
    for queue, name, kind, code in ends:
        note(tally, queue, name, kind, code, f"{name}-id", wait_s, run_s)
    return tally


async def rows(db: Db, where: str = "span = 60") -> list[dict[str, Any]]:
    async with db.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(f"SELECT * FROM horsies_rollup WHERE {where} ORDER BY 1, 2, 3, 4, 5".encode())  # noqa: S608
        return await cursor.fetchall()


async def test_d59_what_two_workers_have_counted_is_added_up(frozen: Db) -> None:
    one = counted(("q", "a", EndKind.COMPLETED, ""), ("q", "a", EndKind.FAILED, "BAD"), wait_s=0.0005, run_s=10.0)
    two = counted(("q", "a", EndKind.COMPLETED, ""), ("q", "b", EndKind.RETRIED, "BUSY"), wait_s=3.0, run_s=0.0005)
    for tally in (one, two):
        await rollup.add(frozen, tally.take(), 0.0)
    done, bad, busy = await rows(frozen)
    assert (done["completed"], done["wait_seconds"], done["run_seconds"]) == (2, 3.0005, 10.0005)
    assert (sum(done["wait_counts"]), done["wait_counts"][0], len(done["wait_counts"])) == (2, 1, 25)
    assert (sum(done["run_counts"]), done["run_counts"][0], done["run_counts"][-1]) == (2, 1, 1)
    assert (bad["task_name"], bad["error_code"], bad["failed"], bad["example_id"]) == ("a", "BAD", 1, "a-id")
    assert (busy["task_name"], busy["retried"], busy["example_id"]) == ("b", 1, None)


async def test_d59_each_span_gets_the_same_numbers(frozen: Db) -> None:
    await rollup.add(frozen, counted(("q", "a", EndKind.EXPIRED, "TASK_EXPIRED")).take(), 0.0)
    found = await rows(frozen, "TRUE")
    assert [(row["span"], row["expired"]) for row in found] == [(60, 1), (600, 1), (3600, 1)]
    for row in found:
        assert row["start_at"].timestamp() % row["span"] == 0


async def test_d59_the_minute_is_that_of_the_middle_of_the_counting(frozen: Db) -> None:
    [(now,)] = await (await frozen.execute("SELECT extract(epoch FROM now())::float8")).fetchall()
    for age_s in (0.0, 60.0, 300.0):
        await rollup.add(frozen, counted(("q", f"{age_s}", EndKind.COMPLETED, "")).take(), age_s)
    minutes = {row["task_name"]: row["start_at"].timestamp() for row in await rows(frozen)}
    assert minutes == {f"{age_s}": (now - age_s) // 60 * 60 for age_s in (0.0, 60.0, 300.0)}


async def test_d59_the_commit_does_not_wait_for_the_disk(frozen: Db) -> None:
    await rollup.add(frozen, counted(("q", "a", EndKind.COMPLETED, "")).take(), 0.0)
    assert await (await frozen.execute("SHOW synchronous_commit")).fetchone() == ("off",)


async def test_d59_spans_do_not_depend_on_the_time_zone_of_a_session(frozen: Db) -> None:
    await frozen.execute("SET LOCAL timezone = 'Asia/Kolkata'")  # half an hour apart from whole hours
    await rollup.add(frozen, counted(("q", "a", EndKind.COMPLETED, "")).take(), 0.0)
    [hour] = await rows(frozen, "span = 3600")
    assert hour["start_at"].astimezone(UTC).minute == 0


async def test_d59_workers_that_write_at_the_same_moment_do_not_wait_in_a_circle(database_url: str, db: Db) -> None:
    """Each has the same groups in another order."""
    names = [f"t{number}" for number in range(40)]

    async def worker(number: int) -> None:
        async with await AsyncConnection.connect(database_url, autocommit=True) as conn:
            for turn in range(10):
                shift = (7 * number + turn) % len(names)
                ends = [("q", name, EndKind.COMPLETED, "") for name in (*names[shift:], *names[:shift])]
                await rollup.add(conn, counted(*ends).take(), 0.0)

    await asyncio.gather(*(worker(number) for number in range(6)))
    totals: dict[tuple[int, str], int] = {}
    for row in await rows(db, "TRUE"):
        key = row["span"], row["task_name"]
        totals[key] = totals.get(key, 0) + row["completed"]
        assert sum(row["wait_counts"]) == row["completed"]
    assert set(totals.values()) == {60} and len(totals) == 3 * len(names)


async def test_d59_gauges_tell_what_waits_and_runs(frozen: Db) -> None:
    for number in range(3):
        await given_task(frozen, queue_name="mail", enqueued_at=datetime.now(UTC) - timedelta(seconds=100 * number))
    await given_task(frozen, queue_name="later", enqueued_at=datetime.now(UTC) + HOUR)
    held = await given_workflow(frozen)
    await given_task(frozen, queue_name="held", is_held=True, workflow_id=held, enqueued_at=datetime.now(UTC) - HOUR)
    for status in (TaskStatus.RUNNING, TaskStatus.CLAIMED):
        await given_task(frozen, queue_name="video", status=status)
    left_s = await rollup.note_gauges(frozen)
    assert 0 < left_s <= 60
    found = {
        row["queue_name"]: (row["waiting"], row["running"], row["oldest_due_seconds"]) for row in await rows(frozen)
    }
    assert {name: value[:2] for name, value in found.items()} == {
        "mail": (3, 0), "later": (1, 0), "held": (1, 0), "video": (0, 1), "*": (5, 1)
    }  # fmt: skip
    assert found["mail"][2] == pytest.approx(200, abs=60) and found["later"][2] is None
    assert found["*"][2] == pytest.approx(3600, abs=60)


async def test_d59_an_idle_system_is_noted_as_one_row(frozen: Db) -> None:
    await rollup.note_gauges(frozen)
    [row] = await rows(frozen)
    assert (row["queue_name"], row["task_name"], row["waiting"], row["running"]) == ("*", "", 0, 0)


async def test_d59_the_first_look_of_a_minute_counts_and_longer_spans_have_the_most(frozen: Db) -> None:
    await given_task(frozen)
    await rollup.note_gauges(frozen)
    for _ in range(4):
        await given_task(frozen)
    await rollup.note_gauges(frozen)
    assert [row["waiting"] for row in await rows(frozen, "queue_name = '*'")] == [1, 1, 1]
    await frozen.execute("DELETE FROM horsies_rollup WHERE span = 60")  # as if a minute had passed
    await rollup.note_gauges(frozen)
    assert [row["waiting"] for row in await rows(frozen, "queue_name = '*'")] == [5, 5, 5]
    await frozen.execute("DELETE FROM horsies_tasks")
    await frozen.execute("DELETE FROM horsies_rollup WHERE span = 60")
    await rollup.note_gauges(frozen)
    assert [row["waiting"] for row in await rows(frozen, "queue_name = '*'")] == [0, 5, 5]


async def test_d59_a_look_counts_a_part_of_a_long_queue_and_some_of_each(frozen: Db) -> None:
    await frozen.execute(
        "INSERT INTO horsies_tasks (id, task_name, queue_name)"
        " SELECT n, 't', CASE WHEN n <= 500 THEN 'long' ELSE 'short' || n % 3 END FROM generate_series(1, 530) AS n"
    )
    await rollup.note_gauges(frozen, most=300, queues=3)
    found = {row["queue_name"]: row["waiting"] for row in await rows(frozen)}
    assert found == {"short0": 10, "short1": 10, "short2": 10, "*": 30}, "the last queues by name"
    await frozen.execute("DELETE FROM horsies_rollup")
    await rollup.note_gauges(frozen, most=400)
    assert {row["queue_name"]: row["waiting"] for row in await rows(frozen)}["long"] == 100
    await frozen.execute("DELETE FROM horsies_rollup")
    await rollup.note_gauges(frozen, most=4)
    assert {row["queue_name"]: row["waiting"] for row in await rows(frozen)}["long"] == 50


async def test_d59_several_who_look_at_once_agree(database_url: str, db: Db) -> None:
    for _ in range(5):
        await given_task(db)

    async def look() -> None:
        async with await AsyncConnection.connect(database_url, autocommit=True) as conn:
            await rollup.note_gauges(conn)

    await asyncio.gather(*(look() for _ in range(8)))
    found = await rows(db, "span = 60 AND queue_name = '*'")
    assert len(found) in (1, 2) and {row["waiting"] for row in found} == {5}, "two, if a minute has just begun"


async def test_d59_r80_old_statistics_are_deleted_from_each_span(frozen: Db) -> None:
    for span in rollup.SPANS:
        for hours in (1, 3):
            await given_rollup(frozen, span=span, start_at=datetime.now(UTC) - hours * HOUR)
    assert await retention.prune_rollup(frozen, 2 * HOUR, most=2) == 2
    assert await retention.prune_rollup(frozen, 2 * HOUR) == 1
    assert await retention.prune_rollup(frozen, 2 * HOUR) == 0
    assert len(await rows(frozen, "TRUE")) == 3


async def test_d59a_r80_old_records_of_what_people_did_are_deleted(frozen: Db) -> None:
    for hours in (1, 3, 5):
        await given_audit(frozen, at=datetime.now(UTC) - hours * HOUR)
    assert await retention.prune_audit(frozen, 2 * HOUR, most=1) == 1
    assert await retention.prune_audit(frozen, 2 * HOUR) == 1
    assert await (await frozen.execute("SELECT count(*) FROM horsies_audit")).fetchone() == (1,)
