"""Workers (M-91): who is registered, who is alive, what each child runs, and the charts of one worker."""

from __future__ import annotations

from datetime import timedelta

from starlette.responses import Response

from horsies import monitoring
from horsies.core.models.monitoring.cluster import WorkerStateInfo
from horsies.core.types import Ok, TaskStatus
from horsies.web.pages.charts import WINDOWS
from horsies.web.pages.frame import Viewer, not_found, with_viewer
from horsies.web.screens import Screen
from horsies.web.svg.charts import ChartWindow, area_svg

STALE_S = 300.0
MOST_TASKS = 100
COLUMNS = 120  # of a chart


def state_of(worker: WorkerStateInfo) -> str:
    """One word for the state of a worker."""
    if worker.is_live:
        return "draining" if worker.is_draining else "live"
    return "stale" if worker.silence_seconds > STALE_S else "silent"


async def workers(viewer: Viewer) -> Response:
    found = await viewer.read(monitoring.list_workers)
    urgency = {"stale": 0, "silent": 1, "draining": 2, "live": 3}
    rows = sorted(((state_of(worker), worker) for worker in found), key=lambda row: urgency[row[0]])
    return await viewer.show("workers.html", "Workers", topics="workers", poll=10, rows=rows, stale_s=STALE_S)


async def worker(viewer: Viewer) -> Response:
    worker_id = viewer.request.path_params["worker_id"]
    found = next((one for one in await viewer.read(monitoring.list_workers) if one.worker_id == worker_id), None)
    window = viewer.one_of("window", tuple(WINDOWS), "1h")
    length = WINDOWS[window]
    seconds = length.total_seconds()
    history = await viewer.read(monitoring.get_worker_history, worker_id, limit=COLUMNS, window_seconds=seconds)
    tasks = await viewer.read(
        monitoring.list_tasks,
        workers=[worker_id],
        statuses=[TaskStatus.RUNNING, TaskStatus.CLAIMED],
        sort_by="started_at",
        sort_dir="asc",
        limit=MOST_TASKS,
    )
    is_known = found is not None or history or tasks.items
    if not is_known and not await viewer.read(monitoring.get_worker_history, worker_id, limit=1):
        raise not_found("worker")
    drawn = ChartWindow(viewer.now, length, max(timedelta(minutes=1), length / COLUMNS))
    return await viewer.show(
        "worker.html",
        "Workers",
        topics="workers tasks",
        poll=10,
        worker_id=worker_id,
        worker=found,
        state_word="" if found is None else state_of(found),
        tasks=tasks,
        window=window,
        windows=WINDOWS,
        charts=[
            area_svg([(one.snapshot_at, one.tasks_running) for one in history], title="Running tasks", window=drawn),
            area_svg([(one.snapshot_at, one.cpu_percent) for one in history], title="CPU of its host, %", window=drawn),
            area_svg(
                [(one.snapshot_at, _memory(one.memory_usage_mb, one.children_memory_mb)) for one in history],
                title="Memory with children, MB",
                window=drawn,
            ),
        ],
    )


def _memory(own: float | None, children: float | None) -> float | None:
    return None if own is None else own + (children or 0.0)


async def ping(viewer: Viewer) -> Response:
    """Which workers answer right now."""
    report = await monitoring.ping(viewer.dashboard.broker)
    return await viewer.show(
        "ping.html",
        "Workers",
        report=report.value if isinstance(report, Ok) else None,
        problem=None if isinstance(report, Ok) else report.error.message,
    )


SCREENS = (
    Screen("/workers", with_viewer(workers)),
    Screen("/workers/ping", with_viewer(ping)),
    Screen("/workers/{worker_id}", with_viewer(worker), any_text="worker_id"),
)
