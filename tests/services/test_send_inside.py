"""Sends in the caller's transaction: `with_options(connection=...)` with every kind of connection."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import psycopg
import psycopg_pool
import pytest
import sqlalchemy
from psycopg import AsyncConnection
from psycopg.rows import dict_row
from psycopg.types.numeric import Int8Dumper
from psycopg.types.string import StrDumper
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as sqlalchemy_async

from horsies import Horsies, TaskError, TaskResult, TaskSendErrorCode, TaskSendResult
from tests.app_support import Add, an_app, define_add
from tests.factories import count_tasks, task_row
from tests.services.test_send import fail_inserts, seconds_until_due, somebody_waits_for_a_lock, tries
from tests.support import eventually


@dataclass
class Place:
    """A connection of the caller's, with what the tests do on it: its own statements, the end, and a send."""

    connection: Any
    execute: Callable[[str], Awaitable[Any]]
    commit: Callable[[], Awaitable[None]]
    rollback: Callable[[], Awaitable[None]]
    is_async: bool

    async def send(self, task: Any, *args: Any, **options: Any) -> TaskSendResult[Any]:
        bound = task.with_options(connection=self.connection, **options)
        return await bound.send_async(*args) if self.is_async else bound.send(*args)

    async def send_many(self, task: Any, calls: Any) -> TaskSendResult[Any]:
        bound = task.with_options(connection=self.connection)
        return await bound.send_many_async(calls) if self.is_async else bound.send_many(calls)

    async def schedule(self, task: Any, delay: int, *args: Any) -> TaskSendResult[Any]:
        bound = task.with_options(connection=self.connection)
        return await bound.schedule_async(delay, *args) if self.is_async else bound.schedule(delay, *args)


def blocking(connection: Any, execute: Callable[[str], Any]) -> Place:
    def soon(call: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        async def done(*args: Any) -> Any:
            return call(*args)

        return done

    return Place(connection, soon(execute), soon(connection.commit), soon(connection.rollback), False)


def awaiting(connection: Any, execute: Callable[[str], Awaitable[Any]]) -> Place:
    return Place(connection, execute, connection.commit, connection.rollback, True)


def for_sqlalchemy(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://", 1)


@contextlib.asynccontextmanager
async def of_psycopg(url: str) -> AsyncIterator[Place]:
    with psycopg.connect(url) as conn:
        yield blocking(conn, lambda text: conn.execute(text.encode()))


@contextlib.asynccontextmanager
async def of_psycopg_async(url: str) -> AsyncIterator[Place]:
    async with await AsyncConnection.connect(url) as conn:
        yield awaiting(conn, lambda text: conn.execute(text.encode()))


@contextlib.contextmanager
def engine_for(url: str, **settings: Any) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(for_sqlalchemy(url), **settings)
    yield engine
    engine.dispose()


@contextlib.asynccontextmanager
async def of_sqlalchemy(url: str) -> AsyncIterator[Place]:
    with engine_for(url) as engine, engine.connect() as conn:
        yield blocking(conn, lambda text: conn.execute(sqlalchemy.text(text)))


@contextlib.asynccontextmanager
async def of_a_session(url: str) -> AsyncIterator[Place]:
    with engine_for(url) as engine, orm.Session(engine) as session:
        yield blocking(session, lambda text: session.execute(sqlalchemy.text(text)))


@contextlib.asynccontextmanager
async def of_a_scoped_session(url: str) -> AsyncIterator[Place]:
    with engine_for(url) as engine:
        session = orm.scoped_session(orm.sessionmaker(engine))
        yield blocking(session, lambda text: session.execute(sqlalchemy.text(text)))
        session.remove()


@contextlib.asynccontextmanager
async def of_sqlalchemy_async(url: str) -> AsyncIterator[Place]:
    engine = sqlalchemy_async.create_async_engine(for_sqlalchemy(url))
    async with engine.connect() as conn:
        yield awaiting(conn, lambda text: conn.execute(sqlalchemy.text(text)))
    await engine.dispose()


@contextlib.asynccontextmanager
async def of_an_async_session(url: str) -> AsyncIterator[Place]:
    engine = sqlalchemy_async.create_async_engine(for_sqlalchemy(url))
    async with sqlalchemy_async.AsyncSession(engine) as session:
        yield awaiting(session, lambda text: session.execute(sqlalchemy.text(text)))
    await engine.dispose()


@contextlib.asynccontextmanager
async def of_asyncpg(url: str) -> AsyncIterator[Place]:
    """asyncpg begins no transaction by itself: one is open from the start, and after each end another."""
    conn = await asyncpg.connect(url)
    await conn.execute("BEGIN")

    def ending(statement: str) -> Callable[[], Awaitable[None]]:
        async def end() -> None:
            await conn.execute(f"{statement}; BEGIN")

        return end

    yield Place(conn, conn.execute, ending("COMMIT"), ending("ROLLBACK"), True)
    await conn.close()


@contextlib.asynccontextmanager
async def of_sqlalchemy_on_asyncpg(url: str) -> AsyncIterator[Place]:
    engine = sqlalchemy_async.create_async_engine(for_sqlalchemy(url).replace("+psycopg", "+asyncpg"))
    async with sqlalchemy_async.AsyncSession(engine) as session:
        yield awaiting(session, lambda text: session.execute(sqlalchemy.text(text)))
    await engine.dispose()


KINDS = {
    "psycopg": of_psycopg,
    "psycopg async": of_psycopg_async,
    "sqlalchemy": of_sqlalchemy,
    "session": of_a_session,
    "scoped session": of_a_scoped_session,
    "sqlalchemy async": of_sqlalchemy_async,
    "async session": of_an_async_session,
    "asyncpg": of_asyncpg,
    "asyncpg session": of_sqlalchemy_on_asyncpg,
}


@pytest.fixture(params=list(KINDS))
async def place(request: pytest.FixtureRequest, database_url: str) -> AsyncIterator[Place]:
    """A connection of each kind, in a database that has a table of the caller's as well."""
    with psycopg.connect(database_url) as conn:
        conn.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    async with KINDS[request.param](database_url) as place:
        yield place


# For what does not depend on the kind: the simplest, the one with most around it, and another driver.
some_kinds = pytest.mark.parametrize("place", ["psycopg", "async session", "asyncpg"], indirect=True)


async def count_orders(db: AsyncConnection) -> int:
    row = await (await db.execute("SELECT count(*) FROM orders")).fetchone()
    assert row is not None
    return int(row[0])


async def test_t40_a_task_appears_with_the_callers_commit_and_vanishes_with_its_rollback(
    place: Place, add: Add, db: AsyncConnection
) -> None:
    handle = (await place.send(add, 1, 2)).unwrap()  # the first thing that happens on the connection
    assert await count_tasks(db) == 0
    await place.commit()
    assert (await task_row(db, handle.task_id))["args"] == "[1,2]"
    await place.execute("INSERT INTO orders VALUES (1)")
    (await place.send(add, 3, 4)).unwrap()
    await place.rollback()
    assert (await count_tasks(db), await count_orders(db)) == (1, 0)
    await place.execute("INSERT INTO orders VALUES (2)")
    (await place.send(add, 5, 6)).unwrap()
    await place.commit()
    assert (await count_tasks(db), await count_orders(db)) == (2, 1)


async def test_t40_many_and_scheduled_ones_too(place: Place, add: Add, db: AsyncConnection) -> None:
    handles = (await place.send_many(add, ((n, n) for n in range(1200)))).unwrap()
    later = (await place.schedule(add, 3600, 5)).unwrap()
    assert await count_tasks(db) == 0
    await place.commit()
    assert await count_tasks(db) == len(handles) + 1 == 1201
    assert (await task_row(db, handles[700].task_id))["args"] == "[700,700]"
    assert 3599 < await seconds_until_due(db, later.task_id) < 3700
    (await place.send_many(add, [(1, 2)] * 3)).unwrap()
    await place.rollback()
    assert await count_tasks(db) == 1201


async def test_t48_t52_a_send_that_fails_is_a_value_and_the_transaction_goes_on(
    place: Place, add: Add, db: AsyncConnection
) -> None:
    """One that is not looked at must not turn the caller's commit into a rollback, and one that is replayed must not
    become a task outside of the transaction."""
    await fail_inserts(db, times=2)
    await place.execute("INSERT INTO orders VALUES (1)")
    one, many = await place.send(add, 77_777, 2), await place.send_many(add, [(77_777, 4)])
    for error in (one.unwrap_err(), many.unwrap_err()):
        assert (error.code, error.retryable) == (TaskSendErrorCode.ENQUEUE_FAILED, False)
        assert add.retry_send(error).unwrap_err().code is TaskSendErrorCode.VALIDATION_FAILED
        assert "No space left on device" in error.message and "77777" not in error.message
        assert getattr(error.exception, "sqlstate", None) == psycopg.errors.DiskFull.sqlstate
    await place.execute("INSERT INTO orders VALUES (2)")
    (await place.send(add, 5, 6)).unwrap()
    await place.commit()
    assert (await count_tasks(db), await count_orders(db)) == (1, 2)


@some_kinds
async def test_t57_keys_are_judged_inside_the_transaction(place: Place, add: Add, db: AsyncConnection) -> None:
    committed = add.with_options(idempotency_key="old").send(1).unwrap()
    assert (await place.send(add, 1, idempotency_key="old")).unwrap().task_id == committed.task_id
    fresh = (await place.send(add, 1, idempotency_key="new")).unwrap()
    assert (await place.send(add, 1, idempotency_key="new")).unwrap().task_id == fresh.task_id
    different = (await place.send(add, 2, idempotency_key="new")).unwrap_err()
    assert (different.code, different.retryable) == (TaskSendErrorCode.PAYLOAD_MISMATCH, False)
    keyed = [add.with_options(idempotency_key="old").prepare(3)]
    many = (await place.send_many(add, [(8, 8), *keyed])).unwrap_err()
    assert (many.code, many.position) == (TaskSendErrorCode.PAYLOAD_MISMATCH, 1)
    await place.commit()
    assert await count_tasks(db) == 2


@some_kinds
async def test_t51_nothing_is_tried_again_on_the_callers_connection(
    place: Place, database_url: str, db: AsyncConnection
) -> None:
    await fail_inserts(db, times=1)
    with an_app(database_url, resend_on_transient_err=True) as app:
        assert (await place.send(define_add(app), 1, 2)).is_err()
    assert await tries(db) == 1


@some_kinds
async def test_d60_the_bell_rings_with_the_callers_commit(
    place: Place, add: Add, db: AsyncConnection, database_url: str
) -> None:
    rung: list[str] = []
    db.add_notify_handler(lambda note: rung.append(note.payload))
    await db.execute("LISTEN task_new")
    handle = (await place.send(add, 1, 2)).unwrap()
    await db.execute("SELECT 1")
    assert rung == []
    await place.commit()

    async def heard() -> bool:
        await db.execute("SELECT 1")
        return rung == [handle.task_id]

    await eventually(heard)


@some_kinds
async def test_t67_a_send_happens_in_the_callers_thread_and_on_its_loop(place: Place, add: Add) -> None:
    before = set(threading.enumerate())
    (await place.send(add, 1, 2)).unwrap()
    (await place.send_many(add, [(1, 2)])).unwrap()
    assert set(threading.enumerate()) == before


@some_kinds
async def test_a_transaction_that_has_failed_already_is_told(place: Place, add: Add, db: AsyncConnection) -> None:
    with pytest.raises(Exception, match="division by zero"):
        await place.execute("SELECT 1/0")
    error = (await place.send(add, 1, 2)).unwrap_err()
    assert error.code is TaskSendErrorCode.ENQUEUE_FAILED
    assert "transaction is aborted" in error.message
    await place.rollback()
    (await place.send(add, 1, 2)).unwrap()
    await place.commit()
    assert await count_tasks(db) == 1


@some_kinds
async def test_a_read_only_transaction_is_told_and_goes_on(place: Place, add: Add) -> None:
    await place.execute("SET TRANSACTION READ ONLY")
    error = (await place.send(add, 1, 2)).unwrap_err()
    assert (error.code, error.retryable) == (TaskSendErrorCode.ENQUEUE_FAILED, False)
    assert "read-only transaction" in error.message
    await place.execute("SELECT count(*) FROM orders")


@pytest.mark.parametrize("kind", list(KINDS))
async def test_t12_a_database_without_the_tables_is_told(add: Add, empty_database_url: str, kind: str) -> None:
    async with KINDS[kind](empty_database_url) as place:
        await place.execute("CREATE TABLE orders (id int)")
        error = (await place.send(add, 1, 2)).unwrap_err()
        assert error.code is TaskSendErrorCode.VALIDATION_FAILED
        assert "no horsies tables" in error.message and "init-db" in error.message
        await place.execute("INSERT INTO orders VALUES (1)")
        await place.commit()


@some_kinds
async def test_t44_a_delay_counts_from_the_call_not_from_the_begin_of_the_transaction(
    place: Place, add: Add, db: AsyncConnection
) -> None:
    await place.execute("SELECT pg_sleep(0.4)")
    handle = (await place.schedule(add, 60, 1)).unwrap()
    await place.commit()
    assert 60.2 < await seconds_until_due(db, handle.task_id) < 90  # from the begin of the transaction


async def test_autocommit_writes_at_once(add: Add, db: AsyncConnection, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as conn:
        bound = add.with_options(connection=conn)
        bound.send(1, 2).unwrap()
        assert await count_tasks(db) == 1
        assert len(bound.send_many((n, n) for n in range(1200)).unwrap()) == 1200
        assert await count_tasks(db) == 1201
        with conn.transaction():
            bound.send(3, 4).unwrap()
            assert await count_tasks(db) == 1201
        assert await count_tasks(db) == 1202
    async with await AsyncConnection.connect(database_url, autocommit=True) as aconn:
        (await add.with_options(connection=aconn).send_many_async([(1, 2), (3, 4)])).unwrap()
    with engine_for(database_url, isolation_level="AUTOCOMMIT") as engine, engine.connect() as sa_conn:
        add.with_options(connection=sa_conn).send(5, 6).unwrap()
        add.with_options(connection=sa_conn).send_many([(5, 6), (7, 8)]).unwrap()
        assert await count_tasks(db) == 1207


async def test_autocommit_is_still_all_or_none(add: Add, db: AsyncConnection, database_url: str) -> None:
    add.with_options(idempotency_key="k").send(1).unwrap()
    with psycopg.connect(database_url, autocommit=True) as conn:
        bound = add.with_options(connection=conn)
        assert bound.send_many([(5, 5), add.with_options(idempotency_key="k").prepare(2)]).is_err()
        assert conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    assert await count_tasks(db) == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"row_factory": dict_row},
        {"cursor_factory": psycopg.ClientCursor},
        {"cursor_factory": psycopg.RawCursor},
        {"prepare_threshold": None},
        {"prepare_threshold": 0},
    ],
)
async def test_the_callers_own_rows_and_cursors_do_not_matter(
    add: Add, db: AsyncConnection, database_url: str, settings: dict[str, Any]
) -> None:
    with psycopg.connect(database_url, **settings) as conn:
        keyed = add.with_options(connection=conn, idempotency_key="k")
        assert keyed.send(1, 2).unwrap().task_id == keyed.send(1, 2).unwrap().task_id
    assert await count_tasks(db) == 1


async def test_the_callers_own_types_do_not_matter(add: Add, db: AsyncConnection, database_url: str) -> None:
    """psycopg leaves the type of a text open; a caller may have said that it is text."""
    with psycopg.connect(database_url) as conn:
        conn.adapters.register_dumper(str, StrDumper)
        conn.adapters.register_dumper(int, Int8Dumper)
        soon = datetime.now(UTC) + timedelta(hours=1)
        sent = add.with_options(connection=conn, good_until=soon, flags=["a"], idempotency_key="k").send(1, 2).unwrap()
    row = await task_row(db, sent.task_id)
    assert (row["args"], row["flags"], row["idempotency_key"]) == ("[1,2]", {"a": True}, "k")


async def test_a_savepoint_of_the_callers_takes_the_task_back(add: Add, db: AsyncConnection, database_url: str) -> None:
    with engine_for(database_url) as engine, orm.Session(engine) as session, session.begin():
        bound = add.with_options(connection=session)
        kept = bound.send(1, 2).unwrap()
        nested = session.begin_nested()
        bound.send(3, 4).unwrap()
        nested.rollback()
    assert await count_tasks(db) == 1
    assert await task_row(db, kept.task_id)


async def test_a_send_that_is_cancelled_leaves_a_usable_transaction(
    add: Add, db: AsyncConnection, database_url: str
) -> None:
    async with (
        await AsyncConnection.connect(database_url) as theirs,
        await AsyncConnection.connect(database_url) as ours,
    ):
        (await add.with_options(connection=theirs, idempotency_key="k").send_async(1)).unwrap()
        (await add.with_options(connection=ours).send_async(7)).unwrap()
        waiting = asyncio.create_task(add.with_options(connection=ours, idempotency_key="k").send_async(1))
        await eventually(lambda: somebody_waits_for_a_lock(db))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await ours.commit()
        assert await count_tasks(db) == 1


class Imposter:
    """Like the connection of another driver."""

    closed = False

    def execute(self, *_: Any) -> None:
        raise AssertionError("nobody may try this")


async def test_t48_a_connection_of_another_kind_is_refused(add: Add, db: AsyncConnection, database_url: str) -> None:
    closed = psycopg.connect(database_url)
    closed.close()
    sqlite = sqlalchemy.create_engine("sqlite://")
    with engine_for(database_url) as engine, sqlite.connect() as sqlite_conn, orm.Session(sqlite) as sqlite_session:
        ended = engine.connect()
        ended.close()
        wrong: list[tuple[Any, str]] = [
            (database_url, "not str"),
            (Imposter(), "Imposter"),
            (psycopg.Connection, "not type"),
            (engine, "Engine"),
            (closed, "closed"),
            (ended, "closed"),
            (sqlite_conn, "sqlite"),
            (sqlite_session, "sqlite"),
            (orm.Session(), "not bound"),
        ]
        for connection, why in wrong:
            for sent in (
                add.with_options(connection=connection).send(1, 2),
                add.with_options(connection=connection).schedule(5, 1),
                add.with_options(connection=connection).send_many([(1, 2)]),
            ):
                error = sent.unwrap_err()
                assert (error.code, error.retryable) == (TaskSendErrorCode.VALIDATION_FAILED, False), connection
                assert why in error.message, error.message
            async_error = (await add.with_options(connection=connection).send_async(1, 2)).unwrap_err()
            assert async_error.code is TaskSendErrorCode.VALIDATION_FAILED, connection
    assert await count_tasks(db) == 0


@pytest.mark.parametrize("kind", ["ConnectionPool", "NullConnectionPool", "AsyncConnectionPool"])
async def test_x22_a_pool_of_psycopg_is_refused_in_words_that_say_what_to_pass(
    add: Add, db: AsyncConnection, database_url: str, kind: str
) -> None:
    pool: Any = getattr(psycopg_pool, kind)(database_url, open=False)
    bound = add.with_options(connection=pool)
    for sent in (bound.send(1, 2), bound.send_many([(1, 2)]), await bound.send_async(1, 2)):
        error = sent.unwrap_err()
        assert error.code is TaskSendErrorCode.VALIDATION_FAILED
        assert f".{kind} is a pool: take a connection from it, and pass that one" in error.message
    assert await count_tasks(db) == 0


async def test_t48_a_connection_for_the_other_kind_of_call_is_refused(place: Place, add: Add) -> None:
    bound = add.with_options(connection=place.connection)
    if place.is_async:
        refused = [bound.send(1, 2), bound.schedule(5, 1), bound.send_many([(1, 2)])]
        instead = "send_async()"
    else:
        refused = [
            await bound.send_async(1, 2),
            await bound.schedule_async(5, 1),
            await bound.send_many_async([(1, 2)]),
        ]
        instead = "send()"
    for sent in refused:
        error = sent.unwrap_err()
        assert error.code is TaskSendErrorCode.VALIDATION_FAILED
        assert instead in error.message


async def test_a_call_prepared_for_one_connection_is_not_sent_over_another(
    add: Add, db: AsyncConnection, database_url: str
) -> None:
    with psycopg.connect(database_url) as one, psycopg.connect(database_url) as other:
        prepared = add.with_options(connection=one).prepare(1)
        for sent in (add.send_many([prepared]), add.with_options(connection=other).send_many([prepared])):
            assert "different connection" in sent.unwrap_err().message
        add.with_options(connection=one).send_many([prepared]).unwrap()
    assert await count_tasks(db) == 1


async def test_t43_a_connection_can_be_taken_back(add: Add, db: AsyncConnection, database_url: str) -> None:
    with psycopg.connect(database_url) as conn:
        bound = add.with_options(connection=conn)
        bound.with_options(connection=None).send(1).unwrap()
        assert await count_tasks(db) == 1


async def test_t104_arguments_do_not_show_in_what_sqlalchemy_says(app: Horsies, db: AsyncConnection) -> None:
    @app.task("login")
    def login(password: str) -> TaskResult[None, TaskError]:
        return TaskResult(ok=None)

    await fail_inserts(db, times=1)
    with engine_for(app.config.broker.dsn()) as engine, engine.connect() as conn:
        error = login.with_options(connection=conn).send("sesame").unwrap_err()
    assert "sesame" not in f"{error!r}{error.exception!r}"


def test_sqlalchemy_is_not_imported_for_it(database_url: str) -> None:
    program = """
        import sys
        import psycopg
        from horsies import AppConfig, Horsies, TaskError, TaskResult

        app = Horsies(AppConfig.for_database_url(sys.argv[1]))

        @app.task("note")
        def note(text: str) -> TaskResult[None, TaskError]:
            return TaskResult(ok=None)

        with psycopg.connect(sys.argv[1]) as conn:
            note.with_options(connection=conn).send("x").unwrap()
        note.with_options(connection="wrong").send("x").unwrap_err()
        print("sqlalchemy" in sys.modules)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), database_url], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
