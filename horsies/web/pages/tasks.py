"""The list of tasks (M-91): filters in the address, keyset pages, and what can be done with the selected ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from starlette.responses import Response

from horsies import monitoring
from horsies.core.models.monitoring.cluster import WorkerStateInfo
from horsies.core.models.monitoring.tasks import TaskSummary
from horsies.core.monitoring.filters import IN_FLIGHT, WAITING
from horsies.core.types import TASK_TERMINAL_STATES, Ok, TaskStatus
from horsies.web.format import id_ends, waits
from horsies.web.pages.frame import Viewer, query, with_viewer
from horsies.web.screens import Screen

PAGE_SIZE = 50
STATES = tuple(status.value for status in TaskStatus)
TABS: tuple[tuple[str, tuple[TaskStatus, ...]], ...] = (
    ("All", ()),
    ("Waiting", (TaskStatus.PENDING,)),
    ("In flight", (TaskStatus.CLAIMED, TaskStatus.RUNNING)),
    ("Failed", (TaskStatus.FAILED,)),
    ("Completed", (TaskStatus.COMPLETED,)),
    ("Cancelled", (TaskStatus.CANCELLED,)),
    ("Expired", (TaskStatus.EXPIRED,)),
)
AGES = {
    "": ("at any time", None, None),
    "5m": ("in the last 5 minutes", timedelta(minutes=5), None),
    "1h": ("in the last hour", timedelta(hours=1), None),
    "1d": ("in the last day", timedelta(days=1), None),
    "7d": ("in the last 7 days", timedelta(days=7), None),
    "old-1h": ("more than an hour ago", None, timedelta(hours=1)),
    "old-1d": ("more than a day ago", None, timedelta(days=1)),
}
SORTS = {
    "": "newest first",
    "oldest": "oldest first",
    "next": "next to be claimed (waiting)",
    "started": "longest in flight (in flight)",
    "ended": "last ended first (ended)",
}


@dataclass(frozen=True, slots=True)
class TaskQuestion:
    """Which tasks somebody wants to see, as the address says it."""

    statuses: tuple[str, ...] = ()
    name: str = ""
    queue: str = ""
    code: str = ""
    worker: str = ""
    id: str = ""
    key: str = ""
    uncoded: bool = False
    age: str = ""
    sort: str = ""
    retried: bool = False
    after: str = ""

    @property
    def is_filtered(self) -> bool:
        plain = (self.name, self.queue, self.code, self.worker, self.id, self.key, self.age)
        return any(plain) or self.retried or self.uncoded

    def address(self, **changed: Any) -> str:
        """The query of the address of this question with some changes."""
        said = {**asdict(self), **changed}
        said["status"] = list(said.pop("statuses"))
        flags = {name: "1" if said[name] else "" for name in ("retried", "uncoded")}
        return query(**{**said, **flags})

    def order(self) -> tuple[monitoring.SortBy, monitoring.SortDir]:
        """The order that has an index for these states; otherwise the newest first."""
        states = {TaskStatus(status) for status in self.statuses}
        if self.sort == "oldest":
            return "id", "asc"
        if self.sort == "next" and states and states <= WAITING:
            return "claim_order", "asc"
        if self.sort == "started" and states and states <= IN_FLIGHT:
            return "started_at", "asc"
        if states and states <= TASK_TERMINAL_STATES and self.sort in ("", "ended"):
            return "ended_at", "desc"
        return "id", "desc"

    def filters(self, now: datetime) -> dict[str, Any]:
        """What the query API is asked for."""
        _, within, before = AGES[self.age]
        begin, end = id_ends(self.id)
        wanted = {
            "statuses": self.statuses,
            "task_names": _one(self.name),
            "queues": _one(self.queue),
            "error_codes": _one(self.code),
            "workers": _one(self.worker),
            "retried_only": self.retried,
            "uncoded_only": self.uncoded,
            "id_prefix": begin or None,
            "id_suffix": end,
            "idempotency_key": self.key or None,
            "sent_after": None if within is None else now - within,
            "sent_before": None if before is None else now - before,
        }
        return {name: value for name, value in wanted.items() if value}


def _one(value: str) -> list[str]:
    return [value] if value else []


def question_of(viewer: Viewer) -> TaskQuestion:
    """What the address asks for; values that nobody could have chosen count as not given."""
    return TaskQuestion(
        statuses=tuple(one for one in viewer.params("status") if one in STATES),
        name=viewer.param("name"),
        queue=viewer.param("queue"),
        code=viewer.param("code"),
        worker=viewer.param("worker"),
        id=viewer.param("id"),
        key=viewer.param("key"),
        age=viewer.one_of("age", tuple(AGES), ""),
        sort=viewer.one_of("sort", tuple(SORTS), ""),
        retried=viewer.param("retried") == "1",
        uncoded=viewer.param("uncoded") == "1",
        after=viewer.param("after"),
    )


async def tasks(viewer: Viewer) -> Response:
    asked = question_of(viewer)
    sort_by, sort_dir = asked.order()
    page = await viewer.read(
        monitoring.list_tasks,
        **asked.filters(viewer.now),
        sort_by=sort_by,
        sort_dir=sort_dir,
        limit=PAGE_SIZE,
        after=asked.after or None,
    )
    first = replace(asked, after="")
    return await viewer.show(
        "tasks.html",
        "Tasks",
        topics="tasks",
        page=page,
        asked=asked,
        tabs=[_tab(first, label, states) for label, states in TABS],
        ages=[(value, label) for value, (label, *_) in AGES.items()],
        sorts=list(SORTS.items()),
        known=known_names(viewer),
        arguments=await arguments_of(viewer, page.items),
        reasons=await reasons_of(viewer, page.items),
        first_query=first.address(),
        next_query=asked.address(after=page.next_cursor) if page.next_cursor else "",
    )


def _tab(asked: TaskQuestion, label: str, states: tuple[TaskStatus, ...]) -> dict[str, Any]:
    wanted = tuple(state.value for state in states)
    is_current = set(asked.statuses) == set(wanted)
    return {"label": label, "query": asked.address(statuses=wanted, sort=""), "is_current": is_current}


def known_names(viewer: Viewer) -> dict[str, list[str]]:
    """Names to choose from: those of the app's code. Reading them from the rows would cost too much."""
    app = viewer.dashboard.app
    if app is None:
        return {"names": [], "queues": []}
    return {"names": sorted(app.tasks)[:500], "queues": sorted(one.name for one in app.config.queues())[:500]}


async def arguments_of(viewer: Viewer, items: Sequence[TaskSummary]) -> dict[str, monitoring.TaskArguments]:
    """What the tasks of a page were given, masked; none where payloads are not shown."""
    if not items or viewer.dashboard.config.hide_payloads:
        return {}
    found = await monitoring.get_task_arguments(viewer.dashboard.broker, [task.task_id for task in items])
    shown = await viewer.masked(found.value) if isinstance(found, Ok) else ()
    return {one.task_id: one for one in shown}


async def reasons_of(viewer: Viewer, items: Sequence[TaskSummary]) -> dict[str, str]:
    """Why due tasks wait, as far as the list of workers tells it; the list of tasks is shown without it too."""
    due = [task for task in items if task.status is TaskStatus.PENDING and not waits(task, viewer.now)]
    if not due:
        return {}
    workers = await monitoring.list_workers(viewer.dashboard.broker)
    if not isinstance(workers, Ok):
        return {}
    live = [worker for worker in workers.value if worker.is_live]
    told = {(task.queue_name, task.task_name): nobody_for(task, live) for task in due}
    return {task.task_id: told[task.queue_name, task.task_name] for task in due}


def nobody_for(task: TaskSummary, live: Sequence[WorkerStateInfo]) -> str:
    """That no live worker takes this task; nothing if one may. A worker with very many tasks does not name them."""
    serving = [worker for worker in live if task.queue_name in worker.queues]
    if not serving:
        return "no live worker serves the queue"
    if not any(worker.task_names is None or task.task_name in worker.task_names for worker in serving):
        return "no live worker of the queue knows it"
    return ""


SCREENS = (Screen("/tasks", with_viewer(tasks)),)
