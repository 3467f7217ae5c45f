"""What is asked before something is done to one task: cancel it, run it again, or run it now (M-91)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from horsies import monitoring
from horsies.core.models.monitoring.cluster import Explanation, Why
from horsies.core.text import visible
from horsies.core.types import TaskStatus
from horsies.web.format import moment
from horsies.web.pages.asking import MOST_NAMED, Dialog, FormField, value
from horsies.web.pages.frame import Viewer
from horsies.web.pages.queue_choice import unserved_warning
from horsies.web.pages.task import audit_of, reruns_of


async def cancel_task(viewer: Viewer) -> Dialog:
    task = await viewer.read(monitoring.get_task_detail, value(viewer, "id"))
    is_running = task.status is TaskStatus.RUNNING
    stops = "It is running: its code is stopped, softly at first." if is_running else "It does not run then."
    return Dialog(
        f"Cancel {visible(task.task_name)}?",
        [f"Task {task.task_id} is {task.status.value}. {stops}", "A cancelled task can be run again as a new one."],
        viewer.path("api", "tasks", task.task_id, "cancel"),
        "Cancel and stop its code" if is_running else "Cancel it",
        "The task is cancelled.",
        [FormField("include_running", "true" if is_running else "false", type="flag", is_hidden=True)],
        is_dangerous=True,
    )


async def rerun_task(viewer: Viewer) -> Dialog:
    task = await viewer.read(monitoring.get_task_detail, value(viewer, "id"))
    new = f"A new task with the same arguments is sent to queue {task.queue_name}. It is due at once"
    reruns = await reruns_of(viewer, task, await audit_of(viewer, task.task_id))
    return Dialog(
        f"Run {visible(task.task_name)} again?",
        [
            *_repeated(reruns),
            f"{new}{_new_deadline(task, viewer.now)}. This one stays as it is.",
            *await unserved_warning(viewer, task.queue_name, task.task_name),
        ],
        viewer.path("api", "tasks", task.task_id, "rerun"),
        "Run it once more" if reruns else "Run it again",
        "A new task was sent.",
        is_dangerous=bool(reruns),
        link=viewer.path("tasks") + "/",
    )


def _repeated(reruns: Sequence[monitoring.TaskSummary]) -> list[str]:
    if not reruns:
        return []
    before = ", ".join(f"{visible(one.task_id)} ({one.status.value})" for one in reruns[:MOST_NAMED])
    return [f"It was run again before, as {before}. What it does would then be done once more."]


def _new_deadline(task: monitoring.TaskDetail, now: datetime) -> str:
    """What the new task has of the deadline of the old one (M-49)."""
    if task.good_until is None:
        return ", and has no deadline, like this one"
    if task.good_until > now:
        return f", and has the same deadline, {moment(task.good_until)}"
    return f", and has no deadline: that of this one has passed ({moment(task.good_until)})"


async def run_task_now(viewer: Viewer) -> Dialog:
    task = await viewer.read(monitoring.get_task_detail, value(viewer, "id"))
    due = max(task.enqueued_at, task.next_retry_at or task.enqueued_at)
    found = await viewer.read(monitoring.explain_task, task.task_id)
    if found.why not in (Why.NOT_DUE, Why.RETRY_DUE):
        return Dialog(f"Run {visible(task.task_name)} now?", [_why_not(task, found)])
    what = "Its next try" if task.next_retry_at is not None else "It"
    kept = f"Retry {task.retry_count:,} of {task.max_retries:,} is then used, as it would have been."
    return Dialog(
        f"Run {visible(task.task_name)} now?",
        [
            f"{what} is due at {moment(due)}. It becomes due at once: a worker of queue {task.queue_name} takes it as "
            "soon as one has room.",
            kept if task.next_retry_at is not None else "Nothing else about it changes.",
        ],
        viewer.path("api", "tasks", task.task_id, "run-now"),
        "Run it now",
        "The task is due now.",
    )


def _why_not(task: monitoring.TaskDetail, found: Explanation) -> str:
    """Why its time is not what a task waits for, by the clock of the database."""
    if found.why in (Why.DEADLINE_PASSED, Why.WORKFLOW_PAUSED, Why.WORKFLOW_ENDED):
        return f"It would not run now: {found.message}."
    state = "due already" if task.status is TaskStatus.PENDING else task.status.value
    return f"It does not wait for a time: it is {state}."
