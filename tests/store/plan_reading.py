"""Reads the plans by which statements were really run: the store's own functions, prepared as the store prepares them,
with the settings of the sessions that run them, and PostgreSQL's `auto_explain` telling how.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from psycopg import AsyncConnection, OperationalError

from horsies.core.sql import load
from tests.architecture.source import PARAMETER, forms, statements

Node: TypeAlias = dict[str, Any]
Act: TypeAlias = Callable[[AsyncConnection[Any]], Awaitable[object]]

EXPLAIN = """
    LOAD 'auto_explain';
    SET auto_explain.log_min_duration = 0;
    SET auto_explain.log_analyze = on;
    SET auto_explain.log_buffers = on;
    SET auto_explain.log_timing = off;
    SET auto_explain.log_format = json;
    SET auto_explain.log_nested_statements = on;
    SET auto_explain.log_level = notice
"""


def as_sent(text: str) -> str:
    """A statement with its parameters numbered, as the server gets it."""
    numbers: dict[str, str] = {}
    return PARAMETER.sub(lambda found: numbers.setdefault(found[1], f"${len(numbers) + 1}"), text).replace("%%", "%")


NAMES = {as_sent(form).strip(): name for name in statements() for form in forms(name)}


# How the statement inside a function begins, and the statement that calls the function.
INSIDE = {"horsies_find_sent": ("SELECT f.place, f.same_id", as_sent(load("tasks/find_sent")).strip())}


@dataclass(frozen=True)
class Plan:
    """One statement as it was run; `name` is its file, or its text if it is a trigger's."""

    name: str
    top: Node

    @property
    def nodes(self) -> Iterator[Node]:
        """Those that were executed."""
        return (node for node in _below(self.top) if node["Actual Loops"] > 0)

    @property
    def buffers(self) -> int:
        return int(self.top["Shared Hit Blocks"] + self.top["Shared Read Blocks"])

    @property
    def whole_scans(self) -> set[str]:
        """Tables that were read as a whole."""
        return {node["Relation Name"] for node in self.nodes if node["Node Type"] == "Seq Scan"}

    def indexes(self, table: str) -> set[str]:
        """The indexes by which a table was read."""
        return {node["Index Name"] for node in self.nodes if node.get("Index Name", "").startswith(f"{table}_")}

    def rows(self, table: str) -> int:
        """How many rows of a table were looked at, those that were thrown away included."""
        return sum(_seen(node) for node in self.nodes if node.get("Relation Name") == table)

    def blur(self, table: str) -> int:
        """By how much `rows` may be wrong: before PostgreSQL 18, a server tells the average of all loops as a whole
        number."""
        read = [node for node in self.nodes if node.get("Relation Name") == table and node["Actual Loops"] > 1]
        return sum(node["Actual Loops"] // 2 for node in read if isinstance(node["Actual Rows"], int))

    @property
    def sorted(self) -> int:
        """The rows that went into the largest sort."""
        sorts = (node for node in self.nodes if node["Node Type"] == "Sort")
        return max((round(node["Plans"][0]["Actual Rows"]) for node in sorts), default=0)

    @property
    def mismatches(self) -> int:
        """Pairs of rows that were compared and did not fit."""
        return sum(int(node.get("Rows Removed by Join Filter", 0) * node["Actual Loops"]) for node in self.nodes)


@asynccontextmanager
async def explaining(url: str, options: str, plan_cache_mode: str) -> AsyncIterator[Explainer]:
    """A session with these settings, whose plans are told."""
    async with await AsyncConnection.connect(url, autocommit=True, options=options, prepare_threshold=0) as conn:
        await conn.execute(f"SET plan_cache_mode = {plan_cache_mode}".encode())
        await conn.execute(EXPLAIN, prepare=False)
        yield Explainer(conn)


class SessionCut(AssertionError):
    """The machine stood still for seconds, and the server does not let the session of a claim under a cap keep its
    locks for so long (D-62)."""


class Explainer:
    """Runs an act, takes it back, and returns the plans by name."""

    def __init__(self, conn: AsyncConnection[Any]) -> None:
        self.conn = conn
        self._told: list[Plan] = []
        conn.add_notice_handler(lambda diagnostic: self._hear(diagnostic.message_primary or ""))

    async def plans(self, act: Act) -> list[Plan]:
        await self.conn.execute("BEGIN")
        self._told = []
        try:
            await act(self.conn)
        except OperationalError as problem:
            if self.conn.broken:
                raise SessionCut("the server has cut the session") from problem
            raise
        finally:
            if not self.conn.broken:
                # Behind psycopg's back, which would forget what it has prepared.
                self.conn.pgconn.exec_(b"ROLLBACK")
        return self._told

    def _hear(self, message: str) -> None:
        head, _, body = message.partition("\n")
        if head.endswith("plan:"):
            told = json.loads(body)
            text = told["Query Text"].strip()
            self._told.append(Plan(_name(text, told["Plan"]), told["Plan"]))


def _name(text: str, top: Node) -> str:
    """A statement that only calls a function of ours is the one inside that function."""
    if top["Node Type"] == "Function Scan" and top.get("Function Name") in INSIDE:
        return f"the call of {top['Function Name']}"
    inside = (NAMES[called] for begins, called in INSIDE.values() if text.startswith(begins))
    return next(inside, NAMES.get(text, text))


def _below(node: Node) -> Iterator[Node]:
    yield node
    for child in node.get("Plans", ()):
        yield from _below(child)


def _seen(node: Node) -> int:
    if node["Node Type"] == "ModifyTable":
        return 0
    thrown = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return round((node["Actual Rows"] + thrown) * node["Actual Loops"])
