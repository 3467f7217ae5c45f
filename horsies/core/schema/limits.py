"""Adds the limits of dates and counters (D-14) to tables that are older than these constraints, beside the work of
others.

To add a constraint takes a lock that stops everybody, so it is added without a look at the rows, in a moment, and only
if the lock is free; to validate it reads the whole table, under a lock that stops nobody. Each is a transaction of its
own. If a row that exists is outside the limits, the constraint stays as it is: it holds for every new row, and the old
one is set aside when it comes up (L-19a).
"""

import asyncio
import contextlib
import re
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import errors
from psycopg.rows import tuple_row
from psycopg.sql import SQL, Identifier

from horsies.core.sql import load

TRIES = 10
PAUSE_S = 2.0
LOCK_TIMEOUT = "500ms"  # whoever comes after us waits this long at most

_NAME = re.compile(r"ALTER TABLE (\w+) ADD CONSTRAINT (\w+)")


@dataclass(slots=True)
class LimitsReport:
    """What is not as it should be: tables with rows that are outside, and tables that were busy or are not ours."""

    violated: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


async def ensure_limits(
    conn: psycopg.AsyncConnection[Any], *, tries: int = TRIES, pause_s: float = PAUSE_S
) -> LimitsReport:
    """Add what is missing and validate what is not. If everything is in place, nothing is locked."""
    report = LimitsReport()
    for statement in _statements():
        found = _NAME.search(statement)
        assert found is not None
        table, name = found.groups()
        for attempt in range(tries):
            if attempt:
                await asyncio.sleep(pause_s)
            try:
                await _ensure(conn, table, name, statement)
            except errors.CheckViolation:
                report.violated.append(table)
            except (errors.LockNotAvailable, errors.DeadlockDetected):
                continue
            except errors.InsufficientPrivilege:  # the owner of the tables does it (`horsies init-db`)
                report.left.append(table)
            break
        else:
            report.left.append(table)
    return report


async def are_complete(conn: psycopg.AsyncConnection[Any]) -> bool:
    """Whether all limits are in place, and all rows known to keep them."""
    known = await _in_place(conn)
    return len(known) == len(_statements()) and all(known.values())


def about_violations(report: LimitsReport) -> str:
    """What to say about them."""
    tables = ", ".join(report.violated)
    return (
        f"rows of {tables} hold dates or counters outside the limits, probably from before these existed; tasks "
        "among them are set aside when they come up, and horsies init-db checks again"
    )


async def _ensure(conn: psycopg.AsyncConnection[Any], table: str, name: str, statement: str) -> None:
    known = await _in_place(conn)
    if name not in known:
        with contextlib.suppress(errors.DuplicateObject):  # another process was quicker
            await _alone(conn, statement.encode())
    if not known.get(name, False):
        await _alone(conn, SQL("ALTER TABLE {} VALIDATE CONSTRAINT {}").format(Identifier(table), Identifier(name)))


async def _alone(conn: psycopg.AsyncConnection[Any], statement: Any) -> None:
    async with conn.transaction():
        await conn.execute("SELECT set_config('lock_timeout', %s, TRUE)", [LOCK_TIMEOUT])
        await conn.execute(statement)


async def _in_place(conn: psycopg.AsyncConnection[Any]) -> dict[str, bool]:
    async with conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(load("schema/limits_in_place").encode())
        return dict(await cursor.fetchall())


def _statements() -> list[str]:
    text = load("schema/limits")
    return [part.strip() for part in text[text.index("ALTER TABLE") :].split(";\n") if part.strip()]
