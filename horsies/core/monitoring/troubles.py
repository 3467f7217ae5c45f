"""What is wrong now (M-45d): a snapshot, and the facts that it does not have, are read, and `alerts.judge` says what
they mean. Each look has a bound, so that the answer costs about the same whatever the tables have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from horsies.core.db import Connection
from horsies.core.models.codes import OperationalErrorCode
from horsies.core.models.monitoring.cluster import Alert, Explanation, Snapshot
from horsies.core.models.monitoring.tasks import MonitoringResult
from horsies.core.monitoring import alerts
from horsies.core.monitoring.explain import explain_task
from horsies.core.monitoring.queries import ask
from horsies.core.monitoring.snapshot import PARTS_S, Parts, take_snapshot
from horsies.core.store import troubles
from horsies.core.store.troubles import BadEnds, HeldTasks, StoppedWorkflows
from horsies.core.tasks.tally import quantile
from horsies.core.types import Ok, WorkflowStatus

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker


WINDOW = timedelta(hours=1)  # in which tasks and workflows ended badly
USUAL_WITHIN = timedelta(days=1)  # in which the usual run times were seen
MOST_HELD = 10_000
MOST_WORKFLOWS = 1_000
MOST_ROWS = 20_000  # of the statistics
MOST_EXPLAINED = 3  # queues whose oldest task is asked why it waits
LOST = (OperationalErrorCode.WORKER_CRASHED.value,)


async def list_alerts(
    broker: PostgresBroker, *, snapshot: Snapshot | None = None
) -> MonitoringResult[tuple[Alert, ...]]:
    """All that is wrong now, the worst first; according to this snapshot, or to a new one."""
    if snapshot is None:
        taken = await take_snapshot(broker)
        if not isinstance(taken, Ok):
            return taken
        snapshot = taken.value
    found = await ask(broker, partial(read_troubles, snapshot=snapshot))
    if not isinstance(found, Ok):
        return found
    reasons = await _reasons(broker, snapshot)
    return Ok(tuple(alerts.judge(snapshot, found.value.held, found.value, reasons)))


async def read_troubles(conn: Connection, *, snapshot: Snapshot) -> alerts.Troubles:
    """The facts beside a snapshot, in the caller's transaction. A part that cannot be read is missing."""
    parts = Parts(conn, monotonic() + PARTS_S)
    held = await parts.read("held tasks", partial(troubles.held_tasks, most=MOST_HELD), list[HeldTasks]())
    stopped = partial(troubles.stopped_workflows, window=WINDOW, most=MOST_WORKFLOWS)
    flows = await parts.read("stopped workflows", stopped, dict[WorkflowStatus, StoppedWorkflows]())
    bad_ends = partial(troubles.bad_ends, window=WINDOW, lost=LOST, most=MOST_ROWS)
    ends = await parts.read("statistics", bad_ends, BadEnds())
    live = {worker.worker_id for worker in snapshot.workers if worker.is_live}
    slow = longest(one for one in held if one.worker_id in live and (one.seconds or 0) >= alerts.RUNS_LONG_S)
    asked = partial(troubles.run_times, window=USUAL_WITHIN, task_names=sorted(slow), most=MOST_ROWS)
    usual = await parts.read("run times", asked, dict[str, list[int]]()) if slow else {}
    return alerts.Troubles(
        held=_by_worker(held),
        failed=ends.failed,
        expired=ends.expired,
        lost=ends.lost,
        stopped=flows,
        running=tuple(_run(one, usual) for one in slow.values()) if "run times" not in parts.missing else (),
        missing=parts.missing,
    )


def longest(held: Iterable[HeldTasks]) -> dict[str, HeldTasks]:
    """Of each name the task that has been running for longest."""
    found: dict[str, HeldTasks] = {}
    for one in held:
        if one.task_name not in found or (one.seconds or 0) > (found[one.task_name].seconds or 0):
            found[one.task_name] = one
    return found


def _run(held: HeldTasks, usual: Mapping[str, list[int]]) -> alerts.LongRun:
    counts = usual.get(held.task_name, [])
    return alerts.LongRun(
        held.oldest_id or "", held.task_name, held.worker_id, held.seconds or 0.0, quantile(counts, alerts.USUAL)
    )


def _by_worker(held: Iterable[HeldTasks]) -> dict[str, int]:
    numbers: Counter[str] = Counter()
    for one in held:
        numbers[one.worker_id] += one.number
    return dict(numbers)


async def _reasons(broker: PostgresBroker, snapshot: Snapshot) -> dict[str, Explanation]:
    """Why the oldest task of each queue waits, of those queues whose tasks have waited for longest. Without a reason
    an alert is still an alert."""
    late = sorted(alerts.late_queues(snapshot), key=lambda queue: -(queue.oldest_due_seconds or 0))
    found = {}
    for queue in late[:MOST_EXPLAINED]:
        if queue.oldest_due_task_id is None:
            continue
        why = await explain_task(broker, queue.oldest_due_task_id)
        if isinstance(why, Ok) and why.value is not None:
            found[queue.name] = why.value
    return found
