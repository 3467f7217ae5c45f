"""One task (M-91): its path through the states, why it is not running, attempts, payloads, progress, logs, where it
comes from, what was done to it, and the raw row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from starlette.responses import Response

from horsies import monitoring
from horsies.core.models.monitoring.history import AuditEntry
from horsies.core.models.monitoring.tasks import TaskDetail, TaskSummary
from horsies.core.models.notes import TaskLogLine
from horsies.core.types import Ok, TaskStatus
from horsies.web.answers import in_json
from horsies.web.endpoints import answered
from horsies.web.pages.frame import Viewer, with_viewer
from horsies.web.payloads import tree, tree_of
from horsies.web.screens import Screen
from horsies.web.svg.timeline import rows_of_task, timeline_svg

LOG_LINES = 500
_HEADINGS = {TaskStatus.CANCELLED: "It was cancelled", TaskStatus.EXPIRED: "Why it did not run"}
_IN_WORDS = {
    TaskStatus.PENDING: "waiting",
    TaskStatus.CLAIMED: "claimed",
    TaskStatus.RUNNING: "running",
}


@dataclass(frozen=True, slots=True)
class PathStep:
    """A part of the path through the states. `kind` is `done`, `now`, `bad` or nothing."""

    name: str
    at: datetime | None
    kind: str = ""
    note: str = ""


def path_of(task: TaskDetail) -> list[PathStep]:
    """The states of a task with their times, as far as it has come."""
    steps = [PathStep("sent", task.sent_at, "done"), *_due_step(task)]
    if task.claimed_at is not None:
        steps.append(PathStep("claimed", task.claimed_at, "done", task.claimed_by_worker_id or ""))
    if task.started_at is not None:
        steps.append(PathStep("started", task.started_at, "done", f"attempt {task.retry_count + 1}"))
    if task.status.is_terminal:
        kind = "done" if task.status is TaskStatus.COMPLETED else "bad"
        steps.append(PathStep(task.status.value.lower(), task.ended_at, kind, task.error_code or ""))
    elif task.next_retry_at is not None and task.status is TaskStatus.PENDING:
        steps.append(PathStep("next try", task.next_retry_at, "now", f"after {task.retry_count} of {task.max_retries}"))
    else:
        steps.append(PathStep(_IN_WORDS[task.status], None, "now"))
    return steps


def _due_step(task: TaskDetail) -> list[PathStep]:
    """When it is due, if that is not at once. A retry has its own step."""
    due = task.enqueued_at
    if abs(due - task.sent_at) < timedelta(seconds=1) or (task.next_retry_at is not None and task.claimed_at is None):
        return []
    if task.ended_at is not None and task.ended_at < due:
        return [PathStep("due", due, "", "it ended before")]
    return [PathStep("due", due, "done" if task.claimed_at or task.ended_at else "now")]


@dataclass(frozen=True, slots=True)
class LoggedTask:
    """A task and what it has logged: together, so that what is masked in its arguments is masked there too."""

    task: TaskDetail
    logs: tuple[TaskLogLine, ...]


async def task(viewer: Viewer) -> Response:
    task_id = viewer.request.path_params["task_id"]
    detail = answered(await monitoring.get_task_detail(viewer.dashboard.broker, task_id))
    logged = await viewer.masked(LoggedTask(detail, await logs_of(viewer, detail)))
    found = logged.task
    audit = await audit_of(viewer, task_id)
    reruns = await reruns_of(viewer, detail, audit)
    explained = None if found.status.is_terminal else await monitoring.explain_task(viewer.dashboard.broker, task_id)
    return await viewer.show(
        "task.html",
        "Tasks",
        topics="tasks",
        ids="" if " " in task_id else " ".join([task_id, *_ids(reruns)]),
        poll=5 if found.status is TaskStatus.RUNNING else 0,
        task=found,
        steps=path_of(found),
        why=explained.value if isinstance(explained, Ok) else None,
        hides=viewer.dashboard.config.hide_payloads,
        logs=logged.logs,
        audit=audit,
        reruns=reruns,
        next_try=next_try_of(found),
        cancelled_by=cancelled_by(found, audit),
        drawn=lambda: drawn(found, viewer.now),
    )


def drawn(found: TaskDetail, now: datetime) -> Mapping[str, Any]:
    """What is made of payloads and attempts, of which there may be much."""
    options = _object(found.task_options)
    return {
        "args": tree(found.args),
        "kwargs": tree(found.kwargs),
        "result": tree(found.result),
        "options": tree(found.task_options),
        "flags": tree_of(dict(found.flags)) if found.flags else None,
        "failure": failure_of(found),
        "rerun_of": rerun_of if isinstance(rerun_of := options.get("rerun_of"), str) else None,
        "trace": _trace_id(options),
        "timeline": timeline_svg(rows_of_task(found, now), title="Attempts over time", now=now, prefer="last"),
        "raw": json.dumps(in_json(found), indent=1, ensure_ascii=True, default=str),
    }


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """Why a task ended without success, as its result says it."""

    heading: str
    code: str
    message: str
    traceback: str | None = None
    reason: str | None = None  # what the worker has written about it, if it says more


def failure_of(task: TaskDetail) -> TaskFailure | None:
    """What to read first about a task that did not succeed."""
    if not task.status.is_terminal or task.status is TaskStatus.COMPLETED:
        return None
    error = _object(task.result).get("err")
    error = error if isinstance(error, dict) else {}
    exception = error.get("exception")
    traceback = exception.get("traceback") if isinstance(exception, dict) else None
    message = str(error.get("message") or "")
    return TaskFailure(
        _HEADINGS.get(task.status, "Why it failed"),
        task.error_code or task.status.value,
        message,
        traceback if isinstance(traceback, str) else None,
        task.failed_reason if (task.failed_reason or "").strip() not in message else None,
    )


def next_try_of(task: TaskDetail) -> str:
    """What became of the next try that its last written attempt was to have."""
    if task.status in (TaskStatus.PENDING, TaskStatus.CLAIMED):
        return "will be tried again"
    if task.status is TaskStatus.RUNNING:
        return "is being tried again"
    return "was tried again" if task.started_at is not None else "was to be tried again"


def cancelled_by(task: TaskDetail, audit: Iterable[AuditEntry]) -> str | None:
    """Who cancelled it through a dashboard."""
    done = (entry for entry in audit if entry.action == "task.cancel" and entry.outcome == "done")
    return next((entry.actor for entry in done), None) if task.status is TaskStatus.CANCELLED else None


async def logs_of(viewer: Viewer, found: TaskDetail) -> tuple[TaskLogLine, ...]:
    """What the task has logged, if it is shown."""
    if viewer.dashboard.config.hide_payloads or found.started_at is None:
        return ()
    read = await viewer.dashboard.broker.read_logs_async(found.task_id, most=LOG_LINES)
    return tuple(read.value.lines) if isinstance(read, Ok) else ()


async def audit_of(viewer: Viewer, target: str) -> Any:
    """What was done to it through a dashboard."""
    read = await monitoring.list_audit(viewer.dashboard.broker, target_id=target, limit=20)
    return read.value.items if isinstance(read, Ok) else ()


async def reruns_of(viewer: Viewer, task: TaskDetail, audit: Iterable[AuditEntry]) -> tuple[TaskSummary, ...]:
    """The tasks that repeat this one, as far as an index or the record of what was done to it leads to them: those that
    were sent again from a dashboard, and the one that there is if it was sent again among others (M-49a)."""
    if not task.status.is_terminal or task.workflow_id is not None:
        return ()
    broker = viewer.dashboard.broker
    recorded = [entry.details.get("new_task_id") for entry in audit if entry.action == "task.rerun"]
    ids = [one for one in recorded if isinstance(one, str)]
    keyed = await monitoring.list_tasks(broker, task_names=[task.task_name], idempotency_key=f"rerun of {task.task_id}")
    if isinstance(keyed, Ok):
        ids += _ids(keyed.value.items)
    read = await monitoring.get_task_summaries(broker, list(dict.fromkeys(ids))) if ids else Ok(())
    return await viewer.masked(tuple(read.value)) if isinstance(read, Ok) else ()


def _ids(tasks: Iterable[TaskSummary]) -> list[str]:
    return [one.task_id for one in tasks]


def _object(text: str | None) -> Mapping[str, Any]:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _trace_id(options: Mapping[str, Any]) -> str | None:
    """The id of the trace in a `traceparent`: version, trace, span, flags."""
    trace = options.get("trace")
    parent = trace.get("traceparent") if isinstance(trace, dict) else None
    parts = parent.split("-") if isinstance(parent, str) else []
    return parts[1] if len(parts) == 4 else None


SCREENS = (Screen("/tasks/{task_id}", with_viewer(task), any_text="task_id"),)
