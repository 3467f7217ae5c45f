"""Attempts belong to their task, and nodes name theirs. PostgreSQL 18 leaves these keys unchecked, and a trigger does
what they say about a task that is deleted; older servers have the keys alone. What happens to the rows is the same
(D-20, D-50)."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from psycopg import AsyncConnection, sql

from horsies.core.schema.install import install
from horsies.core.store import tasks
from horsies.core.tasks.moves import Claim, Complete
from tests.store.catalog import constraints_of, snapshot
from tests.store.expected_schema import ATTEMPTS_KEY, NODES_KEY
from tests.support import eventually

TRIGGER = "horsies_task_keys_delete"
KEYS = {"horsies_task_attempts": ATTEMPTS_KEY, "horsies_workflow_tasks": NODES_KEY}
NODES = "SELECT node_id, task_id FROM horsies_workflow_tasks ORDER BY task_index"


async def given(db: AsyncConnection, *ids: str, attempts: int = 2) -> None:
    await db.execute("INSERT INTO horsies_tasks (id, task_name) SELECT unnest(%s::text[]), 't'", [list(ids)])
    await db.execute(
        "INSERT INTO horsies_task_attempts (task_id, attempt, outcome, will_retry, finished_at)"
        " SELECT id, n, 'FAILED', FALSE, now() FROM unnest(%s::text[]) AS id, generate_series(1, %s) AS n",
        [list(ids), attempts],
    )


async def given_nodes(db: AsyncConnection, *ids: str) -> None:
    await db.execute("INSERT INTO horsies_workflows (id, name, definition_key, open_nodes) VALUES ('f', 'n', 'k', 1)")
    await db.execute(
        "INSERT INTO horsies_workflow_tasks (workflow_id, task_index, node_id, node_type, task_name, task_id)"
        " SELECT 'f', n - 1, id, 'TASK', 't', id FROM unnest(%s::text[]) WITH ORDINALITY AS w(id, n)",
        [list(ids)],
    )


async def given_running(db: AsyncConnection, task_id: str) -> Complete:
    await db.execute(
        "INSERT INTO horsies_tasks (id, task_name, status, claimed, claim_seq, claimed_by_worker_id, started_at)"
        " VALUES (%s, 't', 'RUNNING', TRUE, 1, 'w', now())",
        [task_id],
    )
    return Complete(Claim(task_id, 1), '{"ok":null}')


async def owners(db: AsyncConnection) -> list[str]:
    """The tasks that attempts say they belong to."""
    cursor = await db.execute("SELECT DISTINCT task_id FROM horsies_task_attempts ORDER BY 1")
    return [row[0] for row in await cursor.fetchall()]


async def triggers(db: AsyncConnection) -> set[str]:
    return {str(row[1]) for row in (await snapshot(db))["triggers"]}


async def until_it_waits(db: AsyncConnection, pid: int) -> None:
    async def waits() -> bool:
        query = "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s"
        return (await (await db.execute(query, [pid])).fetchone()) == (True,)

    await eventually(waits)


async def unchecked(db: AsyncConnection) -> set[str]:
    """The tables whose key to tasks is in the catalog and not enforced."""
    found = {table: await constraints_of(db, table) for table in KEYS}
    assert all({key, f"{key} NOT ENFORCED"} & found[table] for table, key in KEYS.items())
    return {table for table, key in KEYS.items() if f"{key} NOT ENFORCED" in found[table]}


async def test_d20_d50_the_keys_are_checked_only_by_servers_that_cannot_leave_them_unchecked(
    db: AsyncConnection,
) -> None:
    can_leave = db.info.server_version >= 180_000
    assert await unchecked(db) == (set(KEYS) if can_leave else set())
    assert (TRIGGER in await triggers(db)) == can_leave


@pytest.mark.parametrize("table", KEYS)
async def test_d20_d50_a_delete_finds_its_way_while_one_of_the_keys_is_enforced(
    db: AsyncConnection, table: str
) -> None:
    """Somebody may have enforced it again by hand."""
    if db.info.server_version >= 180_000:
        await db.execute(f"ALTER TABLE {table} ALTER CONSTRAINT {table}_task_id_fkey ENFORCED")
    await given(db, "a")
    await given_nodes(db, "a")
    await db.execute("DELETE FROM horsies_tasks")
    assert await owners(db) == []
    assert await (await db.execute(NODES)).fetchall() == [("a", None)]


async def test_d20_an_attempt_without_a_task_is_refused_only_by_such_servers(db: AsyncConnection) -> None:
    insert = (
        "INSERT INTO horsies_task_attempts (task_id, attempt, outcome, will_retry, finished_at)"
        " VALUES ('no-such-task', 1, 'FAILED', FALSE, now())"
    )
    if db.info.server_version >= 180_000:
        await db.execute(insert)
        return
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        await db.execute(insert)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM horsies_tasks WHERE id = 'a' OR id = 'b'",
        "WITH gone AS (DELETE FROM horsies_tasks WHERE id IN ('a', 'b') RETURNING id) SELECT count(*) FROM gone",
    ],
)
async def test_d20_d50_d72_attempts_go_with_their_tasks_whoever_deletes_them_and_nodes_name_none(
    db: AsyncConnection, statement: str
) -> None:
    await given(db, "a", "b", "c")
    await given_nodes(db, "a", "c", "b")
    await db.execute(statement)
    assert await owners(db) == ["c"]
    assert await (await db.execute(NODES)).fetchall() == [("a", None), ("c", "c"), ("b", None)]


async def test_d20_d50_a_role_that_may_delete_tasks_needs_no_right_to_the_other_tables(db: AsyncConnection) -> None:
    await given(db, "a", "b")
    await given_nodes(db, "a", "b")
    role = sql.Identifier(f"cleaner_{db.info.dbname}")
    async with db.transaction():
        await db.execute(sql.SQL("CREATE ROLE {}").format(role))
        await db.execute(sql.SQL("GRANT SELECT, DELETE ON horsies_tasks TO {}").format(role))
        await db.execute(sql.SQL("SET LOCAL ROLE {}").format(role))
        await db.execute("SET LOCAL search_path = pg_catalog")
        await db.execute("DELETE FROM public.horsies_tasks WHERE id = 'a'")
        await db.execute("RESET ROLE")
        await db.execute("RESET search_path")
        await db.execute(sql.SQL("DROP OWNED BY {}").format(role))
        await db.execute(sql.SQL("DROP ROLE {}").format(role))
    assert await owners(db) == ["b"]
    assert await (await db.execute(NODES)).fetchall() == [("a", None), ("b", "b")]


async def test_d20_d50_truncate_takes_all_three_tables_or_none(db: AsyncConnection) -> None:
    await given(db, "a")
    await given_nodes(db, "a")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="referenced in a foreign key"):
        await db.execute("TRUNCATE horsies_tasks")
    assert await owners(db) == ["a"]
    await db.execute("TRUNCATE horsies_tasks CASCADE")
    assert await owners(db) == []
    assert await (await db.execute(NODES)).fetchall() == []


async def test_d20_a_deletion_that_waits_for_the_end_of_a_task_deletes_the_attempt_of_it(
    db: AsyncConnection, database_url: str
) -> None:
    end = await given_running(db, "a")
    async with await AsyncConnection.connect(database_url, autocommit=True) as other:
        async with db.transaction():
            await tasks.apply(db, "w", [end])
            deletion = asyncio.create_task(other.execute("DELETE FROM horsies_tasks"))
            await until_it_waits(db, other.info.backend_pid)
        await deletion
    assert await owners(db) == []


async def test_d20_an_end_that_waits_for_a_deletion_writes_no_attempt(db: AsyncConnection, database_url: str) -> None:
    end = await given_running(db, "a")
    async with await AsyncConnection.connect(database_url, autocommit=True) as other:
        async with other.transaction():
            await other.execute("DELETE FROM horsies_tasks")
            writing = asyncio.create_task(tasks.apply(db, "w", [end]))
            await until_it_waits(other, db.info.backend_pid)
        assert await writing == set()
    assert await owners(db) == []


async def test_d50_a_deletion_waits_for_a_step_that_moves_the_node(db: AsyncConnection, database_url: str) -> None:
    await given(db, "a")
    await given_nodes(db, "a")
    async with await AsyncConnection.connect(database_url, autocommit=True) as other:
        async with db.transaction():
            await db.execute("UPDATE horsies_workflow_tasks SET status = 'COMPLETED'")
            deletion = asyncio.create_task(other.execute("DELETE FROM horsies_tasks"))
            await until_it_waits(db, other.info.backend_pid)
        await deletion
    query = "SELECT status, task_id FROM horsies_workflow_tasks"
    assert await (await db.execute(query)).fetchall() == [("COMPLETED", None)]


async def test_d20_d50_a_deletion_that_was_planned_on_empty_tables_reads_no_whole_table_later(
    db: AsyncConnection,
) -> None:
    await db.execute("INSERT INTO horsies_tasks (id, task_name) VALUES ('first', 't')")
    await db.execute("DELETE FROM horsies_tasks")
    ids = [f"t{n}" for n in range(3000)]
    await given(db, *ids, attempts=3)
    await given_nodes(db, *ids)
    async with db.transaction():
        await db.execute("DELETE FROM horsies_tasks WHERE id = 't7'")
        query = (
            "SELECT relname::text, seq_scan, n_tup_del + n_tup_upd FROM pg_stat_xact_user_tables"
            " WHERE relname = ANY(%s)"
        )
        found = await (await db.execute(query, [list(KEYS)])).fetchall()
        assert sorted(found) == [("horsies_task_attempts", 0, 3), ("horsies_workflow_tasks", 0, 1)]


async def test_d20_d50_the_keys_of_a_server_that_was_upgraded_stay_and_do_the_same(db: AsyncConnection) -> None:
    """Its tables have been made by a server that cannot leave a key unchecked."""
    if db.info.server_version < 180_000:
        return
    await db.execute(f"DROP TRIGGER {TRIGGER} ON horsies_tasks")
    await db.execute("DROP TRIGGER horsies_attempt_keys_truncate ON horsies_task_attempts")
    for table in KEYS:
        await db.execute(f"ALTER TABLE {table} ALTER CONSTRAINT {table}_task_id_fkey ENFORCED")
    await given(db, "a")
    await given_nodes(db, "a")
    await install(db, notify="off", change_notify=True)
    assert await unchecked(db) == set()
    assert TRIGGER not in await triggers(db)
    await db.execute("DELETE FROM horsies_tasks")
    assert await owners(db) == []
    assert await (await db.execute(NODES)).fetchall() == [("a", None)]


async def test_d20_tasks_and_attempts_are_truncated_together_also_after_a_vacuum(db: AsyncConnection) -> None:
    """Which forgets whatever a table is not known to have any more."""
    await given(db, "a", "b")
    await db.execute("VACUUM horsies_task_attempts, horsies_workflow_tasks, horsies_tasks")
    await db.execute("TRUNCATE horsies_tasks, horsies_task_attempts, horsies_workflow_tasks")
    assert await owners(db) == []
    await given(db, "a")
    await db.execute("VACUUM horsies_task_attempts")
    await db.execute("TRUNCATE horsies_tasks CASCADE")
    assert await owners(db) == []
