"""`horsies workers`: the registered workers, and which of them are silent (M-09).

`horsies sweep-stale-workers`: one manual sweep (M-08).

`horsies recover-workflows`: repair stuck workflows (M-10, R-37).
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Annotated

import typer
from rich.text import Text

from horsies.cli import output, session
from horsies.cli.options import DatabaseUrl, OptionalModule, parse_duration
from horsies.cli.session import AsJson, count, duration, looking, opened, print_json, print_table, some, value_of
from horsies.core.models.recovery import ActiveWorker, SweepStaleWorkersOptions, SweepStaleWorkersResult, WorkerSilence
from horsies.core.recovery.reconcile import recover_stuck_workflows_sync


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


def recover_workflows(
    module: OptionalModule = None,
    grace: Annotated[
        int, typer.Option("--grace-ms", min=0, help="Ignore everything that ended less than this time ago.")
    ] = 10_000,
    as_json: session.AsJson = False,
    database_url: DatabaseUrl = None,
) -> int:
    """Make the missing steps of workflows that are stuck because a process died at the wrong moment. Workers do this
    automatically; use this command if no worker is running."""
    with session.opened(module, database_url, with_hooks=True) as app:
        moved = session.value_of(recover_stuck_workflows_sync(app.get_broker(), grace), app)
    if as_json:
        session.print_json({"recovered_count": moved})
    elif moved:
        output.out().print(
            f"{session.count(moved, 'step')} taken for nodes and workflows that were stuck", markup=False
        )
    else:
        output.out().print("no workflow is stuck", markup=False)
    return 0
