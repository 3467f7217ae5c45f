"""The limits of dates and counters (D-14): what the schema refuses, and how connections of ours read what it would have
refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from horsies.core.db.connections import connect
from horsies.core.db.failures import FAR_FUTURE, LONG_AGO
from horsies.core.models.broker import PostgresConfig
from tests.factories import given_heartbeat, given_node, given_task, given_worker, given_worker_state, given_workflow
from tests.odd_rows_support import plant, planted

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
