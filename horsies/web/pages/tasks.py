"""The list of tasks (M-91): filters in the address, keyset pages, and what can be done with the selected ones."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from horsies import monitoring
from horsies.core.monitoring.filters import IN_FLIGHT, WAITING
from horsies.core.types import TASK_TERMINAL_STATES, TaskStatus
from horsies.web.pages.frame import Viewer, query, viewer_of, with_viewer
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
    age: str = ""
    sort: str = ""
    retried: bool = False
    after: str = ""

    @property
    def is_filtered(self) -> bool:
        plain = (self.name, self.queue, self.code, self.worker, self.id, self.key, self.age)
        return any(plain) or self.retried

    def address(self, **changed: Any) -> str:
        """The query of the address of this question with some changes."""
        said = {**asdict(self), **changed}
        said["status"] = list(said.pop("statuses"))
        return query(**{**said, "retried": "1" if said["retried"] else ""})

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
        wanted = {
            "statuses": self.statuses,
            "task_names": _one(self.name),
            "queues": _one(self.queue),
            "error_codes": _one(self.code),
            "workers": _one(self.worker),
            "retried_only": self.retried,
            "id_prefix": self.id or None,
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


async def find(request: Request) -> Response:
    """Whatever has this id; the list of tasks whose ids begin so, if nothing has."""
    viewer = await viewer_of(request)
    wanted = viewer.param("q")
    if not wanted:
        return RedirectResponse(viewer.path("tasks"), 303)
    broker = viewer.dashboard.broker
    for kind, found in (
        ("tasks", await monitoring.get_task_detail(broker, wanted)),
        ("workflows", await monitoring.get_workflow_run(broker, wanted)),
    ):
        if found.is_ok() and found.ok_value is not None:
            return RedirectResponse(viewer.path(kind, wanted), 303)
    return RedirectResponse(viewer.path("tasks") + query(id=wanted), 303)


SCREENS = (Screen("/tasks", with_viewer(tasks)), Screen("/find", find))
