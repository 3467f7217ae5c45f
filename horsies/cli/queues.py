"""`horsies queues`: the length, age, throughput and limit of each queue."""

from __future__ import annotations

import asyncio
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from horsies.cli import manual
from horsies.cli.options import DatabaseUrl, OptionalModule
from horsies.cli.watching import Every, Watch, refuse_watching, watch_until_interrupted
from horsies.core.monitoring.models.answers import to_jsonable
from horsies.core.monitoring.models.snapshots import QueueInfo, Snapshot
from horsies.monitoring import take_snapshot

_TITLES = ("queue", "waiting", "due", "later", "claimed", "running", "limit", "oldest due", "ended/min", "workers")


def queues(
    module: OptionalModule = None,
    watch: Watch = False,
    every: Every = "2s",  # type: ignore[assignment]  # read by the parser, like what is typed
    as_json: manual.AsJson = False,
    database_url: DatabaseUrl = None,
) -> int:
    """Show for each queue: the waiting tasks (due now, or later), the claimed and running tasks, the concurrency limit,
    how long the oldest task has been due, how many tasks ended in the last minute, and how many live workers serve it.
    """
    refuse_watching(watch, as_json)
    with manual.looking(module, database_url) as app:

        def snapshot() -> Snapshot:
            return manual.answer_of(asyncio.run(take_snapshot(app.get_broker())), app)

        if watch:
            return watch_until_interrupted(lambda: _shown(snapshot()), every)
        found = snapshot()
    if as_json:
        manual.print_json({"taken_at": to_jsonable(found.taken_at), "queues": to_jsonable(found.queues)})
    else:
        manual.print_whole(_shown(found))
    return 0


def _shown(found: Snapshot) -> RenderableType:
    return manual.table_of(_TITLES, [_row(queue) for queue in found.queues])


def _row(queue: QueueInfo) -> list[Any]:
    is_stranded = queue.waiting > 0 and queue.live_workers == 0
    return [
        queue.name,
        queue.waiting,
        queue.due,
        queue.scheduled,
        queue.claimed,
        queue.running,
        queue.max_concurrency,
        None if queue.oldest_due_seconds is None else manual.duration(queue.oldest_due_seconds),
        queue.ended_last_minute,
        Text("none", style="bold red") if is_stranded else queue.live_workers,
    ]
