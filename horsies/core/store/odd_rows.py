"""Tasks that no statement can move, because a date or a counter in their row is outside the limits (D-14), or because
the database refuses whatever is written about them. Such a task is set aside: it is FAILED with `ROW_SET_ASIDE` and the
reason (L-19a), so that it never holds up another.

The constraints refuse such values; but somebody may have dropped them. Nothing is
checked on the way of healthy tasks. The search begins when a statement that chooses its own rows has failed.

A workflow is never set aside: its row and those of its nodes are mended when a step for it is refused, and it goes on.
"""

import contextlib
import logging
from collections.abc import Collection, Sequence
from time import monotonic
from typing import NamedTuple

import psycopg

from horsies.core import logs
from horsies.core.db import AWAY, Connection, Connections, by_halves, describe, is_about_content, is_about_one
from horsies.core.models.tasks import OperationalErrorCode
from horsies.core.sql import load, stored, texts
from horsies.core.store import tasks, workflows
from horsies.core.tasks.moves import Claim, InFlight, SetAside
from horsies.core.text import counted
from horsies.core.types import TaskStatus

log = logging.getLogger("horsies.recovery")

MOST = 5_000  # that one look finds
LINES = 20
PAUSE_S = 30.0


class OddTask(NamedTuple):
    """A task that cannot be moved, and why. A task that waits has no owner."""

    claim: Claim
    owner: str
    status: TaskStatus
    task_name: str
    queue_name: str
    workflow_id: str | None
    reason: str

    @property
    def facts(self) -> dict[str, object]:
        """For the log."""
        return {"task_id": self.claim.task_id, "task": self.task_name, "queue": self.queue_name}


def refused(task: InFlight, problem: str) -> OddTask:
    """The database refuses what recovery wants to write."""
    reason = f"the database refuses to recover it: {problem}"
    return OddTask(task.claim, task.worker_id, task.status, task.task_name, task.queue_name, task.workflow_id, reason)


async def find_odd(
    conn: Connection, *, with_waiting: bool, of: Collection[str] = (), most: int = MOST
) -> list[OddTask]:
    """Tasks in flight, and on request those that wait, that hold a value outside the limits; only `of` these workflows
    if some are named."""
    params = {"with_waiting": with_waiting, "everywhere": not of, "workflows": texts(of), "most": most}
    cursor = await conn.execute(load("tasks/find_odd"), params, prepare=False)
    return [
        OddTask(
            Claim(id_, seq),
            owner,
            stored(TaskStatus, status),
            name,
            queue,
            flow,
            f"outside the limits: {', '.join(odd)}",
        )
        for id_, seq, owner, status, name, queue, flow, odd in await cursor.fetchall()
    ]


async def find_due(conn: Connection, queues: list[str], without: Collection[str], most: int) -> list[OddTask]:
    """Tasks that a claim would look at. Nothing is known to be wrong with them yet."""
    params = {"queues": queues, "without": texts(without), "most": most}
    cursor = await conn.execute(load("tasks/due"), params, prepare=False)
    return [
        OddTask(Claim(id_, seq), "", TaskStatus.PENDING, name, queue, flow, "")
        for id_, seq, name, queue, flow in await cursor.fetchall()
    ]


async def reason_of(database: Connections, task_id: str, problem: Exception) -> str:
    """Why the database refuses the start of this task: by the columns of its row that are outside the limits, or in the
    database's own words."""
    with contextlib.suppress(*AWAY):
        async with database.connection() as conn:
            for task in await find_odd(conn, with_waiting=False):
                if task.claim.task_id == task_id:
                    return task.reason
    return f"the database refuses its start: {describe(problem)}"


async def set_aside(conn: Connection, found: Sequence[OddTask]) -> list[OddTask]:
    """Fail these tasks; return those that were. One that cannot even be failed is reported, and keeps none back."""
    done: list[OddTask] = []

    async def fail(part: Sequence[OddTask]) -> None:
        async with conn.transaction():
            moved = await tasks.apply(conn, part[0].owner, [SetAside(task.claim, task.reason) for task in part])
        done.extend(task for task in part if task.claim.task_id in moved)

    for part in _by_owner(found):
        await by_halves(part, fail, is_refusal=is_about_one, give_up=_give_up)
    for task in done[:LINES]:
        code = OperationalErrorCode.ROW_SET_ASIDE.value
        logs.log_failure(log, logging.ERROR, "task set aside", task.facts, code=code, reason=task.reason)
    if len(done) > LINES:
        log.error("%s set aside in the same way", counted(len(done) - LINES, "more task"))
    return done


async def set_aside_odd(database: Connections, *, with_waiting: bool = True) -> list[OddTask]:
    """Set aside what is outside the limits and has not started; a running task is only mended, so that its end can be
    written. Return what was done."""
    async with database.connection() as conn:
        found = await find_odd(conn, with_waiting=with_waiting)
        mended = await _mend(conn, [task for task in found if task.status is TaskStatus.RUNNING])
        return mended + await set_aside(conn, [task for task in found if task.status is not TaskStatus.RUNNING])


class OddSearch:
    """Sets aside what is outside the limits. The search reads everything that waits; so after one that found nothing
    there is none for a while, whatever else the database refuses."""

    def __init__(self, database: Connections) -> None:
        self._database = database
        self._not_before = 0.0

    async def set_aside(self) -> list[OddTask]:
        if monotonic() < self._not_before:
            return []
        aside = await set_aside_odd(self._database)
        if not aside:
            self._not_before = monotonic() + PAUSE_S
        return aside


async def _mend(conn: Connection, found: Sequence[OddTask]) -> list[OddTask]:
    done: list[OddTask] = []

    async def mend(part: Sequence[OddTask]) -> None:
        async with conn.transaction():
            mended = await tasks.mend(conn, part[0].owner, [task.claim for task in part])
        done.extend(task for task in part if task.claim.task_id in mended)

    for part in _by_owner(found):
        await by_halves(part, mend, is_refusal=is_about_one, give_up=_give_up)
    for task in done[:LINES]:
        log.warning("a task was mended: %s", task.reason, extra={"horsies": task.facts})
    return done


async def mend_workflows(database: Connections, ids: Collection[str]) -> bool:
    """Bring these workflows, the open ones below them, their nodes and the tasks of these back within the limits.
    Return whether anything was outside."""
    try:
        async with database.connection() as conn:
            async with conn.transaction():
                family = await workflows.lock_family(conn, ids)
                found = await workflows.mend(conn, family)
            mended = await _mend(conn, await find_odd(conn, with_waiting=True, of=family)) if family else []
    except psycopg.Error as problem:
        if not is_about_content(problem):
            raise
        return False
    for one in found[:LINES]:
        facts = {"workflow_id": one.workflow_id, **({"node": one.node_id} if one.node_id else {})}
        log.warning("a workflow was mended: outside the limits: %s", ", ".join(one.odd), extra={"horsies": facts})
    return bool(found or mended)


async def mend_odd_workflows(database: Connections) -> bool:
    """All that are outside the limits, for a statement that chooses its own rows."""
    async with database.connection() as conn:
        found = await workflows.find_odd(conn, MOST)
    return bool(found) and await mend_workflows(database, found)


def _by_owner(found: Sequence[OddTask]) -> list[list[OddTask]]:
    owners: dict[str, list[OddTask]] = {}
    for task in found:
        owners.setdefault(task.owner, []).append(task)
    return list(owners.values())


def _give_up(task: OddTask, problem: Exception) -> None:
    log.error("a task cannot even be set aside: %s", describe(problem), extra={"horsies": task.facts})
