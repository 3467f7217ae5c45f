"""Sends over a connection of asyncpg, as its users have them: from a pool, in its `transaction()`, without one, on the
wrong loop. What every kind of connection does is in `test_send_inside.py`."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
import sqlalchemy
from psycopg import AsyncConnection
from sqlalchemy.ext import asyncio as sqlalchemy_async

from horsies import TaskSendErrorCode
from tests.app_support import Add
from tests.factories import count_tasks, task_row
from tests.services.test_send import somebody_waits_for_a_lock
from tests.support import eventually


@pytest.fixture
async def conn(database_url: str) -> AsyncIterator[Any]:
    conn = await asyncpg.connect(database_url)
    yield conn
    await conn.close()


async def test_x22_a_task_belongs_to_the_transaction_of_asyncpg(add: Add, conn: Any, db: AsyncConnection) -> None:
    with pytest.raises(ZeroDivisionError):
        async with conn.transaction():
            (await add.with_options(connection=conn).send_async(1, 2)).unwrap()
            raise ZeroDivisionError
    assert await count_tasks(db) == 0
    async with conn.transaction():
        kept = (await add.with_options(connection=conn).send_async(3, 4)).unwrap()
        inner = conn.transaction()
        await inner.start()
        (await add.with_options(connection=conn).send_many_async([(5, 6), (7, 8)])).unwrap()
        await inner.rollback()
        assert await count_tasks(db) == 0
    assert await count_tasks(db) == 1
    assert (await task_row(db, kept.task_id))["args"] == "[3,4]"


async def test_x22_without_a_transaction_a_task_is_written_at_once(add: Add, conn: Any, db: AsyncConnection) -> None:
    bound = add.with_options(connection=conn)
    (await bound.send_async(1, 2)).unwrap()
    (await bound.send_many_async((n, n) for n in range(1200))).unwrap()
    assert await count_tasks(db) == 1201
    (await bound.with_options(idempotency_key="k").send_async(1)).unwrap()
    keyed = add.with_options(idempotency_key="k").prepare(2)
    error = (await bound.send_many_async([(5, 5), keyed])).unwrap_err()
    assert (error.code, error.position) == (TaskSendErrorCode.PAYLOAD_MISMATCH, 1)
    assert not conn.is_in_transaction()
    assert await count_tasks(db) == 1202


async def test_x22_a_connection_from_a_pool(add: Add, db: AsyncConnection, database_url: str) -> None:
    async with asyncpg.create_pool(database_url, min_size=1, max_size=1) as pool:
        async with pool.acquire() as conn, conn.transaction():
            (await add.with_options(connection=conn).send_async(1, 2)).unwrap()
        assert await count_tasks(db) == 1
        released = (await add.with_options(connection=conn).send_async(1, 2)).unwrap_err()
        itself = (await add.with_options(connection=pool).send_async(1, 2)).unwrap_err()  # type: ignore[arg-type]
    assert released.code is itself.code is TaskSendErrorCode.VALIDATION_FAILED
    assert "released to its pool" in released.message
    assert "is a pool: take a connection from it" in itself.message


async def test_x22_what_cannot_work_is_refused_in_words(add: Add, database_url: str) -> None:
    closed = await asyncpg.connect(database_url)
    await closed.close()
    refused = (await add.with_options(connection=closed).send_async(1, 2)).unwrap_err()
    assert refused.code is TaskSendErrorCode.VALIDATION_FAILED and "closed" in refused.message
    engine = sqlalchemy_async.create_async_engine(database_url.replace("postgresql://", "postgresql+asyncpg://"))
    instead = (await add.with_options(connection=engine).send_async(1, 2)).unwrap_err()  # type: ignore[arg-type]
    assert "AsyncEngine is a pool" in instead.message
    await engine.dispose()


async def test_x22_a_connection_of_another_loop_is_refused(add: Add, conn: Any, db: AsyncConnection) -> None:
    def elsewhere() -> Any:
        return asyncio.run(add.with_options(connection=conn).send_async(1, 2))

    error = (await asyncio.to_thread(elsewhere)).unwrap_err()
    assert error.code is TaskSendErrorCode.VALIDATION_FAILED
    assert "another event loop" in error.message
    (await add.with_options(connection=conn).send_async(1, 2)).unwrap()
    assert await count_tasks(db) == 1


async def test_x22_the_callers_own_codecs_and_records_do_not_matter(
    add: Add, db: AsyncConnection, database_url: str
) -> None:
    class Named(asyncpg.Record):  # type: ignore[misc]
        def __getattr__(self, name: str) -> Any:
            return self[name]

    conn = await asyncpg.connect(database_url, record_class=Named, statement_cache_size=0)
    for name in ("json", "jsonb"):
        await conn.set_type_codec(name, schema="pg_catalog", encoder=json.dumps, decoder=json.loads)
    keyed = add.with_options(connection=conn, idempotency_key="k", flags=["a"])
    first, again = (await keyed.send_async(1, 2)).unwrap(), (await keyed.send_async(1, 2)).unwrap()
    assert first.task_id == again.task_id
    assert (await task_row(db, first.task_id))["flags"] == {"a": True}
    await conn.close()


async def test_x22_a_send_that_is_cancelled_leaves_a_usable_transaction(
    add: Add, conn: Any, db: AsyncConnection, database_url: str
) -> None:
    theirs = await asyncpg.connect(database_url)
    async with theirs.transaction():
        (await add.with_options(connection=theirs, idempotency_key="k").send_async(1)).unwrap()
        async with conn.transaction():
            (await add.with_options(connection=conn).send_async(7)).unwrap()
            waiting = asyncio.create_task(add.with_options(connection=conn, idempotency_key="k").send_async(1))
            await eventually(lambda: somebody_waits_for_a_lock(db))
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert await count_tasks(db) == 1
    await theirs.close()


async def test_x22_t104_an_error_shows_no_arguments(add: Add, conn: Any, db: AsyncConnection) -> None:
    await db.execute("ALTER TABLE horsies_tasks ADD CONSTRAINT odd CHECK (args NOT LIKE '%77777%')")
    error = (await add.with_options(connection=conn).send_async(77_777, 2)).unwrap_err()
    assert error.code is TaskSendErrorCode.ENQUEUE_FAILED
    assert "odd" in error.message and "77777" not in error.message


async def test_x22_autocommit_of_sqlalchemy_on_asyncpg(add: Add, db: AsyncConnection, database_url: str) -> None:
    url = database_url.replace("postgresql://", "postgresql+asyncpg://")
    engine = sqlalchemy_async.create_async_engine(url, isolation_level="AUTOCOMMIT")
    async with engine.connect() as conn:
        (await add.with_options(connection=conn).send_async(1, 2)).unwrap()
        (await add.with_options(connection=conn).send_many_async([(3, 4), (5, 6)])).unwrap()
        assert await count_tasks(db) == 3
        await conn.execute(sqlalchemy.text("SELECT 1"))
    await engine.dispose()


def test_x22_asyncpg_need_not_be_installed(database_url: str) -> None:
    program = """
        import sys
        sys.modules["asyncpg"] = None  # as if it were not there
        import psycopg
        from horsies import AppConfig, Horsies

        app = Horsies(AppConfig.for_database_url(sys.argv[1]))

        @app.task("note")
        def note(text: str) -> None: ...

        with psycopg.connect(sys.argv[1]) as conn:
            note.with_options(connection=conn).send("x").unwrap()
        print(note.with_options(connection="wrong").send("x").unwrap_err().code.value)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), database_url], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "VALIDATION_FAILED\n"), done.stderr
