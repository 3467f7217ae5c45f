"""One typed function per statement about workflows and their nodes, without decisions, logging or retries.

Every change locks the row of the workflow first (`lock`), then nodes, then tasks (D-63); only `start_nodes` begins with
nodes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import psycopg
from pydantic_core import to_json

from horsies.core.db import Connection
from horsies.core.models.tasks import TaskOptions
from horsies.core.sql import load, numbers, stored, texts
from horsies.core.store import many
from horsies.core.types import TaskStatus, WorkflowStatus, WorkflowTaskStatus

if TYPE_CHECKING:
    from horsies.core.workflows.settle import FlowState, NodeState


Key: TypeAlias = tuple[str, int]  # workflow id and index


class Flow(NamedTuple):
    """A workflow as its row was locked."""

    id: str
    status: WorkflowStatus
    on_error: str
    output_index: int | None
    success_policy: dict[str, list[list[int]]] | None
    has_error: bool
    parent_workflow_id: str | None
    parent_task_index: int | None
    root_workflow_id: str | None
    depth: int
    good_until: datetime | None
    is_overdue: bool
    open_nodes: int


class FlowNode(NamedTuple):
    """A node as its row was read."""

    workflow_id: str
    task_index: int
    node_type: str
    status: WorkflowTaskStatus
    dependents: list[int]
    total: int
    completed: int
    failed: int
    skipped: int
    join: str
    min_success: int | None
    allow_failed_deps: bool
    map_index: int | None
    task_id: str | None
    sub_workflow_id: str | None = None
    has_elements: bool = False  # for a map: its elements have been made, and it counts them
    max_parallel: int | None = None  # for a map: so many elements run at once

    @property
    def key(self) -> Key:
        return self.workflow_id, self.task_index

    @property
    def is_lost(self) -> bool:
        """For a node in flight: the row of its task or child workflow has been deleted."""
        return self.task_id is None and self.sub_workflow_id is None


class Closing(NamedTuple):
    """A node that affects how its workflow ends."""

    workflow_id: str
    task_index: int
    status: WorkflowTaskStatus
    result: str | None
    error_code: str | None
    completed_at: datetime | None


class Payload(NamedTuple):
    """What is needed to enqueue a node."""

    workflow_id: str
    task_index: int
    node_id: str
    node_type: str
    status: str
    task_name: str
    kwargs: str | None
    queue_name: str | None
    priority: int | None
    task_options: str | None
    flags: str | None
    good_until: datetime | None
    args_from: dict[str, Any]  # parameter -> index, or {"node": index, "takes": form}
    ctx_from: list[int] | None
    map_options: dict[str, Any] | None
    map_index: int | None
    sub_workflow_key: str | None
    ready_at: datetime | None = None


class Source(NamedTuple):
    """A node whose result others use."""

    workflow_id: str
    task_index: int
    node_id: str
    status: WorkflowTaskStatus
    result: str | None
    summary: str | None


INSERT_AT_ONCE = 2_000
WALK_MOST = 20_000
NODE_COLUMNS = 17
FEW = 16  # tasks of one step, and nodes that count them, which are read ahead
FEW_DEPENDENCIES = 64
ENOUGH_BYTES = 8 << 20  # bytes of results that one step reads


class EndedNodeRow(NamedTuple):
    """An open node and the end of its task; without the result if that was too large."""

    node: FlowNode
    status: TaskStatus
    result: str | None
    error_code: str | None
    fits: bool
    node_id: str


class EndedChild(NamedTuple):
    """An open node and the end of its child workflow; `counts`: all, completed, failed and skipped nodes of the
    child."""

    node: FlowNode
    child_id: str
    status: WorkflowStatus
    result: str | None
    error: str | None
    fits: bool
    counts: tuple[int, int, int, int]


class NewTask(NamedTuple):
    """The task of a node that is enqueued."""

    id: str
    workflow_id: str
    task_name: str
    queue_name: str
    priority: int
    kwargs: str | None
    task_options: str | None
    flags: str | None
    good_until: datetime | None


async def lock(conn: Connection, ids: Collection[str] = (), tasks: Collection[str] = ()) -> list[Flow]:
    """Lock these workflows and those of these tasks until the transaction ends."""
    params = {"ids": texts(ids), "tasks": texts(tasks)}
    return _flows(await _rows(conn, "workflows/lock", params))


async def lock_children(conn: Connection, ids: Collection[str], states: Collection[str]) -> list[Flow]:
    """The child workflows of these that are in one of the states."""
    found = _flows(await _rows(conn, "workflows/children", {"ids": texts(ids), "states": texts(states)}))
    return [flow for flow in found if flow.status in states]


async def lock_family(conn: Connection, ids: Collection[str]) -> list[str]:
    """Lock these workflows and, level by level, the open ones below them; return the ids of all."""
    level = [flow.id for flow in await lock(conn, ids)]
    found = dict.fromkeys(level)
    while level:
        below = await lock_children(conn, level, ("PENDING", "RUNNING", "PAUSED"))
        level = [flow.id for flow in below if flow.id not in found]
        found |= dict.fromkeys(level)
    return list(found)


async def lock_ended(
    conn: Connection, tasks: Collection[str]
) -> tuple[list[Flow], list[EndedNodeRow], list[tuple[FlowNode, Payload]]]:
    """Lock the workflows of these tasks, and return the ended tasks whose nodes do not know it, and of a few tasks also
    the nodes that count those, with what is needed to enqueue them: all in one round trip."""
    ids = texts(tasks)
    locking = await conn.execute(load("workflows/lock"), {"ids": texts(()), "tasks": ids}, prepare=True)
    reading = await conn.execute(load("workflows/ended"), {"tasks": ids, "bytes": ENOUGH_BYTES}, prepare=True)
    following = None
    if len(tasks) <= FEW:
        params = {"tasks": ids, "most": FEW, "deps": FEW_DEPENDENCIES}
        following = await conn.execute(load("workflows/followers"), params, prepare=True)
    flows = _flows(await locking.fetchall())
    ended = [EndedNodeRow(_node(row), stored(TaskStatus, row[17]), *row[18:]) for row in await reading.fetchall()]
    followers = [] if following is None else await following.fetchall()
    return flows, ended, [(_node(row), Payload(*row[NODE_COLUMNS:])) for row in followers]


async def ended_children(conn: Connection, children: Collection[str]) -> list[EndedChild]:
    """Those of these child workflows that have ended and whose node does not know it."""
    params = {"children": texts(children), "bytes": ENOUGH_BYTES}
    rows = await _rows(conn, "workflows/ended_children", params)
    return [
        EndedChild(_node(row), row[17], stored(WorkflowStatus, row[18]), row[19], row[20], row[21], tuple(row[22:]))
        for row in rows
    ]


async def nodes(conn: Connection, keys: Collection[Key], depth: int = 0) -> list[FlowNode]:
    """These nodes, and the nodes that wait for them, up to `depth` edges away."""
    params = {**_keys(keys), "depth": depth, "most": max(WALK_MOST, 2 * len(keys))}
    return [_node(row) for row in await _rows(conn, "workflows/nodes", params)]


async def open_nodes(conn: Connection, ids: Collection[str], states: Collection[str]) -> list[FlowNode]:
    """The nodes of these workflows in one of the states; they stay locked."""
    params = {"ids": texts(ids), "states": texts(states)}
    return [_node(row) for row in await _rows(conn, "workflows/open_nodes", params)]


async def failed_nodes(conn: Connection, workflow_id: str, names: Collection[str] | None) -> list[FlowNode]:
    """The FAILED nodes of the workflow, or the named ones among them; they stay locked."""
    params = {"id": workflow_id, "names": None if names is None else texts(names)}
    return [_node(row) for row in await _rows(conn, "workflows/failed_nodes", params)]


async def skipped_below(conn: Connection, keys: Collection[Key]) -> list[FlowNode]:
    """What was skipped because of these nodes."""
    return [_node(row) for row in await _rows(conn, "workflows/skipped_below", _keys(keys))]


async def unsuccessful_elements(conn: Connection, key: Key) -> list[FlowNode]:
    """The elements of a map that failed or were skipped."""
    return [_node(row) for row in await _rows(conn, "workflows/unsuccessful", {"id": key[0], "index": key[1]})]


async def ready(conn: Connection, ids: Collection[str], most: int) -> list[Key]:
    """READY nodes and elements of these workflows for which there is room now."""
    rows = await _rows(conn, "workflows/ready", {"ids": texts(ids), "most": most})
    return [(row[0], row[1]) for row in rows]


async def payloads(conn: Connection, keys: Collection[Key]) -> list[Payload]:
    """What is needed to enqueue these nodes."""
    return [Payload(*row) for row in await _rows(conn, "workflows/payloads", _keys(keys))]


async def sources(conn: Connection, keys: Collection[Key]) -> dict[Key, Source]:
    """The results of these nodes."""
    if not keys:
        return {}
    rows = await _rows(conn, "workflows/sources", _keys(keys))
    return {(row[0], row[1]): Source._make((*row[:3], stored(WorkflowTaskStatus, row[3]), *row[4:])) for row in rows}


async def elements(conn: Connection, key: Key) -> list[tuple[WorkflowTaskStatus, str | None, str | None]]:
    """Status, result and error code of the elements of a map, in the order of the list."""
    rows = await _rows(conn, "workflows/elements", {"id": key[0], "index": key[1]})
    return [(stored(WorkflowTaskStatus, row[0]), row[1], row[2]) for row in rows]


async def closing(conn: Connection, ids: Collection[str], deciding: Collection[Key]) -> list[Closing]:
    """The facts that decide how these workflows end."""
    rows = await _rows(conn, "workflows/closing", {"ids": texts(ids), **_keys(deciding)})
    return [Closing._make((*row[:2], stored(WorkflowTaskStatus, row[2]), *row[3:])) for row in rows]


async def parents(conn: Connection, children: Collection[str]) -> set[str]:
    """The ids of the workflows that have these as children."""
    return {row[0] for row in await _rows(conn, "workflows/parents", {"children": texts(children)})}


async def node_of_child(conn: Connection, child: str) -> WorkflowTaskStatus | None:
    """The state of the node whose child this workflow is; None if it has no parent any more."""
    rows = await _rows(conn, "workflows/node_of_child", {"child": child})
    return stored(WorkflowTaskStatus, rows[0][0]) if rows else None


async def is_whole(conn: Connection, workflow_id: str) -> bool:
    """Whether retention has deleted none of its nodes."""
    found: bool = (await _rows(conn, "workflows/is_whole", {"id": workflow_id}))[0][0]
    return found


async def last_index(conn: Connection, workflow_id: str) -> int:
    """The index of the workflow's last node."""
    found: int = (await _rows(conn, "workflows/last_index", {"id": workflow_id}))[0][0]
    return found


async def move_nodes(conn: Connection, moves: Sequence[tuple[Key, NodeState]]) -> None:
    """Write the changes of these nodes. It fails (`broken`) if one of them is not in the state that it was read in."""
    states = [state for _, state in moves]
    params = {
        **_keys([key for key, _ in moves]),
        "was": texts([s.row.status if s.status is not s.row.status or s.opened else None for s in states]),
        "states": texts([s.status if s.status is not s.row.status or s.opened else None for s in states]),
        "results": texts([s.end.result if s.end else None for s in states]),
        "codes": texts([s.end.error_code if s.end else None for s in states]),
        "completed": numbers([s.completed for s in states]),
        "failed": numbers([s.failed for s in states]),
        "skipped": numbers([s.skipped for s in states]),
        "tasks": texts([s.task_id for s in states]),
        "children": texts([s.child_id for s in states]),
        "summaries": texts([s.end.summary if s.end else None for s in states]),
        "maps": texts([s.map_options for s in states]),
        "opens": numbers([int(s.opened) for s in states]),
        "count": len(moves),
    }
    await conn.execute(load("workflows/move_nodes"), params, prepare=True)


async def move(conn: Connection, flows: Sequence[FlowState]) -> None:
    """Write the changes of these workflows. It fails (`broken`) if one of them is not in the state that it was locked
    in."""
    params = {
        "ids": texts([flow.row.id for flow in flows]),
        "was": texts([flow.row.status for flow in flows]),
        "states": texts([flow.status for flow in flows]),
        "opens": numbers([flow.open_nodes - flow.row.open_nodes for flow in flows]),
        "results": texts([flow.result for flow in flows]),
        "errors": texts([flow.error for flow in flows]),
        "codes": texts([flow.error_code for flow in flows]),
        "opened": [flow.opened for flow in flows],
        "count": len(flows),
    }
    await conn.execute(load("workflows/move"), params, prepare=True)


def broken(problem: BaseException) -> str | None:
    """What the server has noticed, if a row was not in the state that a move expects."""
    found = _BROKEN.search(str(problem)) if isinstance(problem, psycopg.errors.UndefinedObject) else None
    return None if found is None else found[1].replace("_", " ")


_BROKEN = re.compile(r"horsies\.(\w+_are_not_as_they_were_\w+)")


class Mended(NamedTuple):
    """A workflow, or one of its nodes, and what was outside the limits in its row."""

    workflow_id: str
    node_id: str | None
    odd: list[str]


async def mend(conn: Connection, ids: Collection[str]) -> list[Mended]:
    """Bring the rows of these workflows, which are locked, and of their nodes back within the limits (D-14), so that
    they can be moved at all."""
    params = {"ids": texts(ids)}
    flows = await (await conn.execute(load("workflows/mend"), params, prepare=False)).fetchall()
    found = await (await conn.execute(load("workflows/mend_nodes"), params, prepare=False)).fetchall()
    return [Mended(row[0], None, row[1]) for row in flows] + [Mended(*row) for row in found]


async def find_odd(conn: Connection, most: int) -> list[str]:
    """Workflows of which a row is outside the limits (D-14)."""
    cursor = await conn.execute(load("workflows/find_odd"), {"most": most}, prepare=False)
    return [row[0] for row in await cursor.fetchall()]


async def insert(conn: Connection, rows: Sequence[dict[str, Any]]) -> set[str]:
    """Insert workflows; return the ids that were not there before."""
    return {row[0] for row in await _rows(conn, "workflows/insert", {"rows": to_json(list(rows)).decode()})}


async def insert_nodes(conn: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Insert nodes whose tasks and child workflows already exist."""
    for start in range(0, len(rows), INSERT_AT_ONCE):
        part = to_json(list(rows[start : start + INSERT_AT_ONCE])).decode()
        await conn.execute(load("workflows/insert_nodes"), {"rows": part})


async def insert_tasks(conn: Connection, new: Sequence[NewTask]) -> None:
    """The tasks of nodes: PENDING and due at once (L-04)."""
    for start in range(0, len(new), INSERT_AT_ONCE):
        rows = [_task_row(task) for task in new[start : start + INSERT_AT_ONCE]]
        if len(rows) == 1:
            await conn.execute(load("tasks/insert_one"), rows[0])
        else:
            await conn.execute(load("tasks/insert"), {"rows": to_json(rows).decode()})


async def cancel_tasks(conn: Connection, tasks: Iterable[str], result: str) -> set[str]:
    """PENDING and CLAIMED → CANCELLED, for tasks that belong to workflows (F-53); running tasks are left alone."""
    return {task.id for task in await many.cancel(conn, tasks, result, with_workflow=True)}


def _task_row(task: NewTask) -> dict[str, Any]:
    return {
        "id": task.id,
        "workflow_id": task.workflow_id,
        "task_name": task.task_name,
        "queue_name": task.queue_name,
        "priority": task.priority,
        "args": None,
        "kwargs": task.kwargs,
        "sent_at": None,
        "wait": 0.0,
        "good_until": task.good_until and task.good_until.isoformat(),
        "max_retries": TaskOptions.from_json(task.task_options).max_retries,
        "task_options": task.task_options,
        "flags": task.flags,
        "enqueue_sha": None,
        "idempotency_key": None,
    }


def _keys(keys: Collection[Key]) -> dict[str, str]:
    return {"workflows": texts([key[0] for key in keys]), "indexes": numbers([key[1] for key in keys])}


def _node(row: Sequence[Any]) -> FlowNode:
    return FlowNode._make((*row[:3], stored(WorkflowTaskStatus, row[3]), *row[4:NODE_COLUMNS]))


def _flows(rows: Iterable[Sequence[Any]]) -> list[Flow]:
    return [Flow(row[0], stored(WorkflowStatus, row[1]), *row[2:]) for row in rows]


async def _rows(conn: Connection, name: str, params: dict[str, Any]) -> list[Any]:
    return await (await conn.execute(load(name), params, prepare=True)).fetchall()
