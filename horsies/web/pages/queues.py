"""The queues (M-91): depth, age, rate, limits and who serves them; and one queue with its charts."""

from __future__ import annotations

from starlette.responses import Response

from horsies import monitoring
from horsies.core.models.monitoring.cluster import Explanation, QueueInfo, Snapshot
from horsies.core.types import Ok
from horsies.web.pages.charts import WINDOWS, charts_of
from horsies.web.pages.frame import Viewer, not_found, with_viewer
from horsies.web.screens import Screen


async def queues(viewer: Viewer) -> Response:
    snapshot = await viewer.read(monitoring.take_snapshot)
    return await viewer.show(
        "queues.html", "Queues", topics="tasks workers", snapshot=snapshot, taken_at=snapshot.taken_at
    )


async def queue(viewer: Viewer) -> Response:
    name = viewer.request.path_params["name"]
    snapshot = await viewer.read(monitoring.take_snapshot)
    window = viewer.one_of("window", tuple(WINDOWS), "1h")
    charts = await charts_of(viewer, window, queues=[name])
    found = info_of(snapshot, name)
    if found is None and charts.is_empty:
        raise not_found("queue")
    return await viewer.show(
        "queue.html",
        "Queues",
        topics="tasks workers",
        name=name,
        queue=found,
        why=None if found is None else await why_of_oldest(viewer, found),
        window=window,
        windows=WINDOWS,
        charts=charts,
        workers=[worker for worker in snapshot.workers if name in worker.queues],
        taken_at=snapshot.taken_at,
    )


async def why_of_oldest(viewer: Viewer, queue: QueueInfo) -> Explanation | None:
    """Why the task waits that has been due for longest; None if none is due, or it has left the queue since."""
    if queue.oldest_due_task_id is None:
        return None
    found = await monitoring.explain_task(viewer.dashboard.broker, queue.oldest_due_task_id)
    return found.value if isinstance(found, Ok) else None


def info_of(snapshot: Snapshot, name: str) -> QueueInfo | None:
    return next((queue for queue in snapshot.queues if queue.name == name), None)


SCREENS = (Screen("/queues", with_viewer(queues)), Screen("/queues/{name}", with_viewer(queue), any_text="name"))
