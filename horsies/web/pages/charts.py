"""The charts of the overview and of queues, from the statistics by minute (M-95)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from horsies import monitoring
from horsies.core.models.monitoring.history import RollupPoint, RollupSeries
from horsies.core.types import Ok
from horsies.web.pages.frame import Viewer
from horsies.web.svg.charts import ChartSeries, ChartWindow, Sample, area_svg, bars_svg, lines_svg
from horsies.web.svg.markup import Svg

WINDOWS = {"1h": timedelta(hours=1), "6h": timedelta(hours=6), "24h": timedelta(days=1), "7d": timedelta(days=7)}
# The time between two points, each of which the statistics are added up for.
STEPS = {
    "1h": timedelta(minutes=1),
    "6h": timedelta(minutes=10),
    "24h": timedelta(minutes=30),
    "7d": timedelta(hours=3),
}


@dataclass(frozen=True, slots=True)
class Charts:
    """Pictures, and whether they show anything."""

    pictures: Sequence[Svg] = ()
    is_empty: bool = True


async def charts_of(viewer: Viewer, window: str, *, queues: Sequence[str] = ()) -> Charts:
    """Throughput, waiting times, run times, what waits and how long: of these queues, or of all."""
    since = viewer.now - WINDOWS[window]
    found = await monitoring.read_rollup(
        viewer.dashboard.broker, since=since, until=viewer.now, step=STEPS[window], queues=queues
    )
    if not isinstance(found, Ok):
        return Charts()
    return await asyncio.to_thread(drawn, found.value, viewer.now)


def drawn(series: RollupSeries, now: datetime) -> Charts:
    """The pictures of a series. What was counted in a time that is not over yet would look like a collapse, so it is
    left out."""
    step = timedelta(seconds=series.step_seconds)
    window = ChartWindow(series.until, series.until - series.since, step)

    def samples(value: Callable[[RollupPoint], float | None]) -> list[Sample]:
        return [(point.at + step / 2, value(point)) for point in series.points]  # the middle of its time

    def counted(value: Callable[[RollupPoint], float | None]) -> list[Sample]:
        return samples(lambda point: value(point) if point.at + step <= now else None)

    rate = 60 / series.step_seconds
    ended = [
        ChartSeries("failed", "failed", counted(lambda point: point.failed * rate)),
        ChartSeries("completed", "completed", counted(lambda point: point.completed * rate)),
    ]
    waits = [
        ChartSeries("p50", "p50", samples(lambda point: point.wait_p50)),
        ChartSeries("p95", "p95", samples(lambda point: point.wait_p95)),
    ]
    runs = [
        ChartSeries("p50", "p50", samples(lambda point: point.run_p50)),
        ChartSeries("p95", "p95", samples(lambda point: point.run_p95)),
    ]
    pictures = (
        bars_svg(ended, title="Ended per minute", window=window),
        lines_svg(waits, title="Time from due to start", window=window),
        lines_svg(runs, title="Run time", window=window),
        area_svg(samples(lambda point: point.waiting), title="Waiting", window=window),
        area_svg(samples(lambda point: point.oldest_due_seconds), title="Oldest due", window=window, unit="seconds"),
        area_svg(samples(lambda point: point.running), title="Running", window=window),
    )
    return Charts(pictures, is_empty=not any(_has_something(point) for point in series.points))


def _has_something(point: RollupPoint) -> bool:
    return bool(point.completed or point.failed or point.retried or point.expired or point.cancelled or point.waiting)
