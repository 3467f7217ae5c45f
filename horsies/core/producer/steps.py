"""A series of statements, independent of the connection that runs them.

A series is a generator: it yields a statement and gets its rows, or the exception of the database. So the same series
runs on our own connection or on the caller's, blocking or not; a transaction or savepoint is another series around it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from typing import TypeAlias, TypeVar

from horsies.core.store.sends import Rows, Statement

T = TypeVar("T")

Steps: TypeAlias = Generator[Statement, Rows, T]

_BEGIN, _COMMIT, _ROLLBACK = Statement("BEGIN"), Statement("COMMIT"), Statement("ROLLBACK")
_SAVE, _RELEASE = Statement("SAVEPOINT horsies_send"), Statement("RELEASE SAVEPOINT horsies_send")
_BACK = Statement("ROLLBACK TO SAVEPOINT horsies_send")


def in_transaction(steps: Steps[T]) -> Steps[T]:
    """All of it is committed, or nothing."""
    yield _BEGIN
    try:
        result = yield from steps
    except BaseException:
        with suppress(Exception):  # the first problem is the one to tell
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
        with suppress(Exception):  # the first problem is the one to tell
            yield _BACK
            yield _RELEASE
        raise
    yield _RELEASE
    return result


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
