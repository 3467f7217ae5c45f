"""What a sweep does to the tasks and the rows of dead workers."""

from __future__ import annotations

from datetime import datetime, timedelta

from horsies.core.db.pool import Connection
from horsies.core.recovery.apply import recover_tasks
from horsies.core.recovery.decide import Action
from horsies.core.store import recovery, tasks, workers
from horsies.core.store.workers import WHENEVER, Gone
from tests.proof_pairs.choices import Choices
from tests.proof_pairs.kinds import LEFT_TO_ANOTHER, SWEEPER, Arguments, Kind
from tests.proof_pairs.rows import WORKERS, Start
from tests.proof_pairs.stage import T0


async def _sweep(conn: Connection, seen: datetime, delay_s: float) -> set[str] | str:
    """As the procedure does it, for one worker that was judged by its silence and one that is dead for certain."""
    judged, certain = WORKERS
    gone = [Gone(judged, seen), Gone(certain, WHENEVER)]
    async with conn.transaction():
        if await workers.try_lock(conn) is None:
            return LEFT_TO_ANOTHER
        held = await workers.held(conn, gone, until=WHENEVER)
        dead = await workers.forget(conn, gone) | {certain}
        mine = [one.task for one in held if one.task.worker_id in dead]
        recovered = await recover_tasks(conn, mine, Action.WORKER_DEFAULT, "gone", "me", delay_s=delay_s)
    return {task.task_id for task in recovered}


def _drawn(pick: Choices, start: Start) -> Arguments:
    # The row of a worker was refreshed three seconds before the start.
    return {"seen": T0 - timedelta(seconds=pick.of((3, 3, 3, 4))), "delay_s": pick.of((0.0, 5.0))}


def _names(start: Start, arguments: Arguments) -> set[str]:
    return {row.id for row in start.tasks if row.is_held} | {f"worker {name}" for name in WORKERS} | {SWEEPER}


SWEEP_KINDS = (
    Kind(
        "sweep",
        _sweep,
        _drawn,
        _names,
        uses=(workers.try_lock, workers.forget, recovery.lock_claims, recovery.tell_owners, tasks.apply_kinds),
        skips=True,
        waits=False,
        statements=7,
    ),
)
