"""The first tab as text, for `--once` (M-82): everything is asked once, and the lines are those of the screen. It needs
no Textual.
"""

from __future__ import annotations

from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.models.monitoring.tasks import MonitoringResult
from horsies.core.monitoring.alerts import judge
from horsies.core.types import Err, Ok
from horsies.tui.lines import Line
from horsies.tui.source import BrokerSource
from horsies.tui.view_dashboard import dashboard

# What the tones look like, as styles of rich.
STYLES = {
    "": "default",
    "dim": "dim",
    "bold": "bold",
    "head": "bold",
    "good": "green",
    "warn": "yellow",
    "bad": "bold red",
    "busy": "cyan",
}


async def dashboard_of(broker: PostgresBroker, width: int) -> MonitoringResult[list[Line]]:
    source = BrokerSource(broker)
    snapshot = await source.snapshot()
    if isinstance(snapshot, Err):
        return snapshot
    held = await source.held()
    if isinstance(held, Err):
        return held
    found = snapshot.ok_value
    trend = await source.trend([worker.worker_id for worker in reversed(found.workers) if worker.is_live])
    if isinstance(trend, Err):
        return trend
    alerts = judge(found, held.ok_value)
    return Ok([row.line for row in dashboard(found, alerts, trend.ok_value, width, found.taken_at)])
