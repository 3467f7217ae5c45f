"""Writes sends to the queue, each of them once: a send that is already there is recognised and not written again (T-54,
T-57). Many tasks are written in chunks, so that each statement stays small. The ids are UUIDs of version 7, so that
tasks sort in the order of sending.

The statements are a series that any connection can run. A series is a generator: it yields a statement and gets its
rows, or the exception of the database. A transaction or savepoint is another series around it. So the same series runs
on our own connection (`run`, `run_async`) or on the caller's, which `with_options(connection=...)` names (`write`): a
blocking connection in the caller's thread, an async one on the caller's loop. There the caller's commit makes the rows
visible, and a savepoint keeps a failed send from breaking the transaction. SQLAlchemy is not imported for this: a
program with one of its connections has imported it.
"""

import asyncio
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg.errors import SerializationFailure
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from horsies.core.models import tasks
from horsies.core.store import sends as send_rows
from horsies.core.store.sends import ConflictingRow, Rows, Send, Statement
from horsies.core.types import is_blocking

_NANOS_PER_MS = 1_000_000
_AT_ONCE = 128

# A conflicting row can be pruned after the insert and before it is read; then the insert is tried again.
TRIES = 3
MAX_ROWS = 500  # rows in one statement
MAX_CHARS = send_rows.MAX_CHARS
T = TypeVar("T")
Steps: TypeAlias = Generator[Statement, Rows, T]
_BEGIN, _COMMIT, _ROLLBACK = Statement("BEGIN"), Statement("COMMIT"), Statement("ROLLBACK")
_SAVE, _RELEASE = Statement("SAVEPOINT horsies_send"), Statement("RELEASE SAVEPOINT horsies_send")
_BACK = Statement("ROLLBACK TO SAVEPOINT horsies_send")

_NAMED = re.compile(r"%\(\w+\)s")
_WANTED = (
    "connection= takes a psycopg Connection, or an SQLAlchemy Connection or Session on psycopg, for send(); "
    "for send_async() their async counterparts (SQLAlchemy also on asyncpg), or a Connection of asyncpg"
)
# Modules and classes: what blocks, what is awaited, and what has connections.
_ASYNCPG = (("asyncpg.connection", "Connection"), ("asyncpg.pool", "PoolConnectionProxy"))
_ASYNC = (
    ("psycopg", "AsyncConnection"),
    *_ASYNCPG,
    ("sqlalchemy.ext.asyncio", "AsyncSession", "async_scoped_session", "AsyncConnection"),
)
_BLOCKING = (
    ("psycopg", "Connection"),
    ("sqlalchemy.engine", "Connection"),
    ("sqlalchemy.orm", "Session", "scoped_session"),
)
_POOLS = (
    ("asyncpg.pool", "Pool"),
    ("psycopg_pool", "ConnectionPool", "AsyncConnectionPool"),
    ("sqlalchemy.engine", "Engine"),
    ("sqlalchemy.ext.asyncio", "AsyncEngine"),
)


@dataclass(frozen=True, slots=True)
class Sent:
    """The row of the send: its own, or one that an equal send wrote before."""

    task_id: str


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A different send has the id or the idempotency key."""

    reason: str


SendOutcome: TypeAlias = Sent | Mismatch


class SendMismatchError(Exception):
    """One of many sends is a mismatch, so none of them is written."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position


class WrongConnectionError(ValueError):
    """Nothing can be sent over this connection; the message says what to pass instead."""


def enqueue(sends: Sequence[Send]) -> Steps[list[SendOutcome]]:
    """Insert the sends in one statement; the verdicts are in the same order."""
    return (yield from _enqueue(sends, datetime.now(UTC)))


def enqueue_all(sends: Sequence[Send], *, as_list: bool = False) -> Steps[list[str]]:
    """Insert all sends, or raise `SendMismatchError`; return the ids of their rows in the same order. The caller
    provides the transaction that makes all of them visible at once or not at all."""
    now = datetime.now(UTC)  # read once: the time between chunks must not count as the age of the call
    ids = [send.task_id for send in sends]
    for places in chunks(sends):
        verdicts = yield from _enqueue([sends[place] for place in places], now, as_list=as_list)
        for place, verdict in zip(places, verdicts, strict=True):
            if isinstance(verdict, Mismatch):
                raise SendMismatchError(place, verdict.reason)
            ids[place] = verdict.task_id
    return ids


def chunks(sends: Sequence[Send]) -> Iterator[list[int]]:
    """The positions of the sends, in parts that fit into a statement. Sends with a key are ordered by the key over all
    parts, so that two callers with the same keys wait for each other instead of deadlocking."""
    order: Sequence[int] = range(len(sends))
    if any(send.payload.idempotency_key is not None for send in sends):
        keys = [send.payload.idempotency_key for send in sends]
        order = sorted(order, key=lambda place: (keys[place] is None, keys[place] or ""))
    chunk: list[int] = []
    size = 0
    for place in order:
        chunk.append(place)
        size += length(sends[place])
        if len(chunk) == MAX_ROWS or size >= MAX_CHARS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def length(send: Send) -> int:
    """The length of the arguments as text."""
    return len(send.payload.args_json or "") + len(send.payload.kwargs_json or "")


def _enqueue(sends: Sequence[Send], now: datetime, *, as_list: bool = False) -> Steps[list[SendOutcome]]:
    verdicts: dict[str, SendOutcome] = {}
    open_sends = sends
    for _ in range(TRIES):
        rows = yield send_rows.insert(open_sends, now, as_list=as_list)
        verdicts |= {row[0]: Sent(row[0]) for row in rows}
        open_sends = [send for send in open_sends if send.task_id not in verdicts]
        if not open_sends:
            break
        for row in (yield send_rows.find(open_sends)):
            stored = ConflictingRow(*row)
            send = open_sends[stored.place]
            verdicts[send.task_id] = judge(send.payload, stored)
        open_sends = [send for send in open_sends if send.task_id not in verdicts]
        if not open_sends:
            break
    if open_sends:
        raise SerializationFailure(
            "the row with the idempotency key appeared and disappeared during the send; send again"
        )
    return [verdicts[send.task_id] for send in sends]


def judge(payload: tasks.TaskSendPayload, stored: ConflictingRow) -> SendOutcome:
    """Whether the stored row is this send."""
    if stored.same_id:
        if stored.same_payload:
            return Sent(stored.task_id)
        return Mismatch(f"task {stored.task_id} exists with another payload")
    if stored.differing:
        return Mismatch(
            f"idempotency key {payload.idempotency_key!r} of task {payload.task_name!r} belongs to task "
            f"{stored.task_id}, sent with other {stored.differing.replace(',', ', ')}"
        )
    return Sent(stored.task_id)


def run(steps: Steps[T], execute: Callable[[Statement], Rows]) -> T:
    """Run the series; raise what it raises in the end."""
    try:
        statement = next(steps)
        while True:
            try:
                rows = execute(statement)
            except BaseException as problem:
                statement = steps.throw(problem)
            else:
                statement = steps.send(rows)
    except StopIteration as end:
        result: T = end.value
        return result


async def run_async(steps: Steps[T], execute: Callable[[Statement], Awaitable[Rows]]) -> T:
    """Run the series; raise what it raises in the end."""
    try:
        statement = next(steps)
        while True:
            try:
                rows = await execute(statement)
            except BaseException as problem:
                statement = steps.throw(problem)
            else:
                statement = steps.send(rows)
    except StopIteration as end:
        result: T = end.value
        return result


def in_transaction(steps: Steps[T]) -> Steps[T]:
    """All of it is committed, or nothing."""
    yield _BEGIN
    try:
        result = yield from steps
    except BaseException:
        with suppress(Exception):  # the first problem is the one that is reported
            yield _ROLLBACK
        raise
    yield _COMMIT
    return result


def in_savepoint(steps: Steps[T]) -> Steps[T]:
    """All of it happens inside the open transaction, or nothing; the transaction stays usable."""
    yield _SAVE
    try:
        result = yield from steps
    except BaseException:
        with suppress(Exception):  # the first problem is the one that is reported
            yield _BACK
            yield _RELEASE
        raise
    yield _RELEASE
    return result


async def write(connection: Any, sends: Sequence[Send]) -> list[str]:
    """Write all of them over a connection of the caller's kind; the ids of their rows come in their order."""
    return _write_blocking(connection, sends) if is_blocking() else await _write_async(connection, sends)


def _write_blocking(connection: Any, sends: Sequence[Send]) -> list[str]:
    if isinstance(connection, psycopg.Connection):
        _check(connection)
        return run(_framed(connection, sends), lambda statement: _execute(connection, statement))
    if _is(connection, "sqlalchemy.orm", "Session", "scoped_session"):
        connection = connection.connection()
    if not _is(connection, "sqlalchemy.engine", "Connection"):
        raise _wrong(connection)
    _check(connection, "psycopg")
    # The statement goes through SQLAlchemy, because its connection must know that it is in a transaction now.
    return run(
        _framed(connection.connection.driver_connection, sends),
        lambda statement: _rows(statement, connection.exec_driver_sql(*_given(statement))),
    )


async def _write_async(connection: Any, sends: Sequence[Send]) -> list[str]:
    if isinstance(connection, psycopg.AsyncConnection):
        _check(connection)
        return await run_async(_framed(connection, sends), lambda statement: _execute_async(connection, statement))
    if _is_any(connection, _ASYNCPG):
        return await _write_asyncpg(connection, sends)
    if _is(connection, "sqlalchemy.ext.asyncio", "AsyncSession", "async_scoped_session"):
        connection = await connection.connection()
    if not _is(connection, "sqlalchemy.ext.asyncio", "AsyncConnection"):
        raise _wrong(connection)
    _check(connection, "psycopg", "asyncpg")
    given = _given if connection.dialect.driver == "psycopg" else _given_numbered

    async def execute(statement: Statement) -> Rows:
        return _rows(statement, await connection.exec_driver_sql(*given(statement)))

    raw = await connection.get_raw_connection()
    if connection.dialect.driver == "psycopg":
        return await run_async(_framed(raw.driver_connection, sends), execute)
    _check_loop(raw.driver_connection)
    return await run_async(_framed_as_list(sends, is_inside=not raw.dbapi_connection.autocommit), execute)


async def _write_asyncpg(connection: Any, sends: Sequence[Send]) -> list[str]:
    """Over the API of asyncpg. Its own `transaction()` is not used: it refuses a transaction that the caller began with
    a statement."""
    if getattr(connection, "_con", connection) is None:
        raise WrongConnectionError("the connection has been released to its pool")
    if connection.is_closed():
        raise WrongConnectionError("the connection is closed")
    _check_loop(connection)

    async def execute(statement: Statement) -> Rows:
        text, *values = _given_numbered(statement)
        if not values:
            await connection.execute(text)
            return ()
        rows: Rows = await connection.fetch(text, *values[0])
        return rows

    return await run_async(_framed_as_list(sends, is_inside=connection.is_in_transaction()), execute)


def _framed_as_list(sends: Sequence[Send], *, is_inside: bool) -> Steps[list[str]]:
    """The same for asyncpg, which asks the server for the types of parameters: all statements have one text."""
    steps = enqueue_all(sends, as_list=True)
    if is_inside:
        return in_savepoint(steps)
    return in_transaction(steps) if len(sends) > 1 else steps


def behind(problem: BaseException) -> BaseException:
    """The error of the driver. SQLAlchemy wraps it in a text that repeats the parameters."""
    origin = getattr(problem, "orig", None)
    return origin if isinstance(origin, BaseException) else problem


def is_misuse(problem: BaseException) -> bool:
    """Whether SQLAlchemy itself objects, without having queried the database."""
    return _is(problem, "sqlalchemy.exc", "SQLAlchemyError") and behind(problem) is problem


def _framed(driver: Any, sends: Sequence[Send]) -> Steps[list[str]]:
    """The transaction or savepoint around the statements, depending on the state of the connection."""
    steps = enqueue_all(sends)
    if not driver.autocommit or driver.pgconn.transaction_status != TransactionStatus.IDLE:
        return in_savepoint(steps)
    return in_transaction(steps) if len(sends) > 1 else steps


def _execute(connection: psycopg.Connection[Any], statement: Statement) -> Rows:
    # `connection.cursor()` is not used, because the caller may have set another kind of cursor or row.
    cursor = psycopg.Cursor(connection, row_factory=tuple_row).execute(statement.text, statement.params)
    return cursor.fetchall() if statement.params is not None else ()


async def _execute_async(connection: psycopg.AsyncConnection[Any], statement: Statement) -> Rows:
    cursor = await psycopg.AsyncCursor(connection, row_factory=tuple_row).execute(statement.text, statement.params)
    return await cursor.fetchall() if statement.params is not None else ()


def _given(statement: Statement) -> tuple[Any, ...]:
    return (statement.text,) if statement.params is None else (statement.text, statement.params)


def _given_numbered(statement: Statement) -> tuple[Any, ...]:
    if statement.params is None:
        return (statement.text,)
    return _NAMED.sub("$1::text", statement.text), tuple(statement.params.values())


def _rows(statement: Statement, result: Any) -> Rows:
    rows: Rows = result.fetchall() if statement.params is not None else ()
    return rows


def _check(connection: Any, *drivers: str) -> None:
    """Refuse a connection that is closed, of another driver of SQLAlchemy, or in two phases: a send notifies workers,
    and PostgreSQL prepares no transaction that has notified. It would say so only at the end, and take everything else
    with it."""
    if connection.closed:
        raise WrongConnectionError("the connection is closed")
    if drivers:
        dialect = connection.dialect
        if dialect.name != "postgresql" or dialect.driver not in drivers:
            name = f"{dialect.name}+{dialect.driver}"
            raise WrongConnectionError(
                f"the connection is one of SQLAlchemy on {name}; {_WANTED} (postgresql+psycopg://)"
            )
        transaction = getattr(connection, "sync_connection", connection).get_transaction()
        is_prepared = _is(transaction, "sqlalchemy.engine", "TwoPhaseTransaction")
    else:
        is_prepared = getattr(connection, "_tpc", None) is not None
    if is_prepared:
        raise WrongConnectionError(
            "the connection is in a two-phase transaction, which cannot contain a send: PostgreSQL does not prepare "
            "what notifies; send after its commit, or in an ordinary transaction"
        )


def _check_loop(connection: Any) -> None:
    """A connection of asyncpg belongs to the loop that opened it."""
    if getattr(connection, "_loop", None) not in (None, asyncio.get_running_loop()):
        raise WrongConnectionError("the connection belongs to another event loop; send on the loop that opened it")


def _wrong(connection: Any) -> WrongConnectionError:
    kind = type(connection)
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    if _is_any(connection, _ASYNC):
        return WrongConnectionError(f"{name} is async: await send_async(), schedule_async() or send_many_async()")
    if _is_any(connection, _BLOCKING):
        return WrongConnectionError(f"{name} blocks: call send(), schedule() or send_many(), or pass an async one")
    if _is_any(connection, _POOLS):
        return WrongConnectionError(f"{name} is a pool: take a connection from it, and pass that one")
    return WrongConnectionError(f"{_WANTED}; not {name}")


def _is_any(thing: Any, kinds: Iterable[tuple[str, ...]]) -> bool:
    return any(_is(thing, *kind) for kind in kinds)


def _is(thing: Any, module: str, *names: str) -> bool:
    """Whether it is an instance of one of the classes; if nobody has imported them, it is not."""
    classes = (getattr(sys.modules.get(module), name, None) for name in names)
    return isinstance(thing, tuple(kind for kind in classes if isinstance(kind, type)))


def new_task_id() -> str:
    """48 bits of milliseconds, 12 bits of their fraction, 62 random bits (RFC 9562)."""
    return _id(_stamp(), int.from_bytes(os.urandom(8), "big"))


def new_task_ids() -> Iterator[str]:
    """Ids that sort in the order in which they are taken, even if that is very fast."""
    last, shown, head = 0, -1, ""
    while True:
        for noise in memoryview(os.urandom(8 * _AT_ONCE)).cast("Q"):
            stamp = _stamp()
            last = stamp if stamp > last else last + 1
            if last >> 12 != shown:  # the milliseconds: most ids share them with the one before
                shown = last >> 12
                head = _id(last, 0)[:15]
            tail = f"{1 << 63 | noise >> 2:016x}"
            yield f"{head}{last & 0xFFF:03x}-{tail[:4]}-{tail[4:]}"


def _stamp() -> int:
    """The time in fractions of a millisecond."""
    return (time.time_ns() << 12) // _NANOS_PER_MS


def _id(stamp: int, noise: int) -> str:
    time = (stamp >> 12 & 0xFFFF_FFFF_FFFF) << 80 | (stamp & 0xFFF) << 64
    text = f"{time | 0x7 << 76 | 0b10 << 62 | noise >> 2:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
