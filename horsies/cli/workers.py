"""`horsies workers`: the registered workers, and which of them are silent (M-09)."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Annotated

import typer
from rich.text import Text

from horsies.cli import output
from horsies.cli.manual import AsJson, duration, looking, print_json, print_table, value_of
from horsies.cli.options import DatabaseUrl, OptionalModule, parse_duration
from horsies.core.models.sweeping import ActiveWorker


def workers(
    module: OptionalModule = None,
    threshold: Annotated[
        timedelta,
        typer.Option(parser=parse_duration, metavar="D", help="Silence after which a worker counts as stale."),
    ] = "5m",  # type: ignore[assignment]  # read by the parser, like what is typed
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> int:
    """List the registered workers, and mark those without a heartbeat for longer than the threshold."""
    with looking(module, database_url) as app:
        found = value_of(app.worker_utils().list_active_workers_sync(threshold), app)
        silences = {one.worker_id: one.silence_s for one in value_of(app.worker_utils().list_silences_sync(), app)}
    if as_json:
        print_json([asdict(worker) for worker in found])
    elif found:
        titles = ["worker", "state", "silent for", "last heartbeat", "started", "host", "pid"]
        print_table(titles, [_row(worker, silences.get(worker.worker_id)) for worker in found])
    else:
        output.out().print("no worker is registered", markup=False)
    return 0


def _row(worker: ActiveWorker, silence_s: float | None) -> list[object]:
    # Not "alive" and not "dead": all that is known here is when it was heard of, by the clock of the database.
    state = Text("stale", style="bold red") if worker.is_stale else Text("heard of", style="green")
    silence = None if silence_s is None else duration(silence_s)
    return [worker.worker_id, state, silence, worker.last_heartbeat_at, worker.started_at, worker.hostname, worker.pid]
