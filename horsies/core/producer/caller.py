"""Sends inside the caller's transaction: the connections that `with_options(connection=...)` accepts, and how a
statement runs on each of them.

A blocking connection is used in the caller's thread, an async one on the caller's loop. The caller's commit makes the
rows visible, and its rollback removes them. The statements run inside a savepoint, so that a failed send is a value and
does not break the transaction. SQLAlchemy is not imported for this: a program with one of its connections has imported
it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from horsies.core.producer.enqueue import enqueue_all
from horsies.core.producer.steps import Steps, in_savepoint, in_transaction, run, run_async
from horsies.core.store.sends import Rows, Send, Statement
from horsies.core.types.twins import is_blocking

_WANTED = (
    "connection= takes a psycopg Connection, or an SQLAlchemy Connection or Session on psycopg, for send(); "
    "for send_async() their async counterparts"
)


class WrongConnectionError(ValueError):
    """Nothing can be sent over this connection; the message says what to pass instead."""


async def write(connection: Any, sends: Sequence[Send]) -> list[str]:
    """Write all of them over a connection of the caller's kind; the ids of their rows come in their order."""
    return _write_blocking(connection, sends) if is_blocking() else await _write_async(connection, sends)


def _write_blocking(connection: Any, sends: Sequence[Send]) -> list[str]:
    if isinstance(connection, psycopg.Connection):
        _check_open(connection)
        return run(_framed(connection, sends), lambda statement: _execute(connection, statement))
    if _is(connection, "sqlalchemy.orm", "Session", "scoped_session"):
        connection = connection.connection()
    if not _is(connection, "sqlalchemy.engine", "Connection"):
        raise _wrong(connection)
    _check_open(connection)
    _check_driver(connection)
    # Through SQLAlchemy, not past it: its connection must know that it is in a transaction now.
    return run(
        _framed(connection.connection.driver_connection, sends),
        lambda statement: _rows(statement, connection.exec_driver_sql(*_given(statement))),
    )


async def _write_async(connection: Any, sends: Sequence[Send]) -> list[str]:
    if isinstance(connection, psycopg.AsyncConnection):
        _check_open(connection)
        return await run_async(_framed(connection, sends), lambda statement: _execute_async(connection, statement))
    if _is(connection, "sqlalchemy.ext.asyncio", "AsyncSession", "async_scoped_session"):
        connection = await connection.connection()
    if not _is(connection, "sqlalchemy.ext.asyncio", "AsyncConnection"):
        raise _wrong(connection)
    _check_open(connection)
    _check_driver(connection)

    async def execute(statement: Statement) -> Rows:
        return _rows(statement, await connection.exec_driver_sql(*_given(statement)))

    return await run_async(_framed((await connection.get_raw_connection()).driver_connection, sends), execute)


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
    # Not `connection.cursor()`: the caller may have set another kind of cursor, and other rows.
    cursor = psycopg.Cursor(connection, row_factory=tuple_row).execute(statement.text, statement.params)
    return cursor.fetchall() if statement.params is not None else ()


async def _execute_async(connection: psycopg.AsyncConnection[Any], statement: Statement) -> Rows:
    cursor = await psycopg.AsyncCursor(connection, row_factory=tuple_row).execute(statement.text, statement.params)
    return await cursor.fetchall() if statement.params is not None else ()


def _given(statement: Statement) -> tuple[Any, ...]:
    return (statement.text,) if statement.params is None else (statement.text, statement.params)


def _rows(statement: Statement, result: Any) -> Rows:
    rows: Rows = result.fetchall() if statement.params is not None else ()
    return rows


def _check_open(connection: Any) -> None:
    if connection.closed:
        raise WrongConnectionError("the connection is closed")


def _check_driver(connection: Any) -> None:
    dialect = connection.dialect
    if (dialect.name, dialect.driver) != ("postgresql", "psycopg"):
        name = f"{dialect.name}+{dialect.driver}"
        raise WrongConnectionError(f"the connection is one of SQLAlchemy on {name}; {_WANTED} (postgresql+psycopg://)")


def _wrong(connection: Any) -> WrongConnectionError:
    kind = type(connection)
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    if isinstance(connection, psycopg.AsyncConnection) or _is(
        connection, "sqlalchemy.ext.asyncio", "AsyncSession", "async_scoped_session", "AsyncConnection"
    ):
        return WrongConnectionError(f"{name} is async: await send_async(), schedule_async() or send_many_async()")
    if isinstance(connection, psycopg.Connection) or _is(connection, "sqlalchemy.engine", "Connection"):
        return WrongConnectionError(f"{name} blocks: call send(), schedule() or send_many(), or pass an async one")
    if _is(connection, "sqlalchemy.orm", "Session", "scoped_session"):
        return WrongConnectionError(f"{name} blocks: call send(), schedule() or send_many(), or pass an async one")
    return WrongConnectionError(f"{_WANTED}; not {name}")


def _is(thing: Any, module: str, *names: str) -> bool:
    """Whether it is an instance of one of the classes; if nobody has imported them, it is not."""
    classes = (getattr(sys.modules.get(module), name, None) for name in names)
    return isinstance(thing, tuple(kind for kind in classes if isinstance(kind, type)))
