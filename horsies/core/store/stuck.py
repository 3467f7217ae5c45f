"""One typed function per statement that looks for stuck workflows and nodes (R-30 to R-38).

The engine decides what becomes of them, as always. None is prepared: on an empty table any index looks good, and the
plan of a prepared statement is kept for a long time.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from enum import Enum
from typing import Any, NamedTuple

from horsies.core.sql import load
from horsies.core.store.tasks import Connection

LOOK = 2_000  # nodes in flight, or workflows, that one look reads


class What(Enum):
    """What is wrong with a node in flight."""

    ENDED = "ended"  # its task has ended
    STRANDED = "stranded"  # its task waits, but its workflow has ended
    CHILD = "child"  # its child workflow has ended
    LOST = "lost"  # the row of its task or child workflow is gone
    READY = "ready"  # nobody has enqueued it


class Place(NamedTuple):
    """The position of a walk over the nodes: after this one."""

    workflow_id: str
    task_index: int


class Stuck(NamedTuple):
    """A node that nothing moves any more. `link` is the id of its task, or of its child workflow."""

    what: What
    workflow_id: str
    task_index: int
    link: str | None


class Due(NamedTuple):
    """The position of a walk over the deadlines: after this workflow, with its deadline as the server writes it."""

    good_until: str
    workflow_id: str


NODES, DEADLINES, WORKFLOWS = Place("", -1), Due("-infinity", ""), ""  # the beginnings


async def nodes(
    conn: Connection, grace: timedelta, after: Place = NODES, most: int = LOOK
) -> tuple[list[Stuck], Place | None]:
    """The stuck nodes among the next nodes in flight, and where to continue; None at the end."""
    params = {"grace": grace, "after_id": after.workflow_id, "after_index": after.task_index, "most": most}
    rows = await _rows(conn, "workflows/find_stuck", params)
    found = [Stuck(What(what), *rest) for what, *rest in rows if what]
    return found, Place(rows[-1][1], rows[-1][2]) if rows else None


async def overdue(conn: Connection, after: Due = DEADLINES, most: int = LOOK) -> tuple[list[str], Due | None]:
    """The workflows past their deadline with something left to do, and where to continue; None at the end."""
    params = {"after": after.good_until, "after_id": after.workflow_id, "most": most}
    rows = await _rows(conn, "workflows/find_overdue", params)
    return [row[2] for row in rows if row[0]], Due(*rows[-1][1:]) if rows else None


async def over(conn: Connection, after: str = WORKFLOWS, most: int = LOOK) -> tuple[list[str], str | None]:
    """The running workflows without an open node, and where to continue; None at the end."""
    rows = await _rows(conn, "workflows/find_over", {"after": after, "most": most})
    return [row[0] for row in rows], rows[-1][0] if rows else None


async def _rows(conn: Connection, statement: str, params: dict[str, Any]) -> Sequence[Sequence[Any]]:
    return await (await conn.execute(load(statement), params, prepare=False)).fetchall()
