"""The overview (M-91): what is wrong now, in words; charts; states, queues and workers at a glance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.responses import Response

from horsies import monitoring
from horsies.core.models.monitoring.cluster import Alert, QueueInfo, Snapshot
from horsies.core.monitoring.alerts import capacity
from horsies.core.types import TaskStatus
from horsies.web.pages.charts import WINDOWS, charts_of
from horsies.web.pages.frame import Viewer, query, with_viewer
from horsies.web.screens import Screen

MOST_ALERTS = 20
MOST_QUEUES = 8
OF_QUEUES = frozenset({"no worker", "paused", "at limit", "waiting long", "unknown task", "overload"})
LAST_HOUR = {"window": "1h"}
SCREEN_OF: Mapping[str, tuple[tuple[str, ...], Mapping[str, str]]] = {
    "silent": (("workers",), {}),
    "late schedule": (("schedules",), {}),
    "paused schedule": (("schedules",), {}),
    "failing": (("failures",), LAST_HOUR),
    "failed": (("failures",), LAST_HOUR),
    "lost": (("failures",), LAST_HOUR),
    "expired": (("tasks",), {"status": "EXPIRED"}),
    "stopped workflow": (("workflows",), {"status": "PAUSED"}),
    "paused workflow": (("workflows",), {"status": "PAUSED"}),
    "failed workflow": (("workflows",), {"status": "FAILED"}),
}


@dataclass(frozen=True, slots=True)
class AlertLine:
    """What is wrong, where to look, and the task that it is about, if there is one."""

    level: str
    message: str
    href: str
    task_id: str | None


@dataclass(frozen=True, slots=True)
class StateCount:
    """How many tasks are in a state; ended ones within the time that the snapshot covers."""

    status: TaskStatus
    number: int
    is_exact: bool
    href: str


async def overview(viewer: Viewer) -> Response:
    snapshot = await viewer.read(monitoring.take_snapshot)
    window = viewer.one_of("window", tuple(WINDOWS), "1h")
    alerts = await viewer.read(monitoring.list_alerts, snapshot=snapshot)
    return await viewer.show(
        "overview.html",
        "Overview",
        topics="tasks workflows workers",
        poll=15,
        snapshot=snapshot,
        taken_at=snapshot.taken_at,
        alerts=[_line(viewer, alert) for alert in alerts[:MOST_ALERTS]],
        more_alerts=max(0, len(alerts) - MOST_ALERTS),
        states=[_count(viewer, snapshot, status) for status in TaskStatus],
        queues=most_urgent(snapshot.queues),
        capacity=capacity(snapshot.workers),
        charts=await charts_of(viewer, window),
        window=window,
        windows=WINDOWS,
    )


def _line(viewer: Viewer, alert: Alert) -> AlertLine:
    """An alert with the screen that shows more about it."""
    task_id = alert.task_id if alert.kind in OF_QUEUES else None
    return AlertLine(alert.level, alert.message, _where(viewer, alert), task_id)


def _where(viewer: Viewer, alert: Alert) -> str:
    if alert.kind in OF_QUEUES and not alert.message.startswith("worker"):
        return viewer.path("queues", alert.subject)
    if alert.workflow_id is not None:
        return viewer.path("workflows", alert.workflow_id)
    if alert.task_id is not None:
        return viewer.path("tasks", alert.task_id)
    if alert.kind in ("stale claims", "overload"):
        return viewer.path("workers", alert.subject)
    parts, params = SCREEN_OF.get(alert.kind, ((), {}))
    return viewer.path(*parts) + query(**params) if parts else ""


def _count(viewer: Viewer, snapshot: Snapshot, status: TaskStatus) -> StateCount:
    parts = [one for one in snapshot.task_counts if one.status is status]
    number, is_exact = sum(one.count for one in parts), all(one.is_exact for one in parts)
    return StateCount(status, number, is_exact, viewer.path("tasks") + query(status=status.value))


def most_urgent(queues: tuple[QueueInfo, ...]) -> list[QueueInfo]:
    """Queues with waiting tasks that nobody serves first, then those whose tasks have been due for longest."""
    stranded = Counter({queue.name: queue.due for queue in queues if not queue.live_workers})
    return sorted(queues, key=lambda one: (-stranded[one.name], -(one.oldest_due_seconds or 0), one.name))[:MOST_QUEUES]


SCREENS = (Screen("/", with_viewer(overview)),)
