"""Putting the schema in place: once, by whoever comes first, without disturbing anybody who works."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection
from psycopg.rows import dict_row
from sqlalchemy import create_engine

from horsies.core.errors import ErrorCode, HorsiesError
from horsies.core.models.task_pg import Base
from horsies.core.schema.install import (
    BREAKING_VERSION,
    FIRST_VERSION,
    MIGRATIONS,
    NOTIFY_MODES,
    SCHEMA,
    SCHEMA_VERSION,
    InstallReport,
    Release,
    SchemaError,
    SchemaTooNew,
    install,
    lock_key,
    migrations,
)
from horsies.core.store import tasks
from horsies.core.tasks.moves import Claim, Complete
from tests.doorbell_support import listening
from tests.store.catalog import columns_of, snapshot
from tests.support import eventually

UP_TO_DATE = InstallReport(SCHEMA_VERSION, "always")


async def connect(url: str, **options: Any) -> AsyncConnection:
    return await AsyncConnection.connect(url, autocommit=True, **options)


async def meta(conn: AsyncConnection) -> dict[str, str]:
    return dict(await (await conn.execute("SELECT key, value FROM horsies_meta")).fetchall())


async def test_d70_an_empty_database_gets_the_schema(empty_database_url: str) -> None:
    async with await connect(empty_database_url) as conn:
        report = await install(conn)
        assert report == InstallReport(SCHEMA_VERSION, "always", created=True)
        assert await columns_of(conn, "horsies_tasks")


async def test_d55_the_meta_table_says_what_is_in_place(empty_database_url: str) -> None:
    async with await connect(empty_database_url) as conn:
        await install(conn, notify="off")
        assert await meta(conn) == {
            "schema_version": str(SCHEMA_VERSION),
            "breaking_version": str(BREAKING_VERSION),
            "notify": "off",
        }


async def test_d70_a_connection_without_autocommit_serves_as_well(empty_database_url: str) -> None:
    async with await AsyncConnection.connect(empty_database_url, row_factory=dict_row) as conn:
        assert (await install(conn)).created
    async with await connect(empty_database_url) as other:
        assert await install(other) == UP_TO_DATE


async def test_d70_it_is_a_transaction_of_its_own(db: AsyncConnection) -> None:
    async with db.transaction():
        with pytest.raises(ValueError, match="not inside a transaction"):
            await install(db)


async def test_d70_a_second_time_changes_nothing(empty_database_url: str) -> None:
    async with await connect(empty_database_url) as conn:
        await install(conn)
        before = await snapshot(conn)
        written = "SELECT oid, xmin::text FROM pg_class WHERE relname LIKE 'horsies%' ORDER BY 1"
        rows = await (await conn.execute(written)).fetchall()
        assert await install(conn) == UP_TO_DATE
        assert await snapshot(conn) == before
        assert await (await conn.execute(written)).fetchall() == rows


async def test_d70_a_second_time_waits_for_nobody(database_url: str, db: AsyncConnection) -> None:
    """Every lock that a table can have in normal use, and the schema lock itself, are held by someone else."""
    async with await connect(database_url) as other, other.transaction():
        tables = ", ".join(name for name in Base.metadata.tables if name != "horsies_meta")
        await other.execute(f"LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE")
        await other.execute("LOCK TABLE horsies_meta IN EXCLUSIVE MODE")
        await other.execute("SELECT pg_advisory_xact_lock(%s)", [lock_key(SCHEMA)])
        await db.execute("SET lock_timeout = '2s'")
        assert await install(db, change_notify=True) == UP_TO_DATE


async def test_d60_a_change_of_mode_does_not_wait_for_a_busy_table(database_url: str, db: AsyncConnection) -> None:
    async with await connect(database_url) as other, other.transaction():
        await other.execute("INSERT INTO horsies_tasks (id, task_name) VALUES ('x', 't')")
        await other.execute("LOCK TABLE horsies_tasks IN SHARE UPDATE EXCLUSIVE MODE")
        await db.execute("SET lock_timeout = '2s'")
        assert (await install(db, notify="off", change_notify=True)).notify == "off"


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
async def test_d70_simultaneous_starters_do_not_collide(empty_database_url: str, isolation: str) -> None:
    options = f"-c default_transaction_isolation={isolation.replace(' ', chr(92) + ' ')}"
    connections = [await connect(empty_database_url, options=options) for _ in range(20)]
    try:
        modes = itertools.cycle(NOTIFY_MODES)
        reports = await asyncio.gather(*(install(conn, notify=next(modes)) for conn in connections))
        assert sorted(report.created for report in reports) == [False] * 19 + [True]
        assert {report.version for report in reports} == {SCHEMA_VERSION}
        [first] = [report for report in reports if report.created]
        assert {report.notify for report in reports} == {first.notify}, "the one who creates it decides the mode"
    finally:
        for conn in connections:
            await conn.close()


async def test_d62_d70_it_waits_for_whoever_holds_the_schema_lock(empty_database_url: str) -> None:
    async with await connect(empty_database_url) as holder, await connect(empty_database_url) as conn:
        async with holder.transaction():
            await holder.execute("SELECT pg_advisory_xact_lock(%s)", [lock_key(SCHEMA)])
            waiting = asyncio.create_task(install(conn))

            async def blocked() -> bool:
                query = "SELECT wait_event = 'advisory' FROM pg_stat_activity WHERE pid = %s"
                return (await (await holder.execute(query, [conn.info.backend_pid])).fetchone()) == (True,)

            await eventually(blocked)
            assert not await columns_of(holder, "horsies_tasks")
        assert (await waiting).created


async def test_d70_an_installation_that_fails_leaves_nothing(empty_database_url: str) -> None:
    async with await connect(empty_database_url) as conn:
        await conn.execute("CREATE VIEW horsies_workflows AS SELECT 1 AS one")
        with pytest.raises(psycopg.Error):
            await install(conn)
        assert (await snapshot(conn))["columns"] == []
        await conn.execute("DROP VIEW horsies_workflows")
        assert (await install(conn)).created


async def test_d70_tables_made_by_create_all_alone_are_completed(empty_database_url: str) -> None:
    engine = create_engine(empty_database_url.replace("postgresql://", "postgresql+psycopg://", 1))
    with engine.begin() as plain:
        Base.metadata.create_all(plain)
    engine.dispose()
    async with await connect(empty_database_url) as conn:
        before = await snapshot(conn)
        assert (await install(conn)).created
        after = await snapshot(conn)
        assert after["columns"] == before["columns"]
        assert len(after["triggers"]) > len(before["triggers"])


async def test_d70_a_foreign_table_of_the_same_name_is_named(empty_database_url: str) -> None:
    async with await connect(empty_database_url) as conn:
        await conn.execute("CREATE TABLE horsies_tasks (id text, result text)")
        with pytest.raises(SchemaError, match="horsies_tasks") as caught:
            await install(conn)
        assert any("claim_seq" in note for note in caught.value.notes)
        assert list(await columns_of(conn, "horsies_tasks")) == ["id", "result"]


async def test_d01_everything_is_in_the_first_schema_of_the_search_path(empty_database_url: str) -> None:
    async with await connect(empty_database_url) as conn:
        await install(conn)
    async with await connect(empty_database_url, options="-c search_path=tenant,public") as conn:
        await conn.execute("CREATE SCHEMA tenant")
        assert (await install(conn, notify="when_waiting")).created
        cursor = await conn.execute(
            "SELECT schemaname::text, count(*) FROM pg_tables WHERE tablename LIKE 'horsies%' GROUP BY 1 ORDER BY 1"
        )
        assert await cursor.fetchall() == [("public", len(Base.metadata.tables)), ("tenant", len(Base.metadata.tables))]
        assert (await meta(conn))["notify"] == "when_waiting"


@pytest.mark.usefixtures("superuser")
@pytest.mark.parametrize("mode", ["always", "when_waiting", "off"])
async def test_d10_a_plain_insert_needs_no_search_path_and_no_other_right(empty_database_url: str, mode: str) -> None:
    async with await connect(empty_database_url, options="-c search_path=tenant") as conn:
        await conn.execute("CREATE SCHEMA tenant")
        await install(conn, notify=mode)
    async with await connect(empty_database_url) as conn, conn.transaction(force_rollback=True):
        await conn.execute("CREATE ROLE horsies_sender")
        await conn.execute("GRANT USAGE ON SCHEMA tenant TO horsies_sender")
        await conn.execute("GRANT INSERT ON tenant.horsies_tasks TO horsies_sender")
        await conn.execute("SET LOCAL ROLE horsies_sender")
        await conn.execute("INSERT INTO tenant.horsies_tasks (id, task_name, args) VALUES ('x', 't', '[]')")


def test_d70_the_migrations_lead_to_this_version() -> None:
    assert [step.version for step in migrations()] == list(range(FIRST_VERSION + 1, SCHEMA_VERSION + 1))


@pytest.mark.parametrize("numbers", [[2], [1, 3], [1, 1], [-11]])
def test_d70_a_gap_between_migrations_is_noticed(tmp_path: Path, numbers: list[int]) -> None:
    for place, number in enumerate(numbers):
        (tmp_path / f"{FIRST_VERSION + number:04d}_{place}.sql").write_text("SELECT 1")
    with pytest.raises(ValueError, match="numbered"):
        migrations(tmp_path)


@pytest.fixture
def next_release(tmp_path: Path) -> Callable[[str], Release]:
    """The release after this one, with a migration of its own."""

    def make(change: str, *, breaking: int = BREAKING_VERSION) -> Release:
        for path in MIGRATIONS.glob("*.sql"):
            (tmp_path / path.name).write_text(path.read_text())
        (tmp_path / f"{SCHEMA_VERSION + 1:04d}_next.sql").write_text(change)
        return Release(SCHEMA_VERSION + 1, breaking, tmp_path)

    return make


ADD_COLUMN = "ALTER TABLE horsies_tasks ADD COLUMN note text;\nDROP FUNCTION horsies_ring(text, text, text);"


async def test_d70_an_older_schema_is_brought_up(db: AsyncConnection, next_release: Callable[..., Release]) -> None:
    await install(db, notify="when_waiting", change_notify=True)
    newer = next_release(ADD_COLUMN)
    report = await install(db, notify="off", release=newer)
    assert report == InstallReport(SCHEMA_VERSION + 1, "when_waiting"), "an upgrade alone keeps the recorded mode"
    assert "note" in await columns_of(db, "horsies_tasks")
    assert (await meta(db))["schema_version"] == str(SCHEMA_VERSION + 1)
    await db.execute("SELECT horsies_ring('default', 'x', NULL)")
    assert await install(db, release=newer) == report


WITHOUT_WHAT_IT_ADDS = """
    ALTER TABLE horsies_tasks DROP COLUMN sent_by;
    DROP INDEX horsies_tasks_held_idx;
    DROP TABLE horsies_early_tasks;
    DROP FUNCTION horsies_keep_known_names() CASCADE;
"""
ADD_ALL_KINDS = """
    ALTER TABLE horsies_tasks ADD COLUMN sent_by VARCHAR(63);
    CREATE INDEX horsies_tasks_held_idx ON horsies_tasks (workflow_id, id) WHERE is_held AND is_waiting;
    CREATE TABLE horsies_early_tasks (task_id VARCHAR(36) NOT NULL, task_name VARCHAR(255) NOT NULL,
        queue_name VARCHAR(100), priority INTEGER, PRIMARY KEY (task_id));
    CREATE INDEX horsies_early_tasks_name_idx ON horsies_early_tasks (task_name, task_id);
    -- A trigger needs its function now; its text comes after the last step.
    CREATE FUNCTION horsies_keep_known_names() RETURNS trigger AS 'BEGIN RETURN NULL; END' LANGUAGE plpgsql;
    CREATE TRIGGER horsies_worker_names_delete AFTER DELETE ON horsies_workers
        REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION horsies_keep_known_names();
"""


async def test_d70_a_migrated_schema_is_what_a_fresh_one_is(
    db: AsyncConnection, next_release: Callable[..., Release]
) -> None:
    fresh = await snapshot(db)
    await db.execute("INSERT INTO horsies_tasks (id, task_name) VALUES ('waits', 't')")
    await db.execute(WITHOUT_WHAT_IT_ADDS)
    await install(db, release=next_release(ADD_ALL_KINDS))
    migrated = await snapshot(db)
    for kind in fresh:
        assert migrated[kind] == fresh[kind], kind
    assert await (await db.execute("SELECT id, status FROM horsies_tasks")).fetchall() == [("waits", "PENDING")]


async def test_d60_d70_a_session_that_is_at_work_goes_on_over_the_upgrade(
    db: AsyncConnection, database_url: str, next_release: Callable[..., Release]
) -> None:
    """What it has prepared on the older schema notifies and moves tasks as on the new one."""
    await db.execute(
        "INSERT INTO horsies_tasks (id, task_name, status, claimed, claim_seq, claimed_by_worker_id, started_at)"
        " VALUES ('runs', 't', 'RUNNING', TRUE, 3, 'w', now())"
    )
    insert = "INSERT INTO horsies_tasks (id, task_name) VALUES (%s, 't')"
    async with await connect(database_url) as worker:
        for number in range(2):
            await worker.execute(insert, [f"before-{number}"], prepare=True)
            await tasks.apply(worker, "w", [Complete(Claim("no-such-task", 1), "{}")])
        await install(db, release=next_release(ADD_COLUMN))
        async with listening(database_url) as heard:
            await worker.execute(insert, ["after"], prepare=True)
            assert await tasks.apply(worker, "w", [Complete(Claim("runs", 3), '{"ok":null}')]) == {"runs"}
            assert await heard() == [("task_new", "after"), ("task_queue_default", "after"), ("task_done", "runs")]


async def test_d70_tables_from_before_the_first_release_are_refused_and_stay_as_they_are(db: AsyncConnection) -> None:
    await db.execute("INSERT INTO horsies_tasks (id, task_name) VALUES ('waits', 't')")
    await db.execute("UPDATE horsies_meta SET value = %s WHERE key = 'schema_version'", [str(FIRST_VERSION - 1)])
    await db.execute("ALTER TABLE horsies_tasks DROP COLUMN sent_by")
    before = await snapshot(db)
    with pytest.raises(SchemaError, match=f"of version {FIRST_VERSION - 1}, from before the first release") as caught:
        await install(db, notify="off", change_notify=True)
    assert "let the tasks there end" in (caught.value.help_text or "")
    assert await snapshot(db) == before
    assert await has_tasks(db, 1)


async def test_d70_tables_whose_record_is_lost_are_recorded_again(db: AsyncConnection) -> None:
    before = await snapshot(db)
    await db.execute("INSERT INTO horsies_tasks (id, task_name) VALUES ('waits', 't')")
    await db.execute("TRUNCATE horsies_meta")
    assert (await install(db)).created
    assert await snapshot(db) == before
    assert await has_tasks(db, 1)


async def test_d70_simultaneous_upgrades_run_each_step_once(
    database_url: str, next_release: Callable[..., Release]
) -> None:
    newer = next_release(ADD_COLUMN)
    connections = [await connect(database_url) for _ in range(8)]
    try:
        reports = await asyncio.gather(*(install(conn, release=newer) for conn in connections))
        assert {report.version for report in reports} == {SCHEMA_VERSION + 1}
    finally:
        for conn in connections:
            await conn.close()


async def test_d70_who_sends_during_an_upgrade_only_waits(
    db: AsyncConnection, database_url: str, next_release: Callable[..., Release]
) -> None:
    """The migration changes a table that the triggers read, and then that of the tasks."""
    newer = next_release(f"ALTER TABLE horsies_waiting ADD COLUMN note text;\nSELECT pg_sleep(0.5);\n{ADD_COLUMN}")
    is_over = asyncio.Event()

    async def send(number: int) -> int:
        sent = 0
        async with await connect(database_url) as conn:
            while not is_over.is_set():
                await conn.execute("INSERT INTO horsies_tasks (id, task_name) VALUES (%s, 't')", [f"{number}-{sent}"])
                sent += 1
        return sent

    senders = [asyncio.create_task(send(number)) for number in range(6)]
    await eventually(lambda: has_tasks(db, 12), what="all of them send")
    assert (await install(db, release=newer)).version == SCHEMA_VERSION + 1
    is_over.set()
    sent = sum(await asyncio.gather(*senders))
    assert await (await db.execute("SELECT count(*) FROM horsies_tasks")).fetchone() == (sent,)


async def has_tasks(db: AsyncConnection, count: int) -> bool:
    [(found,)] = await (await db.execute("SELECT count(*) FROM horsies_tasks")).fetchall()
    return bool(found >= count)


async def is_waited_for(conn: AsyncConnection) -> bool:
    """Whether somebody waits for a lock of a table."""
    waiting = "SELECT FROM pg_locks WHERE NOT granted AND relation = 'horsies_tasks'::regclass"
    return await (await conn.execute(waiting)).fetchone() is not None


async def test_d70_an_upgrade_gives_way_to_a_transaction_that_stays_open_and_is_tried_again(
    db: AsyncConnection, database_url: str, next_release: Callable[..., Release]
) -> None:
    async with await connect(database_url) as writer, writer.transaction():
        await writer.execute("INSERT INTO horsies_tasks (id, task_name) VALUES ('first', 't')")
        upgrade = asyncio.create_task(install(db, release=next_release(ADD_COLUMN)))
        async with await connect(database_url) as another:  # it waits for each try, and goes on after it
            for number in range(3):
                await eventually(lambda: is_waited_for(writer), what="a try of the upgrade")
                await another.execute("INSERT INTO horsies_tasks (id, task_name) VALUES (%s, 't')", [f"t{number}"])
        # This one would be a circle with the upgrade, if it kept what it has got.
        await writer.execute("SELECT FROM horsies_workflows FOR UPDATE")
        assert not upgrade.done()
    assert (await upgrade).version == SCHEMA_VERSION + 1


async def test_d70_a_migration_that_fails_changes_nothing(
    db: AsyncConnection, next_release: Callable[..., Release]
) -> None:
    before = await snapshot(db)
    with pytest.raises(psycopg.errors.UndefinedTable):
        await install(db, release=next_release(ADD_COLUMN + "\nDROP TABLE no_such_table;"))
    assert await snapshot(db) == before
    assert (await meta(db))["schema_version"] == str(SCHEMA_VERSION)


async def test_d21_an_upgrade_invents_no_attempts(db: AsyncConnection, next_release: Callable[..., Release]) -> None:
    await db.execute(
        "INSERT INTO horsies_tasks (id, task_name, status, started_at, failed_at, retry_count) "
        "VALUES ('old', 't', 'FAILED', now(), now(), 2)"
    )
    await install(db, release=next_release(ADD_COLUMN))
    assert await (await db.execute("SELECT count(*) FROM horsies_task_attempts")).fetchone() == (0,)
    assert await (await db.execute("SELECT error_code FROM horsies_tasks")).fetchone() == (None,)


async def test_d55_older_code_goes_on_with_a_newer_schema_and_leaves_it_alone(
    db: AsyncConnection, next_release: Callable[..., Release]
) -> None:
    await install(db, release=next_release("CREATE INDEX note_idx ON horsies_tasks (sent_at)"))
    await db.execute(
        "CREATE OR REPLACE FUNCTION horsies_ring(queue text, task_id text, giver text) RETURNS void AS '' LANGUAGE sql"
    )
    before = await snapshot(db)
    report = await install(db, notify="off", change_notify=True)
    assert report == InstallReport(SCHEMA_VERSION + 1, "always")
    assert await snapshot(db) == before


async def test_d55_older_code_is_refused_by_a_schema_that_breaks_with_it(
    db: AsyncConnection, next_release: Callable[..., Release]
) -> None:
    await install(db, release=next_release(ADD_COLUMN, breaking=SCHEMA_VERSION + 1))
    with pytest.raises(SchemaTooNew) as caught:
        await install(db)
    assert isinstance(caught.value, HorsiesError)
    assert caught.value.code is ErrorCode.BROKER_INIT_FAILED
    assert f"version {SCHEMA_VERSION + 1}" in caught.value.message
    assert "upgrade the horsies package" in (caught.value.help_text or "")


async def test_d60_a_worker_changes_the_mode_and_learns_what_it_was(db: AsyncConnection) -> None:
    changed = await install(db, notify="when_waiting", change_notify=True)
    assert changed == InstallReport(SCHEMA_VERSION, "when_waiting", notify_changed_from="always")
    assert await install(db, notify="when_waiting", change_notify=True) == InstallReport(SCHEMA_VERSION, "when_waiting")


async def test_d60_changing_back_and_forth_leaves_no_trace(db: AsyncConnection) -> None:
    before = await snapshot(db)
    for mode in ("when_waiting", "off", "always"):
        await install(db, notify=mode, change_notify=True)
    assert await snapshot(db) == before


async def test_d60_an_unknown_mode_is_refused(db: AsyncConnection) -> None:
    with pytest.raises(ValueError, match="notify must be one of always, when_waiting, off, not 'loud'"):
        await install(db, notify="loud")
