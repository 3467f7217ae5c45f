"""`horsies stale-tasks`: list running tasks without a recent heartbeat (M-10, R-91). It changes nothing."""

from __future__ import annotations

from typing import Annotated

import typer

from horsies.cli import manual, output
from horsies.cli.options import DatabaseUrl, OptionalModule

_TITLES = {
    "id": "task",
    "task_name": "name",
    "worker_hostname": "host",
    "worker_pid": "pid",
    "worker_process_name": "process",
    "last_heartbeat": "last heartbeat",
    "started_at": "started",
}


def stale_tasks(
    module: OptionalModule = None,
    minutes: Annotated[
        float, typer.Option(min=0, help="Only tasks without a heartbeat for more than this many minutes.")
    ] = 2,
    as_json: manual.AsJson = False,
    database_url: DatabaseUrl = None,
) -> int:
    """List running tasks whose heartbeats have stopped: recovery would treat them as dead at this threshold."""
    with manual.looking(module, database_url) as app:
        asked = app.get_broker().get_stale_tasks_sync(stale_threshold_minutes=minutes)
        found = manual.value_of(asked, app)
    if as_json:
        manual.print_json(found)
    elif found:
        manual.print_table(list(_TITLES.values()), [[row[name] for name in _TITLES] for row in found])
    else:
        output.out().print(f"no running task has been silent for more than {minutes:g} min", markup=False)
    return 0
