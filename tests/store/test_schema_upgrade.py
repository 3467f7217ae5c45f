"""From every older version of the schema to this one: with its rows, its functions and its triggers, beside sessions
that go on with their work."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.schema.install import SCHEMA_VERSION, InstallReport, install, migrations
from horsies.core.schema.limits import LimitsReport, ensure_limits
from horsies.core.store import tasks
from horsies.core.tasks.moves import Claim, Complete
from tests.doorbell_support import listening
from tests.store.catalog import snapshot

# The shape of what version 7 had and this one has not: what the functions did does not matter.
FORMER_FUNCTIONS = ("notify_task_changes", "monitor_new_tasks", "monitor_moved_tasks", "count_moved_tasks")
FORMER_TRIGGERS = """
    CREATE TRIGGER horsies_task_notify_trigger AFTER INSERT OR UPDATE ON horsies_tasks
        FOR EACH ROW WHEN (NEW.status NOT IN ('CLAIMED', 'RUNNING')) EXECUTE FUNCTION horsies_notify_task_changes();
    CREATE TRIGGER horsies_task_monitor_insert AFTER INSERT ON horsies_tasks
        REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION horsies_monitor_new_tasks();
    CREATE TRIGGER horsies_task_monitor_update AFTER UPDATE ON horsies_tasks
        REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
        FOR EACH STATEMENT EXECUTE FUNCTION horsies_monitor_moved_tasks();
    CREATE TRIGGER horsies_task_load_update AFTER UPDATE ON horsies_tasks
        REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
        FOR EACH STATEMENT EXECUTE FUNCTION horsies_count_moved_tasks();
"""
FILES = """
    SELECT c.relname::text, pg_relation_filenode(c.oid) FROM pg_class c
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'i') ORDER BY 1
"""


async def make_older(conn: AsyncConnection[Any], version: int) -> None:
    """The tables of that version, with its triggers, a waiting task and one that was tried twice and runs."""
    for step in migrations():
        if step.version <= version:
            await conn.execute(step.sql.encode())
    if version < 8:
        for name in FORMER_FUNCTIONS:
            await conn.execute(
                f"CREATE FUNCTION horsies_{name}() RETURNS trigger AS 'BEGIN RETURN NEW; END' LANGUAGE plpgsql"
            )
        await conn.execute(FORMER_TRIGGERS)
    await conn.execute(
        "INSERT INTO horsies_meta VALUES ('schema_version', %s), ('breaking_version', '1'), ('notify', 'always')",
        [str(version)],
    )
    await conn.execute("INSERT INTO horsies_tasks (id, task_name) VALUES ('waits', 't')")
    await conn.execute(
        "INSERT INTO horsies_tasks (id, task_name, status, claimed, claim_seq, claimed_by_worker_id, started_at)"
        " VALUES ('runs', 't', 'RUNNING', TRUE, 3, 'w', now())"
    )
    await conn.execute(
        "INSERT INTO horsies_task_attempts (task_id, attempt, outcome, will_retry, finished_at)"
        " SELECT 'runs', n, 'FAILED', TRUE, now() FROM generate_series(1, 2) AS n"
    )


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION))
async def test_d70_every_older_version_leads_to_what_a_fresh_database_has(
    empty_database_url: str, db: AsyncConnection, version: int
) -> None:
    async with await AsyncConnection.connect(empty_database_url, autocommit=True) as conn:
        await make_older(conn, version)
        assert await install(conn) == InstallReport(SCHEMA_VERSION, "always")
        assert await ensure_limits(conn) == LimitsReport()
        fresh, migrated = await snapshot(db), await snapshot(conn)
        for kind in fresh:
            assert migrated[kind] == fresh[kind], kind
        await conn.execute("DELETE FROM horsies_tasks WHERE id = 'runs'")
        assert await (await conn.execute("SELECT count(*) FROM horsies_task_attempts")).fetchone() == (0,)


async def test_d70_the_steps_from_version_7_on_write_no_table_and_no_index_anew(empty_database_url: str) -> None:
    """It holds the tables for a moment, however many rows they have."""
    async with await AsyncConnection.connect(empty_database_url, autocommit=True) as conn:
        await make_older(conn, 7)
        before = await (await conn.execute(FILES)).fetchall()
        assert (await install(conn)).version == SCHEMA_VERSION
        assert set(before) <= set(await (await conn.execute(FILES)).fetchall())


async def test_d60_d70_a_session_that_is_at_work_goes_on_over_the_upgrade(empty_database_url: str) -> None:
    """What it has prepared on the older schema rings and counts as on the new one."""
    async with (
        await AsyncConnection.connect(empty_database_url, autocommit=True) as conn,
        await AsyncConnection.connect(empty_database_url, autocommit=True) as worker,
    ):
        await make_older(conn, 7)
        insert = "INSERT INTO horsies_tasks (id, task_name) VALUES (%s, 't')"
        for number in range(2):
            await worker.execute(insert, [f"before-{number}"], prepare=True)
            await tasks.apply(worker, "w", [Complete(Claim("no-such-task", 1), "{}")])
        await install(conn)
        async with listening(empty_database_url) as heard:
            await worker.execute(insert, ["after"], prepare=True)
            assert await tasks.apply(worker, "w", [Complete(Claim("runs", 3), '{"ok":null}')]) == {"runs"}
            assert await heard() == [("task_new", "after"), ("task_queue_default", "after"), ("task_done", "runs")]
        attempts = "SELECT array_agg(attempt ORDER BY attempt) FROM horsies_task_attempts"
        assert await (await conn.execute(attempts)).fetchone() == ([1, 2, 3],)
