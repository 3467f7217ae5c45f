"""Values that no code of ours writes, for every column of a table: what an admin, a bug of old code or an attacker with
the right to write may have left there while somebody had dropped the constraints."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from psycopg import AsyncConnection, sql
from sqlalchemy import CheckConstraint

from horsies.core.schema.create import METADATA

DATES = ("-infinity", "infinity", "4000-01-01 BC", "250000-01-01")
SETTINGS = (
    '{"claimed_stale_threshold_ms": "soon", "running_stale_threshold_ms": "soon", "finalizing_stale_threshold_ms": [],'
    ' "runner_heartbeat_interval_ms": {}, "claimer_heartbeat_interval_ms": true, "worker_recovery":'
    ' {"sweep_threshold": "x", "heartbeat_interval": 1e400, "sweep_interval": null,'
    ' "resilient_sweep_threshold_multiplier": "y", "resilient_job_flags": [1, null]}, "prefetch_buffer": "many",'
    ' "max_parallel": "all", "first": -5, "count": "x"}'
)
VALUES: dict[str, tuple[str, ...]] = {
    "timestamp with time zone": DATES,
    "integer": ("2147483647", "-2147483648", "1000000000"),
    "bigint": ("9223372036854775807", "-9223372036854775808"),
    "double precision": ("NaN", "Infinity", "-1e308"),
    "jsonb": ('"text"', "[1, null]", "null", "1e400", "{}", '{"a": 1e5000}', "[" * 3_000 + "]" * 3_000, SETTINGS),
    "text": ("{", "null", '"x\u202e\x07"'),
    "character varying": ("\u202e\x07",),
    "ARRAY": ("{}", "{NULL}"),
}
# What a row is, as against what is in it; and what decides whether the row is looked at.
KEPT = {"status", "claimed", "is_waiting", "ended_at", "is_over", "claimed_by_worker_id", "worker_id", "node_type"}
KEPT |= {
    "id",
    "idempotency_key",
    "task_id",
    "workflow_id",
    "schedule_name",
    "name",
    "topic",
    "holder",
    "key",
    "role",
    "outcome",
}


class Planted(NamedTuple):
    """One value in one column."""

    table: str
    column: str
    value: str

    def __str__(self) -> str:
        return f"{self.table}.{self.column} = {self.value[:30]!r}"


async def drop_constraints(db: AsyncConnection[Any]) -> None:
    """All that we have."""
    found = await db.execute(
        "SELECT conrelid::regclass::text, conname FROM pg_constraint"
        " WHERE contype = 'c' AND connamespace = current_schema()::regnamespace AND conname LIKE 'horsies%'"
    )
    for table, name in await found.fetchall():
        await db.execute(sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}").format(sql.SQL(table), sql.Identifier(name)))


async def constrain(db: AsyncConnection[Any], *only: str) -> None:
    """The limits are there again, and hold for what is written from now on: rows that are outside stay as they are."""
    found = await db.execute("SELECT conname FROM pg_constraint WHERE connamespace = current_schema()::regnamespace")
    known = {name for (name,) in await found.fetchall()}
    for name in only or sorted(METADATA.tables):
        for limits in METADATA.tables[name].constraints:
            if limits.name == f"{name}_limits_check" and limits.name not in known:
                assert isinstance(limits, CheckConstraint)
                added = f"ALTER TABLE {name} ADD CONSTRAINT {limits.name} CHECK ({limits.sqltext}) NOT VALID"
                await db.execute(added.encode())


async def planted(db: AsyncConnection[Any], table: str, kinds: Collection[str] = tuple(VALUES)) -> list[Planted]:
    """Every value for every column of this table that may hold it, or for those of these kinds."""
    cursor = await db.execute(
        "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = %s"
        " AND table_schema = current_schema() AND is_generated = 'NEVER' ORDER BY ordinal_position",
        [table],
    )
    return [
        Planted(table, column, value)
        for column, kind in await cursor.fetchall()
        if column not in KEPT and kind in kinds
        for value in VALUES.get(kind, ())
    ]


async def plant(db: AsyncConnection[Any], what: Planted, where: str, *ids: str, rows: int | None = None) -> None:
    """Put it into these rows."""
    statement = "UPDATE {} SET {} = {} WHERE {} = ANY(%s)"
    column = sql.Identifier(what.column)
    names = [sql.Identifier(what.table), column, sql.Literal(what.value), sql.Identifier(where)]
    done = await db.execute(sql.SQL(statement).format(*names), [list(ids)])  # type: ignore[arg-type]
    assert done.rowcount == (rows or len(ids)), what
