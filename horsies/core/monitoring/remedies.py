"""What can be done about a task that is not running: a sentence or two for each reason of an explanation, with the
names and times that belong to it. Pure: `explain.py` has read the facts.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from horsies.core.models.monitoring.cluster import Explanation, Why
from horsies.core.store.defaults import EARLY
from horsies.core.text import duration, some_of
from horsies.core.types import TaskStatus

MOST_NAMED = 3  # holders, workers, queues in a sentence
SOONER = "To have it sooner, run it now."
Remedy: TypeAlias = Callable[[Explanation], Sequence[str]]


def remedies_of(found: Explanation) -> tuple[str, ...]:
    """What somebody can do who wants the task to run, or that there is nothing to do."""
    return tuple(_REMEDIES[found.why](found))


def _not_due(found: Explanation) -> Sequence[str]:
    return [f"Nothing has to be done: it becomes due at {at(found.until)}. {SOONER}"]


def _retry_due(found: Explanation) -> Sequence[str]:
    last = found.facts.get("last_error")
    failed = [] if last is None else [f"Its last attempt failed with {last} at {at(found.facts.get('last_error_at'))}."]
    return [*failed, f"Nothing has to be done: it is tried again at {at(found.until)}. {SOONER}"]


def _deadline_passed(found: Explanation) -> Sequence[str]:
    if found.workflow_id is not None:
        return ["It does not run any more; its workflow goes on as it does after a failed node."]
    return ["It does not run any more. If it is still wanted, run it again once it is EXPIRED, without a deadline."]


def _no_worker(found: Explanation) -> Sequence[str]:
    return [f"Start a worker: {_start(found)}."]


def _not_served(found: Explanation) -> Sequence[str]:
    return [f"Start a worker for the queue {found.queue}: {_start(found)}.", *_move(found)]


def _not_known(found: Explanation) -> Sequence[str]:
    if found.queue == EARLY:
        return _not_published(found)
    name, fails_at = found.facts.get("task_name"), found.facts.get("fails_at")
    ends = []
    if fails_at is not None and not found.facts.get("knowing_workers"):
        ends = [f"If none comes, the task fails with WORKER_RESOLUTION_ERROR at {at(fails_at)}."]
    loads = "If a worker that is running should know it, the module is not loaded: name it in app.discover_tasks()."
    return [f"Start a worker whose code has {name}: {_start(found)}.", loads, *ends, *_move(found)]


def _not_published(found: Explanation) -> Sequence[str]:
    """It has been sent from SQL, and waits for its name (D-59c)."""
    name = found.facts.get("task_name")
    return [
        f"Start a worker whose code has {name}: horsies worker MODULE; or publish it: horsies schema MODULE --publish.",
        "If the name has a typing error, cancel the task and send it again.",
    ]


def _queue_paused(found: Explanation) -> Sequence[str]:
    raise_it = f"Set the max_concurrency of the queue {found.queue} to more than 0, and restart its workers."
    return [raise_it, *_move(found)]


def _queue_at_limit(found: Explanation) -> Sequence[str]:
    limit = found.facts.get("max_concurrency")
    raise_it = f"raise the max_concurrency of the queue {found.queue} from {limit} and restart its workers"
    return [f"Wait until one of {_holders(found)} ends, cancel one that hangs, or {raise_it}."]


def _cluster_at_cap(found: Explanation) -> Sequence[str]:
    raise_it = f"raise cluster_wide_cap from {found.facts.get('cluster_wide_cap')} and restart the workers"
    return [f"Wait until one of {_holders(found)} ends, cancel one that hangs, or {raise_it}."]


def _workflow_paused(found: Explanation) -> Sequence[str]:
    actor, node = found.facts.get("paused_by"), found.facts.get("failed_node")
    since = "" if found.since is None else f" at {at(found.since)}"
    if actor is not None:
        return [f"{actor} paused the workflow{since}. Resume it when it may go on."]
    if node is not None:
        failed = f"Node {node} failed with {found.facts.get('failed_code') or 'no code'}, and that paused the workflow"
        return [f"{failed}{since}.", "Retry its failed nodes; or resume it, and it goes on without them."]
    return [f"The workflow was paused{since}. Resume it when it may go on."]


def _workflow_ended(found: Explanation) -> Sequence[str]:
    if found.facts.get("workflow_status") == "FAILED":
        return ["Nothing starts in a workflow that has ended. Retry its failed nodes to let it go on."]
    return ["Nothing starts in a workflow that has ended. Start it anew if it is still wanted."]


def _waits_for_nodes(found: Explanation) -> Sequence[str]:
    awaited = some_of(found.nodes, MOST_NAMED) or "the nodes before it"
    return [f"Nothing has to be done here: look at what it waits for, {awaited}."]


def _waits_for_child(found: Explanation) -> Sequence[str]:
    child = found.facts.get("sub_workflow_id")
    if child is None:
        return ["Nothing has to be done: a worker builds it. If that lasts, see whether workers are alive."]
    return [f"Nothing has to be done here: look why its sub-workflow {child} has not ended."]


def _being_enqueued(found: Explanation) -> Sequence[str]:
    return ["Nothing has to be done: a worker takes the next step. If that lasts, see whether workers are alive."]


def _in_line(found: Explanation) -> Sequence[str]:
    workers = some_of(found.facts.get("serving_queue") or (), MOST_NAMED)
    who = f" The queue is served by {workers}." if workers else ""
    wait = f"Nothing has to be done, if the queue gets shorter.{who}"
    first = "" if found.workflow_id is not None else ", or move the task to a smaller priority"
    return [wait, f"To have it sooner, start another worker ({_start(found)}){first}."]


def _claimed(found: Explanation) -> Sequence[str]:
    return [f"Nothing has to be done. If that lasts, look at what worker {found.worker_id} runs."]


def _running(found: Explanation) -> Sequence[str]:
    where = "Cancel it" if found.workflow_id is None else "Cancel its workflow"
    return [f"Nothing has to be done. {where} if it hangs: that stops its code."]


def _being_finalized(found: Explanation) -> Sequence[str]:
    return [f"Nothing has to be done. If that lasts, look at the log of worker {found.worker_id}."]


def _silent(found: Explanation) -> Sequence[str]:
    return [
        f"Look whether worker {found.worker_id} still runs; it was last heard at {at(found.since)}.",
        "If it is gone, another worker recovers the task by itself. To have that at once, sweep dead workers"
        " (horsies sweep-stale-workers).",
    ]


def _ended(found: Explanation) -> Sequence[str]:
    if found.status is TaskStatus.COMPLETED or found.facts.get("node_status") == "COMPLETED":
        return ["Nothing has to be done: it succeeded."]
    if found.workflow_id is not None:
        return ["Retry the failed nodes of its workflow, if it is still wanted."]
    return ["Run it again, as a new task with the same arguments, if it is still wanted."]


_REMEDIES: Mapping[Why, Remedy] = {
    Why.NOT_DUE: _not_due,
    Why.RETRY_DUE: _retry_due,
    Why.DEADLINE_PASSED: _deadline_passed,
    Why.NO_WORKER: _no_worker,
    Why.NO_WORKER_SERVES_QUEUE: _not_served,
    Why.NO_WORKER_KNOWS_TASK: _not_known,
    Why.QUEUE_PAUSED: _queue_paused,
    Why.QUEUE_AT_LIMIT: _queue_at_limit,
    Why.CLUSTER_AT_CAP: _cluster_at_cap,
    Why.WORKFLOW_PAUSED: _workflow_paused,
    Why.WORKFLOW_ENDED: _workflow_ended,
    Why.WAITING_FOR_NODES: _waits_for_nodes,
    Why.WAITING_FOR_SUBWORKFLOW: _waits_for_child,
    Why.BEING_ENQUEUED: _being_enqueued,
    Why.IN_LINE: _in_line,
    Why.CLAIMED: _claimed,
    Why.RUNNING: _running,
    Why.BEING_FINALIZED: _being_finalized,
    Why.WORKER_SILENT: _silent,
    Why.ENDED: _ended,
}


def _start(found: Explanation) -> str:
    """The command that starts a worker for its queue, safe to be copied whatever the queue is called."""
    return f"horsies worker MODULE --queues {shlex.quote(found.queue or '')}"


def _move(found: Explanation) -> list[str]:
    """Tasks of workflows stay in their queues."""
    if found.workflow_id is not None:
        return []
    elsewhere = [queue for queue in found.facts.get("known_in") or () if queue != found.queue]
    if elsewhere:
        queues = some_of(elsewhere, MOST_NAMED)
        return [f"Or move it to a queue whose workers know {found.facts.get('task_name')}: {queues}."]
    return ["No live worker of another queue says that it knows this task, so moving it may not help."]


def _holders(found: Explanation) -> str:
    """What is in the way, and for how long."""
    holders: Sequence[Mapping[str, Any]] = found.facts.get("holders") or ()
    now = found.facts["asked_at"]
    told = [f"{one['task_name']} ({_for_how_long(one, now)})" for one in holders[:MOST_NAMED]]
    more = len(found.tasks) - len(told)
    return ", ".join(told) + (f" and {more} more" if more > 0 else "") if told else "the tasks that hold the places"


def _for_how_long(holder: Mapping[str, Any], now: datetime) -> str:
    since: datetime | None = holder["since"]
    so_long = "" if since is None else f" for {duration((now - since).total_seconds())}"
    return f"{holder['status'].lower()}{so_long}"


def at(time: datetime | None) -> str:
    """A time in a sentence."""
    if time is None:
        return "an unknown time"
    return time.astimezone(UTC).isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")
