"""The commands about workers and what they hold. `horsies workers` lists the registered workers, their state and their
load (M-09), `horsies drain` asks some of them to leave (M-49c), `horsies sweep-stale-workers` makes one sweep by hand
(M-08), and `horsies force-unlock` returns all tasks of the named workers to the queue (M-09).
"""

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Annotated, Any

import typer

from horsies.cli import options, output, project, session, tables
from horsies.cli.options import AsJson, DatabaseUrl, OptionalModule, parse_duration
from horsies.cli.tables import Column
from horsies.core import locate
from horsies.core.app import Horsies
from horsies.core.errors import ConfigurationError
from horsies.core.models.monitoring.cluster import WorkerStateInfo
from horsies.core.models.recovery import ActiveWorker, SweepStaleWorkersOptions, SweepStaleWorkersResult, WorkerSilence
from horsies.core.types import Err, Ok
from horsies.monitoring import drain_worker, list_workers, to_jsonable

UNLOCK_USAGE = "horsies force-unlock shop.tasks:app web-1:4242:9f3a11c0; horsies workers lists the workers"
DRAIN_USAGE = "horsies drain shop.tasks:app web-1:4242:9f3a11c0; horsies workers lists the workers"
BEAT_S, MISSED_BEATS = 30.0, 3  # a worker that did not say its interval has the usual one
_WORKER_ID = re.compile(r".+:[0-9]+:[0-9a-f]{8}")


def workers(
    module: OptionalModule = None,
    threshold: Annotated[
        timedelta,
        typer.Option(parser=parse_duration, metavar="D", help="Silence after which a worker counts as stale."),
    ] = "5m",  # type: ignore[assignment]  # read by the parser, like what is typed
    wide: options.Wide = False,
    columns: options.Columns = None,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> int:
    """List the registered workers: whether each is live, which queues it serves, how many tasks it can run at a time
    (slots: processes, × async tasks in each), and what it is doing.

    A worker is live if it missed fewer than three of its heartbeats, or draining if it was also asked to leave; it is
    stale after a silence longer than the threshold, and silent in between. The numbers of its tasks, its CPU and its
    memory are those of its last report.
    """
    table = tables.chosen(_COLUMNS, columns, wide=wide, is_table=not as_json)
    with session.open_read_only(module, database_url) as app:
        listed = session.value_of(app.worker_utils().list_active_workers_sync(threshold), app)
        heard = session.value_of(app.worker_utils().list_silences_sync(), app)
        known = asyncio.run(list_workers(app.get_broker()))
    if isinstance(known, Err):  # tables of an older version have not all of this
        output.say(f"queues and load are not shown: {app.config.broker.redact(known.err_value.message)}")
    silences = {one.worker_id: one for one in heard}
    facts = {one.worker_id: one for one in known.unwrap_or(())}
    found = [_Worker(one, silences.get(one.worker_id), facts.get(one.worker_id)) for one in listed]
    if as_json:
        output.print_json([one.fields() for one in found])
    elif found:
        output.print_rows(table, found)
    else:
        output.write("no worker is registered")
    return 0


@dataclass(frozen=True, slots=True)
class _Worker:
    """A registered worker, its silence, and its last report. One of them is missing if the worker came or left between
    the queries."""

    row: ActiveWorker
    silence: WorkerSilence | None
    facts: WorkerStateInfo | None

    def fact(self, name: str) -> Any:
        return None if self.facts is None else getattr(self.facts, name)

    @property
    def silence_s(self) -> float | None:
        return None if self.silence is None else self.silence.silence_s

    @property
    def state(self) -> str:
        if self.row.is_stale:
            return "stale"
        beat_s = BEAT_S if self.silence is None else self.silence.heartbeat_interval_s or BEAT_S
        if self.silence_s is None or self.silence_s >= MISSED_BEATS * beat_s:
            return "silent"
        return "draining" if self.fact("is_draining") else "live"

    def fields(self) -> dict[str, Any]:
        facts = {name: self.fact(name) for name in _FACTS}
        return {**asdict(self.row), "state": self.state, "silence_seconds": self.silence_s, **facts}


# What `--json` adds to the columns of the registry.
_FACTS = (
    "queues",
    "processes",
    "concurrency",
    "tasks_running",
    "tasks_claimed",
    "cpu_percent",
    "memory_usage_mb",
    "children_memory_mb",
    "snapshot_at",
    "is_draining",
)


def _slots(one: _Worker) -> str | None:
    """`4`, or `4×100` if each process runs so many async tasks at a time."""
    processes, concurrency = one.fact("processes"), one.fact("concurrency") or 1
    return None if processes is None else f"{processes}×{concurrency}" if concurrency > 1 else f"{processes}"


def _percent(one: _Worker) -> str | None:
    percent = one.fact("cpu_percent")
    return None if percent is None else f"{percent:.0f}%"


def _memory(one: _Worker) -> str | None:
    sizes = [one.fact("memory_usage_mb"), one.fact("children_memory_mb")]
    return None if sizes[0] is None else f"{sum(size or 0 for size in sizes):,.0f} MB"


_STYLES = {"live": "green", "draining": "cyan", "silent": "yellow", "stale": "bold red"}
_COLUMNS = (
    Column("worker", lambda one: one.row.worker_id),
    Column("state", lambda one: output.styled((one.state, _STYLES[one.state]))),
    Column("queues", lambda one: ", ".join(one.fact("queues") or ()), folds=True),
    Column("slots", _slots),
    Column("running", lambda one: one.fact("tasks_running")),
    Column("claimed", lambda one: one.fact("tasks_claimed"), leaves=2),
    Column("cpu", _percent, leaves=1),
    Column("memory", _memory, leaves=3),
    Column("silent for", lambda one: None if one.silence_s is None else output.duration(one.silence_s), leaves=4),
    Column("last heartbeat", lambda one: one.row.last_heartbeat_at, leaves=6),
    Column("started", lambda one: one.row.started_at, leaves=5),
    Column("host", lambda one: one.row.hostname, leaves=7),
    Column("pid", lambda one: one.row.pid, leaves=8),
)


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
    wanted = SweepStaleWorkersOptions(sweep_threshold=sweep_threshold, recovery_delay=recovery_delay, dry_run=dry_run)
    with session.open_app(module, database_url, with_hooks=True) as app:
        silences = session.value_of(app.worker_utils().list_silences_sync(), app)
        if sweep_threshold is not None:
            _warn_of_impatience(silences, sweep_threshold.total_seconds())
        result = session.value_of(app.worker_utils().sweep_stale_workers_sync(wanted), app)
    if as_json:
        output.print_json(asdict(result))
    else:
        _show(result)
        _tell_of_others(silences, (sweep_threshold or app.config.worker_recovery.sweep_threshold).total_seconds())
    return 0


def _warn_of_impatience(silences: list[WorkerSilence], threshold_s: float) -> None:
    """Warn of a threshold below two heartbeat intervals of a worker; a typed threshold is used unchanged (R-63)."""
    risky = [
        f"{one.worker_id} (every {output.duration(beat)})"
        for one in silences
        if one.takes_part and one.silence_s > threshold_s and threshold_s < 2 * (beat := one.heartbeat_interval_s or 0)
    ]
    if risky:
        output.say(
            f"warning: {output.duration(threshold_s)} is less than two heartbeat intervals of {output.some(risky)}: "
            "a live worker may be taken for dead and lose its tasks"
        )


def _tell_of_others(silences: list[WorkerSilence], threshold_s: float) -> None:
    left = [one.worker_id for one in silences if not one.takes_part and one.silence_s > threshold_s]
    if left:
        output.say(
            f"left alone, because {'it runs' if len(left) == 1 else 'they run'} without worker recovery: "
            f"{output.some(left)} (see horsies stale-tasks, horsies force-unlock)"
        )


def _show(result: SweepStaleWorkersResult) -> None:
    output.write(_sentence(result))
    if result.worker_ids:
        output.print_rows(tables.Table((Column("dead worker", str),)), result.worker_ids)


def _sentence(result: SweepStaleWorkersResult) -> str:
    workers = output.count(len(result.worker_ids), "dead worker")
    if result.dry_run:
        return f"dry run: {workers}; nothing was changed"
    if not result.lock_acquired:
        return "nothing was done: another process is sweeping at the moment"
    others = [
        f"{number} {what}"
        for number, what in ((result.skipped_count, "skipped"), (result.deferred_count, "deferred"))
        if number
    ]
    return ", ".join([f"recovered {output.count(result.recovered_count, 'task')} of {workers}", *others])


def force_unlock(
    what: Annotated[
        list[str],
        typer.Argument(metavar="[MODULE] ID...", help="The app, unless --database-url is given, and the worker ids."),
    ],
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> int:
    """Return all tasks of these workers to the queue at once, even if the workers are alive, and remove the workers
    from the list of workers. Running tasks run again, whatever their retry policy says."""
    with _open_app(what, database_url, UNLOCK_USAGE) as (app, ids):
        unknown = set(ids) - session.value_of(app.worker_utils().known_workers_sync(ids), app)
        unlocked = session.value_of(app.worker_utils().force_unlock_workers_sync(ids), app)
    for worker_id in sorted(unknown):
        output.say(f"no worker {worker_id} is known: it is not registered and holds no task")
    if as_json:
        output.print_json({"unlocked_count": unlocked, "worker_ids": sorted(set(ids))})
    elif len(unknown) < len(set(ids)):
        text = f"unlocked {output.count(unlocked, 'task')} of {output.count(len(set(ids) - unknown), 'worker')}"
        output.write(text)
    return 1 if unknown else 0


def drain(
    what: Annotated[
        list[str],
        typer.Argument(metavar="[MODULE] ID...", help="The app, unless --database-url is given, and the worker ids."),
    ],
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> int:
    """Ask these workers to claim nothing more, to finish what they run, and to leave, as on SIGTERM. The exit code is 1
    if one of them is not registered."""
    with _open_app(what, database_url, DRAIN_USAGE) as (app, ids):
        results = [asyncio.run(drain_worker(app.get_broker(), worker_id)) for worker_id in dict.fromkeys(ids)]
    asked = [result.ok_value for result in results if isinstance(result, Ok)]
    problems = [result.err_value for result in results if isinstance(result, Err)]
    for problem in problems:
        output.say(app.config.broker.redact(problem.message))
    if as_json:
        not_asked = [{"worker_id": one.worker_id, "code": one.code.value, "message": one.message} for one in problems]
        output.print_json({"draining": to_jsonable(asked), "not_asked": not_asked})
    else:
        output.write(*(f"{one.worker_id} finishes its tasks and leaves" for one in asked))
    return 1 if problems else 0


@contextmanager
def _open_app(what: list[str], database_url: str | None, usage: str) -> Iterator[tuple[Horsies, list[str]]]:
    """Open the app. If its module is not found, the first word may be an id and the module may be missing."""
    module, ids = _module_and_worker_ids(what, has_database=database_url is not None)
    if not ids:
        raise output.usage_error(f"no worker is named: {what[0]!r} was read as the app", usage)
    try:
        with session.open_app(module, database_url) as app:
            yield app, ids
    except ConfigurationError as problem:
        if locate.is_not_found(problem) and module == what[0]:
            problem.with_note(f"the first word, {module!r}, was read as the app").with_help(usage)
        raise


def _module_and_worker_ids(what: list[str], *, has_database: bool) -> tuple[str | None, list[str]]:
    """There is no module with --database-url (M-13). If the first word is a worker id, the app is named elsewhere, or
    DATABASE_URL is used."""
    if has_database or _WORKER_ID.fullmatch(what[0]):
        return None if has_database else project.named_app(), what
    return what[0], what[1:]
