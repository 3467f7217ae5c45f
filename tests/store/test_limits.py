"""The limits of dates and counters (D-14): what the schema refuses, how older tables get them while others work, and
how connections of ours read what is older than they are."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from horsies.core.db.connections import connect
from horsies.core.db.failures import FAR_FUTURE, LONG_AGO
from horsies.core.models.broker import PostgresConfig
from horsies.core.schema.limits import LimitsReport, are_complete, ensure_limits
from tests.factories import given_heartbeat, given_node, given_task, given_worker, given_worker_state, given_workflow
from tests.odd_rows_support import drop_constraints, plant, planted
from tests.store.catalog import snapshot

Db = AsyncConnection[Any]


async def one_row_each(db: Db) -> dict[str, tuple[str, str]]:
    """The tables with limits, and a row of each: the column that names it, and its value."""
    task_id, workflow_id = await given_task(db), await given_workflow(db)
    await given_heartbeat(db, task_id, "runner")
    await given_node(db, workflow_id)
    await given_worker(db, "w")
    await given_worker_state(db, "w")
    return {
        "horsies_tasks": ("id", task_id),
        "horsies_workflows": ("id", workflow_id),
        "horsies_workflow_tasks": ("workflow_id", workflow_id),
        "horsies_heartbeats": ("task_id", task_id),
        "horsies_workers": ("worker_id", "w"),
        "horsies_worker_states": ("worker_id", "w"),
    }


COUNTERS = {"retry_count", "max_retries", "claim_seq", "start_failures", "open_nodes", "depth", "task_index"}
COUNTERS |= {"deps_total", "deps_completed", "deps_failed", "deps_skipped"}


LARGEST = "1000000000"  # still within


async def test_d14_every_date_and_counter_is_limited(db: Db) -> None:
    accepted = []
    for table, (key, value) in (await one_row_each(db)).items():
        for what in await planted(db, table):
            if what.value == LARGEST:
                continue
            is_date = "infinity" in what.value or "-01-01" in what.value
            if not ((is_date and what.column.endswith(("_at", "_until"))) or what.column in COUNTERS):
                continue
            try:
                async with db.transaction():
                    await plant(db, what, key, value)
            except psycopg.errors.CheckViolation:
                continue
            accepted.append(str(what))
    assert accepted == []


@pytest.mark.parametrize("value", [datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)])
async def test_d14_every_deadline_that_can_be_sent_is_within(db: Db, value: datetime) -> None:
    await given_task(db, good_until=value, retry_count=1_000_000_000)


async def test_d14_an_old_installation_gets_the_same_constraints(db: Db) -> None:
    fresh = await snapshot(db)
    for name in [row[1] for row in fresh["constraints"] if row[1].endswith("_limits_check")]:
        table = name.removesuffix("_limits_check")
        await db.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}".encode())
    assert not await are_complete(db)
    assert await ensure_limits(db) == LimitsReport()
    assert await are_complete(db) and await snapshot(db) == fresh


async def test_d14_old_rows_outside_are_reported_and_break_nothing(db: Db) -> None:
    await drop_constraints(db)
    old = await given_task(db, enqueued_at="-infinity")
    assert await ensure_limits(db) == LimitsReport(violated=["horsies_tasks"])
    assert not await are_complete(db)
    with pytest.raises(psycopg.errors.CheckViolation):
        await given_task(db, enqueued_at="-infinity")
    await given_task(db)
    await db.execute("UPDATE horsies_tasks SET enqueued_at = now() WHERE id = %s", [old])
    assert await ensure_limits(db) == LimitsReport() and await are_complete(db)


async def test_d14_nobody_waits_for_a_constraint_that_cannot_be_added_now(database_url: str, db: Db) -> None:
    """A transaction that has been open for long, such as a backup, would keep everybody behind us waiting."""
    await drop_constraints(db)
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as other, other.transaction():
        await given_task(other)
        adding = asyncio.create_task(ensure_limits(db, tries=2, pause_s=0.01))
        async with asyncio.timeout(30):
            while not adding.done():
                async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as third:
                    await given_task(third)
        assert "horsies_tasks" in (await adding).left
    assert await ensure_limits(db) == LimitsReport()


async def test_d14_rows_are_checked_beside_the_work_of_others(database_url: str, db: Db) -> None:
    """Who validates takes no lock that a writer would have to wait for, or that waits for a writer."""
    await drop_constraints(db)
    await given_task(db, good_until="infinity")
    assert (await ensure_limits(db)).violated == ["horsies_tasks"]
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as other, other.transaction():
        await other.execute("DELETE FROM horsies_tasks")
        await given_task(other)
        assert (await ensure_limits(db, tries=1)).violated == ["horsies_tasks"], (
            "it looked at the row, and did not wait"
        )
    assert await ensure_limits(db) == LimitsReport()


async def test_d14_a_connection_of_ours_reads_every_date(database_url: str) -> None:
    conn = await connect(PostgresConfig(database_url=database_url))
    try:
        for zone in ("UTC", "Pacific/Kiritimati", "America/Los_Angeles"):
            await conn.execute("SELECT set_config('TimeZone', %s, FALSE)", [zone])
            for text, expected in (
                ("infinity", FAR_FUTURE),
                ("-infinity", LONG_AGO),
                ("250000-01-01Z", FAR_FUTURE),
                ("9999-12-31 23:59:59Z", FAR_FUTURE),
                ("0001-01-01 00:00:00Z", LONG_AGO),
                ("4000-01-01 BC", LONG_AGO),
                ("2026-05-05 12:00:00Z", datetime(2026, 5, 5, 12, tzinfo=UTC)),
            ):
                found = await (await conn.execute("SELECT %s::timestamptz, NULL::timestamptz", [text])).fetchone()
                assert found == (expected, None), (zone, text)
                found[0].astimezone(timezone(timedelta(hours=14)))  # no time zone makes it overflow
                found[0].astimezone(timezone(-timedelta(hours=12)))
        deep, long = "[" * 5_000 + "]" * 5_000, "1" * 5_000
        found = await (await conn.execute("SELECT '{\"a\": 1}'::jsonb, %s::jsonb, %s::jsonb", [long, deep])).fetchone()
        assert found is not None and found[:2] == ({"a": 1}, None)
        assert found[2] is None or isinstance(found[2], list), "how deep Python reads depends on its version"
    finally:
        await conn.close()
