"""The steps of the workflow engine, each one transaction over the workflows of an example.

What follows a step (a parent is told of its child's end) is a transaction of its own and another operation here, so
these are the engine's single steps and not the calls that go on until nothing is left to do.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from horsies.core.db.pool import Connection
from horsies.core.models.workflow.plan import NodePlan, WorkflowPlan
from horsies.core.store import held, odd_rows, tasks, workflows
from horsies.core.tasks.moves import Claim
from horsies.core.workflows import control
from horsies.core.workflows.advance import NoCompanion, Worklist
from horsies.core.workflows.layout import Layout, TreePosition, lay_out, write_layout
from horsies.core.workflows.step import StepResult
from tests.proof_pairs.choices import Choices
from tests.proof_pairs.kinds import Arguments, Kind, rows_in
from tests.proof_pairs.rows import WORKFLOWS, Start
from tests.proof_pairs.task_kinds import Only, claim_of, claims_of, seats_of

ROOTS = ("wf-on", "wf-on", "wf-off", "wf-done")


class Lent:
    """A pool that has this one connection, and lends it once: what follows in other transactions is left undone."""

    def __init__(self, conn: Connection) -> None:
        self._conn: Connection | None = conn

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        conn, self._conn = self._conn, None
        if conn is None:
            raise psycopg.OperationalError("the database is away")
        yield conn


async def _advance(conn: Connection, ids: list[str]) -> StepResult:
    return await Worklist(tasks=ids).step(Lent(conn), None)


class Claiming(NoCompanion):
    """As a worker that claims what a step enqueues, and what else it finds, and starts its own tasks (W-21a, W-21b)."""

    def __init__(self, who: tasks.Claimant, order: tasks.ClaimOrder, seats: tasks.Seats) -> None:
        self._who, self._order, self._seats = who, order, seats
        self.sent: tasks.SentClaim | None = None
        self.starts: tasks.SentStarts | None = None

    async def send(self, conn: Connection, new: Sequence[workflows.NewTask]) -> bool:
        self.sent = await tasks.SentClaim.send(conn, self._who, self._order)
        claims = [Claim(task.id, 1) for task in new[: self._seats.free]]
        self.starts = await tasks.SentStarts.send(conn, self._who.worker_id, self._seats, claims)
        return True


async def _advance_and_claim(
    conn: Connection, ids: list[str], who: tasks.Claimant, order: tasks.ClaimOrder, seats: tasks.Seats
) -> tuple[StepResult, list[tasks.Claimed], int]:
    claiming = Claiming(who, order, seats)
    result = await Worklist(tasks=ids, companion=claiming).step(Lent(conn), None)
    rows = await claiming.sent.rows() if claiming.sent else []
    started = await claiming.starts.ids() if claiming.starts else set()
    # The ids of new tasks are others each time.
    return result, [row if len(row.id) == 1 else row._replace(id="new") for row in rows], len(started)


async def _advance_parents(conn: Connection, children: list[str]) -> StepResult:
    return await Worklist(children=children).step(Lent(conn), None)


async def _go_on(conn: Connection, workflow_id: str) -> StepResult:
    return await Worklist(flows={workflow_id: None}).step(Lent(conn), None)


async def _pause(conn: Connection, workflow_id: str) -> bool | None:
    return await control.pause(Lent(conn), workflow_id)


async def _resume(conn: Connection, workflow_id: str) -> bool | None:
    return await control.resume(Lent(conn), workflow_id, None)


async def _hold(conn: Connection, workflow_id: str) -> None:
    """What follows a pause or a resume, and what reconciliation repairs."""
    await control.hold_or_release(Lent(conn), [workflow_id])


async def _cancel(conn: Connection, workflow_id: str) -> bool | None:
    return await control.cancel(Lent(conn), workflow_id, None)


async def _retry(conn: Connection, workflow_id: str) -> bool | None:
    return await control.retry_nodes(Lent(conn), workflow_id, [f"bad-{workflow_id}"], None)


async def _mend(conn: Connection, workflow_id: str) -> bool:
    """As after a refusal. All rows are within the limits here: they are only locked."""
    found = await odd_rows.mend_workflows(Only(conn), [workflow_id])
    return found or await odd_rows.mend_odd_workflows(Only(conn))


async def _begin(conn: Connection, layout: Layout) -> bool:
    return await write_layout(conn, layout)


async def _start_nodes(conn: Connection, worker_id: str, claims: list[Claim]) -> tuple[set[str], set[str]]:
    """As a worker does it: the nodes first, then their tasks; what somebody else has is left alone (L-25, D-63)."""
    checks = await tasks.start_nodes(conn, worker_id, "host", claims, [7] * len(claims), ["child"] * len(claims))
    return {task_id for task_id, check in checks.items() if check.is_started}, set(checks)


def _tasks(pick: Choices, start: Start) -> Arguments:
    return {"ids": [row.id for row in pick.shuffled(start.tasks)[: pick.of((9, 9, 3, 1))]]}


def _tasks_and_order(pick: Choices, start: Start) -> Arguments:
    return {**_tasks(pick, start), **claim_of(pick, start, capped=False), "seats": seats_of(pick)}


def _one(*names: str) -> Any:
    return lambda pick, start: {"workflow_id": pick.of(names)}


def _layout(pick: Choices, start: Start) -> Arguments:
    first = NodePlan("first", "TASK", "plain", queue_name="default", priority=100)
    then = NodePlan("then", "TASK", "plain", queue_name="default", priority=100, dependencies=(0,))
    name = pick.of(("wf-new", "wf-other"))
    return {"layout": lay_out(WorkflowPlan("w", "k", (first, then)), TreePosition(name, name))}


def _claimed_nodes(pick: Choices, start: Start) -> Arguments:
    worker, claims = claims_of(pick, start, ("CLAIMED",))
    return {"worker_id": worker, "claims": claims}


def _everything(start: Start, arguments: Arguments) -> set[str]:
    """Whatever a step may lock: nodes of workflows, and their tasks."""
    nodes = {f"node {node['node_id']}" for workflow in WORKFLOWS for node in start.nodes(workflow)}
    return nodes | {row.id for row in start.tasks if row.workflow is not None}


def _everything_and_waiting(start: Start, arguments: Arguments) -> set[str]:
    return _everything(start, arguments) | rows_in("PENDING")(start, arguments)


def _started(start: Start, arguments: Arguments) -> set[str]:
    ids = {claim.task_id for claim in arguments["claims"]}
    return ids | {f"node {task_id}" for task_id in ids}


STEP = (
    workflows.lock,
    workflows.lock_ended,
    workflows.move,
    workflows.move_nodes,
    workflows.insert_tasks,
    workflows.insert_nodes,
)
WORKFLOW_KINDS = (
    Kind("advance", _advance, _tasks, _everything, uses=STEP, statements=9),
    Kind("advance and claim", _advance_and_claim, _tasks_and_order, _everything_and_waiting,
         uses=(*STEP, tasks.SentClaim.send, tasks.SentStarts.send), skips=True,
         leaves_out=lambda name: not name.startswith("node "), statements=11),
    Kind("advance parents", _advance_parents, lambda pick, start: {"children": ["wf-kid"]}, _everything, uses=STEP,
         statements=9),
    Kind("go on", _go_on, _one("wf-on", "wf-off", "wf-kid"), _everything, uses=STEP, statements=6),
    Kind("pause workflow", _pause, _one("wf-on", "wf-kid", "wf-off"), _everything,
         uses=(*STEP, workflows.lock_children), statements=4),
    Kind("resume workflow", _resume, _one("wf-off", "wf-off", "wf-on"), _everything,
         uses=(*STEP, workflows.lock_children, workflows.open_nodes, held.ring), statements=9),
    Kind("hold or release", _hold, _one("wf-off", "wf-on", "wf-kid"), _everything,
         uses=(workflows.lock, held.hold, held.release), skips=True, statements=3),
    Kind("cancel workflow", _cancel, _one(*ROOTS), _everything,
         uses=(*STEP, workflows.lock_children, workflows.open_nodes, workflows.cancel_tasks), statements=9),
    Kind("retry nodes", _retry, _one("wf-on", "wf-off", "wf-old"), _everything,
         uses=(*STEP, workflows.failed_nodes), statements=9),
    Kind("mend workflow", _mend, _one("wf-on", "wf-off", "wf-kid", "wf-done"), _everything,
         uses=(odd_rows.mend_workflows, odd_rows.mend_odd_workflows, workflows.lock_family, workflows.mend,
               workflows.lock, workflows.lock_children), statements=7),
    Kind("begin workflow", _begin, _layout, uses=(workflows.insert, workflows.insert_tasks, workflows.insert_nodes),
         statements=3),
    Kind("start nodes", _start_nodes, _claimed_nodes, _started,
         uses=(tasks.start_nodes,), skips=True,
         leaves_out=lambda name: name.startswith("node "), statements=1),
)  # fmt: skip
