"""The overview (M-91): what is wrong now, in words; charts; states, queues and workers at a glance."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from starlette.responses import Response

from horsies import monitoring
from horsies.core.models.monitoring.cluster import QueueInfo, Snapshot
from horsies.core.monitoring.alerts import Alert, capacity, judge
from horsies.core.types import TaskStatus
from horsies.web.pages.charts import WINDOWS, charts_of
from horsies.web.pages.frame import Viewer, query, with_viewer
from horsies.web.screens import Screen

MOST_ALERTS = 20
MOST_QUEUES = 8


@dataclass(frozen=True, slots=True)
class AlertLine:
    """What is wrong, and where to look."""

    level: str
    message: str
    href: str


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
    alerts = judge(snapshot)
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
    screens = {
        "no worker": ("queues", alert.subject),
        "paused": ("queues", alert.subject),
        "at limit": ("queues", alert.subject),
        "waiting long": ("queues", alert.subject),
        "stale claims": ("workers", alert.subject),
        "silent": ("workers",),
        "late schedule": ("schedules",),
        "failing": ("failures",),
    }
    where = screens.get(alert.kind)
    if alert.kind == "overload":
        where = ("workers", alert.subject) if alert.message.startswith("worker") else ("queues", alert.subject)
    return AlertLine(alert.level, alert.message, "" if where is None else viewer.path(*where))


def _count(viewer: Viewer, snapshot: Snapshot, status: TaskStatus) -> StateCount:
    parts = [one for one in snapshot.task_counts if one.status is status]
    number, is_exact = sum(one.count for one in parts), all(one.is_exact for one in parts)
    return StateCount(status, number, is_exact, viewer.path("tasks") + query(status=status.value))


def most_urgent(queues: tuple[QueueInfo, ...]) -> list[QueueInfo]:
    """Queues with waiting tasks that nobody serves first, then those whose tasks have been due for longest."""
    stranded = Counter({queue.name: queue.due for queue in queues if not queue.live_workers})
    return sorted(queues, key=lambda one: (-stranded[one.name], -(one.oldest_due_seconds or 0), one.name))[:MOST_QUEUES]


SCREENS = (Screen("/", with_viewer(overview)),)
