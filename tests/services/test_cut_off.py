"""Of which tasks recovery hooks hear after a forced shutdown (W-52, R-73): those whose code was cut off, no others."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection

from horsies import FailureReason, HookRegistry, JobInterrupted, PostgresConfig, TaskStatus
from horsies.core.db.connections import make_pool
from horsies.core.recovery.decide import crashed, not_charged
from horsies.core.recovery.hooks import InProcess
from horsies.core.store.tasks import Claimed
from horsies.core.tasks.moves import Claim, Complete, Fail, Move, Requeue
from horsies.core.worker.in_hand import HeldTask, InHand, Phase
from horsies.core.worker.shutdown import ForcedShutdown
from tests.factories import given_task


def crash(claim: Claim) -> Fail:
    return crashed(claim, "SHUTDOWN", "w1", "host", 1)


async def in_hand(hand: InHand, db: AsyncConnection[Any], phase: Phase) -> HeldTask:
    task_id = await given_task(db, status=TaskStatus.RUNNING)
    hand.take(Claimed(0, 100, None, task_id, 1, "t", "default", None, None, None, 0, 0, False, None), is_async=False)
    held = hand.held[task_id]
    held.phase = phase
    return held


async def test_w52_r73_hooks_hear_of_what_was_cut_off(db: AsyncConnection[Any], database_url: str) -> None:
    heard: list[JobInterrupted] = []
    hooks = HookRegistry()
    hooks.on(JobInterrupted, heard.append)
    hand = InHand()
    failed, retried, taken, finished, unstarted, unheard = [
        await in_hand(hand, db, phase) for phase in (*[Phase.STARTED] * 4, Phase.FED, Phase.FED)
    ]
    moves: list[tuple[HeldTask, Move, bool]] = [
        (failed, crash(failed.claim), True),
        (retried, not_charged(crash(retried.claim), 1.0), True),
        (taken, crash(taken.claim), False),  # somebody else has recovered it meanwhile
        (finished, Complete(finished.claim, "{}"), True),  # its result came at the last moment
        (unstarted, Requeue(unstarted.claim), True),
        (unheard, crash(unheard.claim), True),  # it had started, which its child had not sent yet
    ]
    pool = make_pool(PostgresConfig(database_url=database_url), min_size=0, max_size=1, name="test")
    try:
        cut = ForcedShutdown(pool, hand, InProcess(hooks))
        await cut.look()
    finally:
        await pool.close()
    for held, move, moved in moves:
        cut.settled(held, move, moved)
    await cut.tell()
    assert [(news.job.id, news.worker_id, news.reason) for news in heard] == [
        (failed.id, "w1", FailureReason.SHUTDOWN),
        (retried.id, "w1", FailureReason.SHUTDOWN),
        (unheard.id, "w1", FailureReason.SHUTDOWN),
    ]
