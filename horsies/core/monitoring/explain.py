"""`explain_task`: why is this task, or this node of a workflow, not running? The facts are read at one moment, and
plain functions judge them: the answer is the first reason in the order in which a claim would check.
`store/reasons.py` has the statements.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from horsies.core.db import Connection
from horsies.core.models.monitoring.cluster import Explanation, Why, WorkerStateInfo
from horsies.core.models.monitoring.tasks import MonitoringResult
from horsies.core.monitoring.audit import list_audit, who_paused
from horsies.core.monitoring.queries import MOST_WORKERS, ask
from horsies.core.monitoring.remedies import at, remedies_of
from horsies.core.producer.hub import can_exist
from horsies.core.sql import stored
from horsies.core.store import monitoring, reasons, task_reads
from horsies.core.store.defaults import EARLY
from horsies.core.store.reasons import NodeFacts, QueueFacts, TaskFacts
from horsies.core.types import Ok, TaskStatus

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker


SILENT_AFTER_BEATS = 3
MOST_NAMED = 10  # so many workers, tasks or nodes are named
LOOK = 10_000  # so many tasks of a queue are counted at most
MOST_PAUSES = 20  # of a workflow, the last ones: after the one that paused it, others may have been refused
_NODE = re.compile(r"(?P<workflow_id>.+):(?P<index>[0-9]{1,9})")


async def explain_task(broker: PostgresBroker, task_id: str) -> MonitoringResult[Explanation | None]:
    """Why the task with this id, or the node `workflow_id:index`, is not running; `Ok(None)` if there is no such task
    or node."""

    async def look(conn: Connection) -> Explanation | None:
        if (found := await _of_task(conn, task_id, task_id)) is not None:
            return found
        node = _NODE.fullmatch(task_id) if isinstance(task_id, str) else None
        return None if node is None else await _of_node(conn, task_id, node["workflow_id"], int(node["index"]))

    told = await ask(broker, look)
    if not isinstance(told, Ok) or told.value is None:
        return told
    found = replace(told.value, facts={**told.value.facts, **await _for_remedies(broker, told.value)})
    return Ok(replace(found, remedies=remedies_of(found)))


async def _for_remedies(broker: PostgresBroker, found: Explanation) -> Mapping[str, Any]:
    """What only some reasons need, to say what can be done. The explanation is given also if that cannot be read, by a
    role that may not, or in tables of an older version."""
    readers: Mapping[Why, Callable[[Connection, Explanation], Awaitable[Mapping[str, Any]]]] = {
        Why.QUEUE_AT_LIMIT: _holders,
        Why.CLUSTER_AT_CAP: _holders,
        Why.NO_WORKER_KNOWS_TASK: _when_it_fails,
        Why.RETRY_DUE: _last_error,
        Why.WORKFLOW_PAUSED: _pausing_node,
    }
    if (read := readers.get(found.why)) is None:
        return {}
    told = await ask(broker, lambda conn: read(conn, found))
    facts = dict(told.value) if isinstance(told, Ok) else {}
    if found.why is Why.WORKFLOW_PAUSED and not facts:
        facts |= await _who_paused(broker, found)
    return facts


async def _holders(conn: Connection, found: Explanation) -> Mapping[str, Any]:
    known = {one.task_id: one for one in await monitoring.tasks_by_id(conn, found.tasks)}
    held = [known[task_id] for task_id in found.tasks if task_id in known]
    return {
        "holders": [
            {
                "task_id": one.task_id,
                "task_name": one.task_name,
                "status": one.status.value,
                "since": one.started_at or one.claimed_at,
            }
            for one in held
        ]
    }


async def _when_it_fails(conn: Connection, found: Explanation) -> Mapping[str, Any]:
    name, due = found.facts["task_name"], found.facts["enqueued_at"]
    return {"fails_at": await reasons.unknown_until(conn, name, found.queue or "", due)}


async def _last_error(conn: Connection, found: Explanation) -> Mapping[str, Any]:
    attempts = await task_reads.attempts(conn, found.task_id or "")
    if not attempts:
        return {}
    return {"last_error": attempts[0].error_code, "last_error_at": attempts[0].finished_at}


async def _pausing_node(conn: Connection, found: Explanation) -> Mapping[str, Any]:
    node = await reasons.pausing_node(conn, found.workflow_id or "")
    return {} if node is None else {"failed_node": node[0], "failed_code": node[1]}


async def _who_paused(broker: PostgresBroker, found: Explanation) -> Mapping[str, Any]:
    read = await list_audit(broker, target_id=found.workflow_id, action="workflow.pause", limit=MOST_PAUSES)
    actor = who_paused(read.value.items, found.since) if isinstance(read, Ok) else None
    return {} if actor is None else {"paused_by": actor}


async def _of_task(conn: Connection, subject: str, task_id: str) -> Explanation | None:
    task = await reasons.task_facts(conn, task_id) if can_exist(task_id) else None
    if task is None:
        return None
    if task.status != TaskStatus.PENDING:
        return reasons_of_task(subject, task)
    workers = await monitoring.workers(conn, most=MOST_WORKERS)
    queue = await reasons.queue_facts(conn, task, most=MOST_NAMED, look=LOOK)
    return reasons_of_task(subject, task, workers, queue)


async def _of_node(conn: Connection, subject: str, workflow_id: str, index: int) -> Explanation | None:
    if not can_exist(workflow_id):
        return None
    node = await reasons.node_facts(conn, workflow_id, index, most=MOST_NAMED)
    if node is None:
        return None
    if node.task_id is not None and (found := await _of_task(conn, subject, node.task_id)) is not None:
        return found
    return explain_node(subject, node)


def reasons_of_task(
    subject: str, task: TaskFacts, workers: Sequence[WorkerStateInfo] = (), queue: QueueFacts | None = None
) -> Explanation:
    """For a task; if it waits, this also considers the workers and the tasks before it in the queue."""
    if stored(TaskStatus, task.status).is_terminal:
        code = "" if task.error_code is None else f" with {task.error_code}"
        return _about(subject, task, Why.ENDED, f"it ended as {task.status}{code}", since=task.ended_at)
    if task.status != TaskStatus.PENDING:
        return _in_flight(subject, task)
    return (
        _not_yet(subject, task)
        or _nobody_for_it(subject, task, workers)
        or (_no_room(subject, task, workers, queue) if queue is not None else None)
        or _in_line(subject, task, workers, queue)
    )


def explain_node(subject: str, node: NodeFacts) -> Explanation:
    """For a node without a task."""
    if node.status in ("COMPLETED", "FAILED", "SKIPPED"):
        code = "" if node.error_code is None else f" with {node.error_code}"
        return _reasons_of_node(
            subject, node, Why.ENDED, f"the node ended as {node.status}{code}", since=node.completed_at
        )
    if (stopped := _stopped(node.workflow_status, node.workflow_id)) is not None:
        return _reasons_of_node(subject, node, *stopped, since=node.paused_at)
    if node.node_type == "SUBWORKFLOW" and node.status in ("ENQUEUED", "RUNNING"):
        child = node.sub_workflow_id
        said = "its sub-workflow is being built" if child is None else f"its sub-workflow {child} has not ended"
        return _reasons_of_node(subject, node, Why.WAITING_FOR_SUBWORKFLOW, said, since=node.started_at)
    if node.waits_for:
        return _reasons_of_node(subject, node, Why.WAITING_FOR_NODES, _waits(node), nodes=tuple(node.waits_for))
    if node.map_index is not None and node.status == "READY":
        said = f"it waits for a free place among the elements of its map (node {node.map_index}) that may run at once"
        return _reasons_of_node(subject, node, Why.BEING_ENQUEUED, said, since=node.ready_at)
    said = "it only waits for the next step of its workflow (by a worker, or by recovery if that worker is gone)"
    return _reasons_of_node(subject, node, Why.BEING_ENQUEUED, said, since=node.ready_at)


def _not_yet(subject: str, task: TaskFacts) -> Explanation | None:
    """What the row and its workflow say."""
    if task.good_until is not None and task.good_until <= task.now:
        said = f"its deadline passed at {at(task.good_until)}; a worker will mark it EXPIRED"
        return _about(subject, task, Why.DEADLINE_PASSED, said, since=task.good_until)
    if task.workflow_status is not None and (stopped := _stopped(task.workflow_status, task.workflow_id)) is not None:
        return _about(subject, task, *stopped, since=task.paused_at)
    if task.next_retry_at is not None and task.next_retry_at > task.now:
        said = f"retry {task.retry_count} of {task.max_retries} is due at {at(task.next_retry_at)}"
        return _about(subject, task, Why.RETRY_DUE, said, until=task.next_retry_at)
    if task.enqueued_at > task.now:
        said = f"it is not due until {at(task.enqueued_at)}"
        return _about(subject, task, Why.NOT_DUE, said, until=task.enqueued_at)
    return None


def _nobody_for_it(subject: str, task: TaskFacts, workers: Sequence[WorkerStateInfo]) -> Explanation | None:
    live = [worker for worker in workers if worker.is_live]
    serving = _serving(task, workers)
    facts = {"live_workers": len(live), **_who(task, workers)}
    if task.queue == EARLY:
        said = f"it was sent from SQL, and no worker that knows a task named {task.task_name!r} has started since"
        return _about(subject, task, Why.NO_WORKER_KNOWS_TASK, said, facts=facts)
    if not live:
        said = (
            "no worker is running"
            if not workers
            else "no worker is alive: none of the registered workers has recent heartbeats"
        )
        return _about(subject, task, Why.NO_WORKER, said, facts=facts)
    if not serving:
        queues = sorted({queue for worker in live for queue in worker.queues})
        said = f"no live worker serves the queue {task.queue!r}; they serve {', '.join(queues) or 'none'}"
        return _about(subject, task, Why.NO_WORKER_SERVES_QUEUE, said, facts={**facts, "served_queues": queues})
    if not any(_may_know(worker, task) for worker in serving):
        said = (
            f"no live worker of the queue {task.queue!r} knows a task named {task.task_name!r}; they leave it to "
            "others, until it fails because nobody has known it for too long"
        )
        return _about(subject, task, Why.NO_WORKER_KNOWS_TASK, said, facts=facts)
    return None


def _no_room(
    subject: str, task: TaskFacts, workers: Sequence[WorkerStateInfo], queue: QueueFacts
) -> Explanation | None:
    """The limits that every worker of the queue would reach, each by its own settings."""
    serving = _serving(task, workers)
    caps = [worker.queue_max_concurrency.get(task.queue) for worker in serving]
    facts: dict[str, Any] = {**_of_queue(queue), "max_concurrency": _known(caps)}
    if all(cap == 0 for cap in caps):
        said = f"the queue {task.queue!r} is paused: its max_concurrency is 0"
        return _about(subject, task, Why.QUEUE_PAUSED, said, facts=facts)
    wide = [worker.cluster_wide_cap for worker in serving]
    if all(cap is not None and queue.held_in_all >= cap for cap in wide):
        said = f"the cluster is at its cap of {_known(wide)}: {queue.held_in_all} tasks are claimed or running"
        facts["cluster_wide_cap"] = _known(wide)
        return _about(subject, task, Why.CLUSTER_AT_CAP, said, tasks=tuple(queue.held_anywhere), facts=facts)
    counted = [queue.running if (worker.prefetch_buffer or 0) > 0 else queue.held for worker in serving]
    if all(cap is not None and n >= cap for cap, n in zip(caps, counted, strict=True)):
        said = (
            f"the queue {task.queue!r} is at its limit of {_known(caps)}: {max(counted)} tasks are claimed or running"
        )
        return _about(subject, task, Why.QUEUE_AT_LIMIT, said, tasks=tuple(queue.held_here), facts=facts)
    return None


def _in_line(
    subject: str, task: TaskFacts, workers: Sequence[WorkerStateInfo], queue: QueueFacts | None
) -> Explanation:
    facts: dict[str, Any] = _who(task, workers)
    if queue is None:
        return _about(subject, task, Why.IN_LINE, "it waits for its turn", since=task.enqueued_at, facts=facts)
    more = " or more" if queue.is_only_a_part else ""
    said = f"it waits for its turn: {queue.due_before}{more} due tasks of its queue come before it"
    if not queue.due_before and not more:
        said = "it is next in its queue: a worker takes it as soon as one has room"
    if any(not _may_know(worker, task) for worker in _serving(task, workers)):
        knowing = sum(1 for worker in _serving(task, workers) if _may_know(worker, task))
        said += f"; {knowing} of {facts['serving_workers']} live workers of the queue know a task of this name"
    facts |= _of_queue(queue)
    return _about(subject, task, Why.IN_LINE, said, since=task.enqueued_at, facts=facts)


def _in_flight(subject: str, task: TaskFacts) -> Explanation:
    """CLAIMED and RUNNING: which worker holds the task, and whether that worker has recent heartbeats."""
    begun = task.started_at if task.status == TaskStatus.RUNNING else task.claimed_at
    heard = max([time for time in (begun, task.last_beat_at) if time is not None], default=task.now)
    facts = {"worker_heard_at": task.worker_heard_at, "last_beat_at": task.last_beat_at}
    if not task.worker_is_live:
        since = task.worker_heard_at or heard
        gone = "has not been registered" if task.worker_heard_at is None else "has been silent"
        said = (
            f"it is {task.status} at worker {task.worker_id}, which {gone} since {at(since)}; recovery will handle it"
        )
        return _about(subject, task, Why.WORKER_SILENT, said, since=since, facts=facts)
    if task.finalizing_at is not None and task.status == TaskStatus.RUNNING:
        said = f"its code has ended; worker {task.worker_id} is writing the result"
        return _about(subject, task, Why.BEING_FINALIZED, said, since=task.finalizing_at, facts=facts)
    if task.now - heard > timedelta(seconds=SILENT_AFTER_BEATS * task.beat_interval_s):
        said = f"it is {task.status} at worker {task.worker_id}, but has sent no heartbeat for it since {at(heard)}"
        return _about(subject, task, Why.WORKER_SILENT, said, since=heard, facts=facts)
    if task.status == TaskStatus.RUNNING:
        said = f"it has been running since {at(heard if begun is None else begun)} at worker {task.worker_id}"
        return _about(subject, task, Why.RUNNING, said, since=begun, facts=facts)
    said = f"worker {task.worker_id} has claimed it and starts it as soon as a child process is free"
    return _about(subject, task, Why.CLAIMED, said, since=begun, facts=facts)


def _stopped(workflow_status: str, workflow_id: str | None) -> tuple[Why, str] | None:
    if workflow_status == "PAUSED":
        return Why.WORKFLOW_PAUSED, f"its workflow {workflow_id} is paused; resume it"
    if workflow_status in ("COMPLETED", "FAILED", "CANCELLED"):
        return Why.WORKFLOW_ENDED, f"its workflow {workflow_id} has ended as {workflow_status}"
    return None


def _waits(node: NodeFacts) -> str:
    ended = node.deps_completed + node.deps_failed + node.deps_skipped
    open_ones = ", ".join(node.waits_for)
    if node.node_type == "MAP" and node.status == "RUNNING":
        return f"its elements run: {ended} of {node.deps_total} have ended; still open: {open_ones}"
    join = {"any": "any", "quorum": str(node.min_success)}.get(node.join_type, "all")
    return f"it waits for {join} of {node.deps_total} nodes, {ended} of which have ended; still open: {open_ones}"


def _serving(task: TaskFacts, workers: Sequence[WorkerStateInfo]) -> list[WorkerStateInfo]:
    return [worker for worker in workers if worker.is_live and task.queue in worker.queues]


def _who(task: TaskFacts, workers: Sequence[WorkerStateInfo]) -> dict[str, Any]:
    """The live workers that serve its queue, and those that know its name, whatever they serve (O-31)."""
    serving = [worker.worker_id for worker in _serving(task, workers)]
    knowing = [worker.worker_id for worker in workers if worker.is_live and task.task_name in (worker.task_names or ())]
    return {
        "serving_workers": len(serving),
        "serving_queue": serving[:MOST_NAMED],
        "knowing_workers": len(knowing),
        "known_by": knowing[:MOST_NAMED],
        "known_in": sorted(
            {
                queue
                for one in workers
                if one.is_live and task.task_name in (one.task_names or ())
                for queue in one.queues
            }
        ),
    }


def _may_know(worker: WorkerStateInfo, task: TaskFacts) -> bool:
    """A worker with very many tasks does not show their names."""
    return worker.task_names is None or task.task_name in worker.task_names


def _of_queue(queue: QueueFacts) -> dict[str, Any]:
    return {
        "running": queue.running,
        "in_flight": queue.held,
        "in_flight_in_all": queue.held_in_all,
        "due_before": queue.due_before,
        "is_only_a_part": queue.is_only_a_part,
    }


def _known(values: Sequence[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _about(
    subject: str,
    task: TaskFacts,
    why: Why,
    message: str,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    tasks: tuple[str, ...] = (),
    facts: Mapping[str, Any] | None = None,
) -> Explanation:
    own = {
        "asked_at": task.now,
        "task_name": task.task_name,
        "priority": task.priority,
        "enqueued_at": task.enqueued_at,
        "good_until": task.good_until,
        "retry_count": task.retry_count,
        "max_retries": task.max_retries,
        "workflow_name": task.workflow_name,
        "workflow_status": task.workflow_status,
    }
    return Explanation(
        subject,
        why,
        message,
        task_id=task.task_id,
        status=stored(TaskStatus, task.status),
        workflow_id=task.workflow_id,
        node_index=task.node_index,
        queue=task.queue,
        since=since,
        until=until,
        worker_id=task.worker_id,
        tasks=tasks,
        facts={**own, **(facts or {})},
    )


def _reasons_of_node(
    subject: str,
    node: NodeFacts,
    why: Why,
    message: str,
    *,
    since: datetime | None = None,
    nodes: tuple[str, ...] = (),
) -> Explanation:
    facts = {
        "asked_at": node.now,
        "task_name": node.task_name,
        "node_id": node.node_id,
        "node_type": node.node_type,
        "node_status": node.status,
        "sub_workflow_id": node.sub_workflow_id,
        "join_type": node.join_type,
        "deps_total": node.deps_total,
        "deps_completed": node.deps_completed,
        "deps_failed": node.deps_failed,
        "deps_skipped": node.deps_skipped,
        "workflow_name": node.workflow_name,
        "workflow_status": node.workflow_status,
    }
    return Explanation(
        subject,
        why,
        message,
        task_id=node.task_id,
        workflow_id=node.workflow_id,
        node_index=node.node_index,
        since=since,
        nodes=nodes,
        facts=facts,
    )
