"""One typed function per statement about workers: registration, liveness, snapshots, the waiting list for
notifications, what workers wrote about themselves, and who is dead: the evidence, what dead workers hold, and the
deletion of their rows. The queries about dead workers are not prepared: on an empty table any index looks good, and a
prepared plan is kept for a long time.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Protocol

from psycopg import AsyncConnection
from psycopg.rows import class_row, dict_row
from psycopg.types.json import Jsonb

from horsies.core.db import Connection
from horsies.core.models.broker import WorkerStateSnapshot
from horsies.core.models.recovery import ActiveWorker, RecoveryConfig, WorkerRecoveryConfig, WorkerSilence
from horsies.core.schema.install import SWEEP, lock_key
from horsies.core.sql import load, numbers, texts
from horsies.core.store.recovery import STEP, in_flight
from horsies.core.tasks.moves import InFlight

FORGOTTEN = 1000  # rows of the waiting list at once, at most
_JSON_SETTINGS = ("queue_priorities", "queue_max_concurrency", "recovery_config")
NO_SETTINGS: Mapping[str, Any] = {"queues": [], **dict.fromkeys(_JSON_SETTINGS)}  # of most snapshots (W-71)


class Registration(NamedTuple):
    """What a worker learns from its heartbeat."""

    server_s: float  # the time of the server
    are_stored: bool  # the names that it knows were stored before
    is_draining: bool  # somebody has asked it to drain (W-55)


async def register(conn: Connection, row: Mapping[str, Any]) -> Registration:
    """Insert the worker's row, or refresh its heartbeat."""
    params = {**row, **{name: Jsonb(row[name]) for name in ("recovery", "metadata")}}
    [answer] = await (await conn.execute(load("workers/register"), params)).fetchall()
    return Registration(*answer)


async def drain(conn: Connection, worker_id: str) -> datetime | None:
    """Ask a worker to drain; return when that was, or None if it is not registered."""
    found = await (await conn.execute(load("workers/drain"), {"worker_id": worker_id}, prepare=False)).fetchone()
    return None if found is None else found[0]


async def unregister(conn: Connection, worker_id: str) -> None:
    await conn.execute(load("workers/unregister"), {"worker_id": worker_id})


async def take_turn(conn: Connection, worker_id: str, team: str, every_s: float) -> float | None:
    """None if it is this worker's turn to make a pass for its team; otherwise how many seconds ago another made one."""
    params = {"worker_id": worker_id, "team": team, "every": every_s}
    [(age,)] = await (await conn.execute(load("workers/take_turn"), params, prepare=False)).fetchall()
    return None if age is None else float(age)


async def hold_liveness(conn: Connection, key: int) -> None:
    """Take the worker's liveness lock for as long as this session lives."""
    await conn.execute(load("workers/hold_liveness"), {"key": key})


async def snapshot(conn: Connection, row: Mapping[str, Any]) -> None:
    """Append it; with settings, or with `NO_SETTINGS`."""
    json_columns = [name for name in _JSON_SETTINGS if row[name] is not None]
    await conn.execute(load("workers/snapshot"), {**row, **{name: Jsonb(row[name]) for name in json_columns}})


def wake_channel(wake_key: int) -> str:
    """The channel on which one worker is woken (D-61)."""
    return f"horsies_wake_{wake_key}"


async def announce_idle(
    conn: Connection,
    worker_id: str,
    wake_key: int,
    queues: list[str],
    until: timedelta,
    leaves: list[str] | None = None,
) -> str:
    """Leave the mark of this worker, unless nothing notifies in the recorded mode; return that mode. It is not woken
    for tasks of the names that it `leaves`."""
    params = {"worker_id": worker_id, "wake_key": wake_key, "queues": queues, "until": until, "leaves": leaves}
    [(mode,)] = await (await conn.execute(load("workers/announce_idle"), params)).fetchall()
    return str(mode)


async def withdraw_idle(conn: Connection, worker_id: str, queues: list[str]) -> None:
    """Delete the mark of this worker, and wake another one if anything waits in these queues."""
    await conn.execute(load("workers/withdraw_idle"), {"worker_id": worker_id, "queues": queues})


async def pong(conn: Connection, payloads: list[str]) -> None:
    """Answer pings."""
    await conn.execute(load("workers/pong"), {"payloads": payloads})


async def mark_advancing(conn: Connection, worker_id: str, age_s: float, flows: Iterable[str]) -> None:
    """The worker advances workflows, and is `age_s` behind the ends of tasks (R-31)."""
    params = {"worker_id": worker_id, "age": age_s, "flows": texts(flows)}
    await conn.execute(load("workers/mark_advancing"), params)


async def forget_sleepers(conn: Connection) -> bool:
    """Delete some rows of the waiting list whose time is over; return whether there may be more."""
    return (await conn.execute(load("workers/forget_sleepers"), {"most": FORGOTTEN})).rowcount >= FORGOTTEN


async def newest(conn: AsyncConnection[Any]) -> list[WorkerStateSnapshot]:
    """The newest snapshot of each worker, by worker id."""
    async with conn.cursor(row_factory=class_row(WorkerStateSnapshot)) as cursor:
        await cursor.execute(load("workers/newest_states"))
        return await cursor.fetchall()


async def history(conn: AsyncConnection[Any], worker_id: str, *, limit: int | None) -> list[WorkerStateSnapshot]:
    """The snapshots of one worker, newest first."""
    async with conn.cursor(row_factory=class_row(WorkerStateSnapshot)) as cursor:
        await cursor.execute(load("workers/state_history"), {"worker_id": worker_id, "limit": limit})
        return await cursor.fetchall()


async def stats(conn: AsyncConnection[Any]) -> list[dict[str, Any]]:
    """For each process that runs tasks: how many, since when, and its last heartbeat."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load("workers/stats"))
        return await cursor.fetchall()


SWEEP_LOCK = lock_key(SWEEP)
WHENEVER = datetime.max.replace(tzinfo=UTC)
DEFAULTS = WorkerRecoveryConfig()


class Gone(NamedTuple):
    """A worker that counts as dead, and the settings that apply to its tasks."""

    worker_id: str
    seen: datetime | None  # when it was last heard of; None: it is not registered
    threshold_s: float | None = None  # a task whose heartbeat is younger is deferred
    finalizing_s: float | None = None  # a task that began to finalize later than this is deferred too
    silence_s: float | None = None  # a task whose last sign of life of any kind is younger is deferred too


class SweepPosition(NamedTuple):
    """The position of a sweep: after the task claimed at this time, as the server writes it, with this id."""

    claimed_at: str
    task_id: str


START = SweepPosition("-infinity", "")


class OrphanedTask(NamedTuple):
    """A task of a dead worker."""

    task: InFlight
    is_deferred: bool
    place: SweepPosition


async def try_lock(conn: Connection) -> datetime | None:
    """Take the sweep lock for the rest of this transaction, and return when the transaction began; None if another
    process has the lock."""
    cursor = await conn.execute(load("workers/sweep_lock"), {"key": SWEEP_LOCK})
    [(is_mine, now)] = await cursor.fetchall()
    return now if is_mine else None


async def clock(conn: Connection) -> tuple[datetime, float]:
    """The time of this transaction, and how many seconds ago that was."""
    [(now, age)] = await (await conn.execute(load("workers/sweep_clock"))).fetchall()
    return now, age


async def dead(
    conn: Connection,
    me: str,
    sweeping: WorkerRecoveryConfig,
    recovery: RecoveryConfig,
    *,
    threshold: timedelta | None = None,
) -> list[Gone]:
    """The workers to sweep. A given `threshold` is used unchanged; otherwise workers may be more patient than this one
    (R-63)."""
    params = {
        "me": me,
        "threshold": sweeping.sweep_threshold if threshold is None else threshold,
        "as_given": threshold is not None,
        "multiplier": sweeping.resilient_sweep_threshold_multiplier,
        "resilient_flags": sweeping.resilient_job_flags,
        "finalizing": timedelta(milliseconds=recovery.finalizing_stale_threshold_ms),
    }
    cursor = await conn.execute(load("workers/dead"), params, prepare=False)
    return [Gone(*row) for row in await cursor.fetchall()]


async def abandoned(conn: Connection, me: str, recovery: RecoveryConfig) -> list[Gone]:
    """The workers that nobody has swept, although it was time (R-68)."""
    params = {
        "me": me,
        "threshold": DEFAULTS.sweep_threshold,
        "interval": DEFAULTS.sweep_interval,
        "silence": DEFAULTS.sweep_threshold + 2 * DEFAULTS.sweep_interval,
        "multiplier": DEFAULTS.resilient_sweep_threshold_multiplier,
        "resilient_flags": DEFAULTS.resilient_job_flags,
        "finalizing": timedelta(milliseconds=recovery.finalizing_stale_threshold_ms),
    }
    cursor = await conn.execute(load("workers/abandoned"), params, prepare=False)
    return [Gone(*row) for row in await cursor.fetchall()]


async def held(
    conn: Connection, gone: Sequence[Gone], *, until: datetime, after: SweepPosition = START, most: int = STEP
) -> list[OrphanedTask]:
    """What they held at `until`, the oldest claim first. Nothing is locked."""
    params = {
        "ids": texts([one.worker_id for one in gone]),
        "thresholds": numbers([one.threshold_s for one in gone]),
        "finalizing": numbers([one.finalizing_s for one in gone]),
        "silences": numbers([one.silence_s for one in gone]),
        "enrolled_only": [one.seen is None for one in gone],
        "before": until,
        "after": after.claimed_at,
        "after_id": after.task_id,
        "most": most,
    }
    cursor = await conn.execute(load("tasks/held"), params, prepare=False)
    return [
        OrphanedTask(in_flight(row[:-2]), row[-2], SweepPosition(row[-1], row[0])) for row in await cursor.fetchall()
    ]


async def forget(conn: Connection, gone: Sequence[Gone]) -> set[str]:
    """Delete their rows; return those that were deleted. The others have sent a heartbeat in the meantime."""
    judged = sorted(gone)
    params = {"ids": texts([one.worker_id for one in judged]), "seen": [one.seen for one in judged]}
    cursor = await conn.execute(load("workers/forget"), params, prepare=False)
    return {row[0] for row in await cursor.fetchall()}


async def active(conn: Connection, threshold: timedelta) -> list[ActiveWorker]:
    """Every registered worker, the oldest first."""
    async with conn.cursor(row_factory=class_row(ActiveWorker)) as cursor:
        await cursor.execute(load("workers/active"), {"threshold": threshold})
        return await cursor.fetchall()


async def silences(conn: Connection) -> list[WorkerSilence]:
    """Every registered worker, the longest silence first."""
    async with conn.cursor(row_factory=class_row(WorkerSilence)) as cursor:
        await cursor.execute(load("workers/silences"))
        return await cursor.fetchall()


async def known(conn: Connection, worker_ids: Sequence[str]) -> set[str]:
    """Those of these workers that are registered, or hold a task."""
    cursor = await conn.execute(load("workers/known"), {"ids": texts(list(worker_ids))}, prepare=False)
    return {row[0] for row in await cursor.fetchall()}


class Judge(Protocol):
    """Which worker looks, and from where."""

    @property
    def worker_id(self) -> str: ...
    @property
    def hostname(self) -> str: ...
    @property
    def boot_id(self) -> str | None: ...
    @property
    def pid_namespace(self) -> str | None: ...


class Registered(NamedTuple):
    """The columns of `horsies_workers` that are evidence."""

    worker_id: str
    hostname: str | None
    boot_id: str | None
    pid_namespace: str | None
    pid: int | None
    process_start: int | None
    liveness_key: int
    is_sweeping: bool  # its tasks are enrolled in worker recovery
    is_silent: bool  # it was silent for more than two of its own intervals


async def neighbours(conn: Connection, me: Judge) -> list[Registered]:
    """The workers about which this one may find evidence."""
    params: dict[str, Any] = {
        "worker_id": me.worker_id,
        "hostname": me.hostname,
        "boot_id": me.boot_id,
        "pid_namespace": me.pid_namespace,
    }
    cursor = await conn.execute(load("workers/neighbours"), params)
    return [Registered(*row) for row in await cursor.fetchall()]


async def held_liveness(conn: Connection, keys: Iterable[int]) -> set[int]:
    """Those of these liveness locks that a session holds."""
    cursor = await conn.execute(load("workers/held_liveness"), {"keys": numbers(keys)})
    return {row[0] for row in await cursor.fetchall()}


async def delete_row(conn: Connection, worker_id: str) -> bool:
    """Delete the row of a dead worker, unless it still has tasks."""
    cursor = await conn.execute(load("workers/delete_row"), {"worker_id": worker_id})
    return cursor.rowcount > 0
