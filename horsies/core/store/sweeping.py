"""One typed function per statement about dead workers: who they are, what they hold, and the deletion of their rows.

The queries are not prepared: on an empty table any index looks good, and a prepared plan is kept for a long time.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from psycopg.rows import class_row

from horsies.core.lifecycle.recovery import InFlight
from horsies.core.models.recovery import RecoveryConfig, WorkerRecoveryConfig
from horsies.core.models.sweeping import ActiveWorker, WorkerSilence
from horsies.core.schema.locks import SWEEP, lock_key
from horsies.core.sql import load
from horsies.core.store.arrays import numbers, texts
from horsies.core.store.recovery import STEP, in_flight
from horsies.core.store.tasks import Connection

SWEEP_LOCK = lock_key(SWEEP)
WHENEVER = datetime.max.replace(tzinfo=UTC)
DEFAULTS = WorkerRecoveryConfig()


class Gone(NamedTuple):
    """A worker that counts as dead, and the settings that apply to its tasks."""

    worker_id: str
    seen: datetime | None  # when it was last heard of; None: it is not registered
    threshold_s: float | None = None  # a task whose heartbeat is younger is deferred
    finalizing_s: float | None = None  # and so is one that began to finalize after that
    silence_s: float | None = None  # and one whose last sign of life of any kind is younger


class Place(NamedTuple):
    """The position of a sweep: after the task claimed at this time, as the server writes it, with this id."""

    claimed_at: str
    task_id: str


START = Place("-infinity", "")


class Held(NamedTuple):
    """A task of a dead worker."""

    task: InFlight
    is_deferred: bool
    place: Place


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
    conn: Connection, gone: Sequence[Gone], *, until: datetime, after: Place = START, most: int = STEP
) -> list[Held]:
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
    return [Held(in_flight(row[:-2]), row[-2], Place(row[-1], row[0])) for row in await cursor.fetchall()]


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
