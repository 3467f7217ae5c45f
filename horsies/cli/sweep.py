"""`horsies sweep-stale-workers`: one sweep by hand (M-08)."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Annotated

import typer

from horsies.cli import output
from horsies.cli.manual import AsJson, count, opened, print_json, print_table, value_of
from horsies.cli.options import DatabaseUrl, OptionalModule, parse_duration
from horsies.core.models.sweeping import SweepStaleWorkersOptions, SweepStaleWorkersResult


def sweep_stale_workers(
    module: OptionalModule = None,
    sweep_threshold: Annotated[
        timedelta | None,
        typer.Option(
            parser=parse_duration, metavar="D", help="How long a dead worker has been silent.", show_default="the app's"
        ),
    ] = None,
    recovery_delay: Annotated[
        timedelta | None,
        typer.Option(
            parser=parse_duration, metavar="D", help="How long recovered tasks wait.", show_default="the app's"
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell which workers count as dead.")] = False,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> int:
    """Return the tasks of dead workers to the queue, with the recovery hooks of the app."""
    options = SweepStaleWorkersOptions(sweep_threshold=sweep_threshold, recovery_delay=recovery_delay, dry_run=dry_run)
    with opened(module, database_url, with_hooks=True) as app:
        result = value_of(app.worker_utils().sweep_stale_workers_sync(options), app)
    if as_json:
        print_json(asdict(result))
    else:
        _show(result)
    return 0


def _show(result: SweepStaleWorkersResult) -> None:
    output.out().print(_sentence(result), markup=False)
    if result.worker_ids:
        print_table(["dead worker"], [[worker_id] for worker_id in result.worker_ids])


def _sentence(result: SweepStaleWorkersResult) -> str:
    workers = count(len(result.worker_ids), "dead worker")
    if result.dry_run:
        return f"dry run: {workers}; nothing was changed"
    if not result.lock_acquired:
        return "nothing done: somebody else is sweeping at this moment"
    others = [
        f"{number} {what}"
        for number, what in ((result.skipped_count, "skipped"), (result.deferred_count, "deferred"))
        if number
    ]
    return ", ".join([f"recovered {count(result.recovered_count, 'task')} of {workers}", *others])
