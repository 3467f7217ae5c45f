"""Failures (M-91): what failed, by task and code, with counts, a trend, the first and last time, and one example."""

from __future__ import annotations

from datetime import timedelta

from starlette.responses import Response

from horsies import monitoring
from horsies.core.models.monitoring.history import FailureGroup, FailureReport
from horsies.web.pages.charts import WINDOWS
from horsies.web.pages.frame import Viewer, with_viewer
from horsies.web.screens import Screen
from horsies.web.svg.charts import ChartWindow, area_svg
from horsies.web.svg.markup import Svg

MOST_GROUPS = 50


async def failures(viewer: Viewer) -> Response:
    window = viewer.one_of("window", tuple(WINDOWS), "24h")
    since = viewer.now - WINDOWS[window]
    report = await viewer.read(monitoring.list_failures, since=since, limit=MOST_GROUPS)
    return await viewer.show(
        "failures.html",
        "Failures",
        topics="tasks",
        poll=30,
        report=report,
        rows=[(group, trend_of(group, report)) for group in report.groups],
        window=window,
        windows=WINDOWS,
        limit=MOST_GROUPS,
    )


def trend_of(group: FailureGroup, report: FailureReport) -> Svg:
    """How often it happened over the time of the report."""
    step = timedelta(seconds=report.step_seconds)
    # The middle of each step; the last one is not over yet.
    times = (min(report.since + step * (place + 0.5), report.until) for place in range(len(group.trend)))
    samples = [(at, float(number)) for at, number in zip(times, group.trend, strict=True)]
    window = ChartWindow(report.until, report.until - report.since, step)
    return area_svg(samples, title=f"{group.task_name[:60]}: {group.error_code[:60]}", window=window)


SCREENS = (Screen("/failures", with_viewer(failures)),)
