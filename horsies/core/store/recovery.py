"""One typed function per statement that looks for something to recover: tasks, and stuck workflows and nodes (R-30 to
R-38); and `expire_waiting`, about which there is nothing to decide. Other modules decide what becomes of the others;
`store.tasks.apply` moves the tasks, and the workflow engine moves the nodes. None is prepared: on an empty table any
index looks good, and the plan of a prepared statement is kept for a long time.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, NamedTuple

from psycopg.rows import dict_row

from horsies.core.codec.serde import serialize_error_payload
from horsies.core.db import Connection
from horsies.core.models.recovery import RecoveryConfig, WorkerRecoveryConfig
from horsies.core.models.tasks import OutcomeCode, TaskError, TaskResult
from horsies.core.sql import load, numbers, stored, texts
from horsies.core.tasks.moves import InFlight
from horsies.core.types import TaskStatus

STEP = 500  # rows that one transaction of a maintenance pass handles
LOOK = 10_000  # rows that one look finds; a look reads everything in flight, so it serves many steps


class Expired(NamedTuple):
    """A task whose deadline passed while it waited."""

    id: str
    workflow_id: str | None
    queue_name: str
    task_name: str


async def expire_waiting(conn: Connection, most: int = 500, only: Sequence[str] | None = None) -> set[Expired]:
    """PENDING → EXPIRED for at most `most` tasks past their deadline; `only` these if they are named."""
    params = {"most": most, "result": EXPIRED_WAITING, "only": None if only is None else texts(only)}
    cursor = await conn.execute(load("tasks/expire_waiting"), params, prepare=False)
    return {Expired(*row) for row in await cursor.fetchall()}


def _expired_result() -> str:
    error = TaskError(
        error_code=OutcomeCode.TASK_EXPIRED, message="The deadline passed before a worker claimed the task."
    )
    return serialize_error_payload(TaskResult(err=error))


EXPIRED_WAITING = _expired_result()


async def find_stale(
    conn: Connection,
    status: TaskStatus,
    recovery: RecoveryConfig,
    sweeping: WorkerRecoveryConfig,
    *,
    threshold: timedelta | None = None,
    most: int | None = LOOK,
) -> list[InFlight]:
    """The CLAIMED or RUNNING tasks that have been silent for too long, the longest silence first. A `threshold` makes
    it a manual query: it is used unchanged, for enrolled tasks as well (R-63, R-91)."""
    is_running = status is TaskStatus.RUNNING
    usual = recovery.running_stale_threshold_ms if is_running else recovery.claimed_stale_threshold_ms
    params = {
        "status": status.value,
        "role": "runner" if is_running else "claimer",
        "threshold": timedelta(milliseconds=usual) if threshold is None else threshold,
        "as_given": threshold is not None,
        "finalizing": timedelta(milliseconds=recovery.finalizing_stale_threshold_ms),
        "sweep_threshold": sweeping.sweep_threshold,
        "multiplier": sweeping.resilient_sweep_threshold_multiplier,
        "resilient_flags": sweeping.resilient_job_flags,
        "most": most,
    }
    # Not prepared: on an empty table any index looks good, and the plan of a prepared statement is kept.
    cursor = await conn.execute(load("tasks/find_stale"), params, prepare=False)
    return [in_flight(row) for row in await cursor.fetchall()]


async def lock_stale(conn: Connection, found: Sequence[InFlight]) -> list[InFlight]:
    """Those of these tasks that are still silent, locked until the transaction ends. Rows that are locked elsewhere are
    skipped."""
    params = {
        **_claims(found),
        "heartbeats": texts([_stamp(task.last_heartbeat) for task in found]),
        "marks": texts([_stamp(task.finalizing_at) for task in found]),
    }
    cursor = await conn.execute(load("tasks/lock_stale"), params)
    mine = {row[0] for row in await cursor.fetchall()}
    return [task for task in found if task.task_id in mine]


def in_flight(row: Sequence[object]) -> InFlight:
    """A row of any statement that returns the columns of `InFlight` in order."""
    found = InFlight(*row)  # type: ignore[arg-type]
    return found._replace(status=stored(TaskStatus, found.status))


async def lock_claims(conn: Connection, found: Sequence[InFlight]) -> set[str]:
    """The ids of these claims that have not changed, locked until the transaction ends. Rows that are locked elsewhere
    are skipped."""
    cursor = await conn.execute(load("tasks/lock_claims"), _claims(found))
    return {row[0] for row in await cursor.fetchall()}


async def overdue(conn: Connection, most: int | None = None) -> list[dict[str, Any]]:
    """Waiting tasks past their deadline: all of them, or the oldest."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load("tasks/overdue"), {"most": most}, prepare=False)
        return await cursor.fetchall()


async def tell_owners(conn: Connection, task_ids: Sequence[str]) -> None:
    """Notify the owners: an owner that is alive after all stops the code at once (D-61)."""
    await conn.execute(load("tasks/claim_lost"), {"ids": texts(task_ids)})


def _claims(found: Sequence[InFlight]) -> dict[str, str]:
    return {
        "ids": texts([task.task_id for task in found]),
        "claims": numbers([task.claim_seq for task in found]),
        "owners": texts([task.worker_id for task in found]),
        "statuses": texts([task.status.value for task in found]),
    }


def _stamp(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


LOOK_AT = 2_000  # nodes in flight, or workflows, that one look reads


class What(Enum):
    """What is wrong with a node in flight."""

    ENDED = "ended"  # its task has ended
    STRANDED = "stranded"  # its task waits, but its workflow has ended
    CHILD = "child"  # its child workflow has ended
    LOST = "lost"  # the row of its task or child workflow is gone
    READY = "ready"  # it is READY, but was not enqueued


class NodePosition(NamedTuple):
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


NODES, DEADLINES, WORKFLOWS = NodePosition("", -1), Due("-infinity", ""), ""  # where each search begins


async def is_any_workflow_open(conn: Connection) -> bool:
    """Whether the statements below can find anything."""
    [(is_any,)] = await _rows(conn, "workflows/is_any_open", {})
    return bool(is_any)


async def nodes(
    conn: Connection, grace: timedelta, after: NodePosition = NODES, most: int = LOOK_AT
) -> tuple[list[Stuck], NodePosition | None]:
    """The stuck nodes among the next nodes in flight, and where to continue; None at the end."""
    params = {"grace": grace, "after_id": after.workflow_id, "after_index": after.task_index, "most": most}
    rows = await _rows(conn, "workflows/find_stuck", params)
    found = [Stuck(What(what), *rest) for what, *rest in rows if what]
    return found, NodePosition(rows[-1][1], rows[-1][2]) if rows else None


async def overdue_nodes(conn: Connection, after: Due = DEADLINES, most: int = LOOK_AT) -> tuple[list[str], Due | None]:
    """The workflows past their deadline with something left to do, and where to continue; None at the end."""
    params = {"after": after.good_until, "after_id": after.workflow_id, "most": most}
    rows = await _rows(conn, "workflows/find_overdue", params)
    return [row[2] for row in rows if row[0]], Due(*rows[-1][1:]) if rows else None


async def over(conn: Connection, after: str = WORKFLOWS, most: int = LOOK_AT) -> tuple[list[str], str | None]:
    """The running workflows without an open node, and where to continue; None at the end."""
    rows = await _rows(conn, "workflows/find_over", {"after": after, "most": most})
    return [row[0] for row in rows], rows[-1][0] if rows else None


async def misheld(conn: Connection, most: int = LOOK_AT) -> list[str]:
    """The workflows whose waiting tasks are held although they should not be, or the other way round."""
    return [row[0] for row in await _rows(conn, "workflows/find_misheld", {"most": most})]


async def _rows(conn: Connection, statement: str, params: dict[str, Any]) -> Sequence[Sequence[Any]]:
    return await (await conn.execute(load(statement), params, prepare=False)).fetchall()
