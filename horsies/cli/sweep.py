"""`horsies sweep-stale-workers`: one manual sweep (M-08)."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Annotated

import typer

from horsies.cli import output
from horsies.cli.manual import AsJson, count, duration, opened, print_json, print_table, some, value_of
from horsies.cli.options import DatabaseUrl, OptionalModule, parse_duration
from horsies.core.models.sweeping import SweepStaleWorkersOptions, SweepStaleWorkersResult, WorkerSilence


def sweep_stale_workers(
    module: OptionalModule = None,
    sweep_threshold: Annotated[
        timedelta | None,
        typer.Option(
            parser=parse_duration,
            metavar="D",
            help="Silence after which a worker counts as dead.",
            show_default="the app's",
        ),
    ] = None,
    recovery_delay: Annotated[
        timedelta | None,
        typer.Option(
            parser=parse_duration, metavar="D", help="Delay before recovered tasks run again.", show_default="the app's"
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the workers that count as dead.")] = False,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> int:
    """Return the tasks of dead workers to the queue, with the recovery hooks of the app. Only workers that ran with
    worker recovery are swept; the others are left alone."""
    options = SweepStaleWorkersOptions(sweep_threshold=sweep_threshold, recovery_delay=recovery_delay, dry_run=dry_run)
    with opened(module, database_url, with_hooks=True) as app:
        silences = value_of(app.worker_utils().list_silences_sync(), app)
        if sweep_threshold is not None:
            _warn_of_impatience(silences, sweep_threshold.total_seconds())
        result = value_of(app.worker_utils().sweep_stale_workers_sync(options), app)
    if as_json:
        print_json(asdict(result))
    else:
        _show(result)
        _tell_of_others(silences, (sweep_threshold or app.config.worker_recovery.sweep_threshold).total_seconds())
    return 0


def _warn_of_impatience(silences: list[WorkerSilence], threshold_s: float) -> None:
    """Warn of a threshold below two heartbeat intervals of a worker; a typed threshold is used unchanged (R-63)."""
    risky = [
        f"{one.worker_id} (every {duration(beat)})"
        for one in silences
        if one.takes_part and one.silence_s > threshold_s and threshold_s < 2 * (beat := one.heartbeat_interval_s or 0)
    ]
    if risky:
        output.say(
            f"warning: {duration(threshold_s)} is less than two heartbeat intervals of {some(risky)}: "
            "a live worker may be taken for dead and lose its tasks"
        )


def _tell_of_others(silences: list[WorkerSilence], threshold_s: float) -> None:
    left = [one.worker_id for one in silences if not one.takes_part and one.silence_s > threshold_s]
    if left:
        output.say(
            f"left alone, because {'it runs' if len(left) == 1 else 'they run'} without worker recovery: {some(left)} "
            "(see horsies stale-tasks, horsies force-unlock)"
        )


def _show(result: SweepStaleWorkersResult) -> None:
    output.out().print(_sentence(result), markup=False)
    if result.worker_ids:
        print_table(["dead worker"], [[worker_id] for worker_id in result.worker_ids])


def _sentence(result: SweepStaleWorkersResult) -> str:
    workers = count(len(result.worker_ids), "dead worker")
    if result.dry_run:
        return f"dry run: {workers}; nothing was changed"
    if not result.lock_acquired:
        return "nothing was done: another process is sweeping at the moment"
    others = [
        f"{number} {what}"
        for number, what in ((result.skipped_count, "skipped"), (result.deferred_count, "deferred"))
        if number
    ]
    return ", ".join([f"recovered {count(result.recovered_count, 'task')} of {workers}", *others])
