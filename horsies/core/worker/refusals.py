"""Claims although the database refuses the claim of some task (L-19a), and returns claims whose reply was lost (W-21).

The claim chooses its own rows, so a refusal does not say which one is at fault. First, rows outside the limits are set
aside. If there are none, somebody's trigger or constraint refuses a task: then tasks are claimed by their ids, in
smaller and smaller parts, until the refused ones are left. These are skipped. One that is refused again after others
were claimed is set aside. If no task is accepted, somebody may have stopped all claims on purpose, and failing the
queue would be wrong. What cannot be set aside is skipped for as long as the claim as a whole is refused.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import psycopg

from horsies.core import logs
from horsies.core.db import Connection, Pool, by_halves, describe, is_about_content, is_about_one, mending
from horsies.core.store import holds, odd_rows, tasks
from horsies.core.store.odd_rows import OddTask
from horsies.core.tasks.moves import Claim, Requeue
from horsies.core.worker.in_hand import InHand

log = logging.getLogger("horsies.worker")

LOOK_AT = 1_000  # tasks that wait, in one pass
MOST = 50  # refused tasks that one pass looks for
LOOKS_S = (1.0, 2.0, 4.0, 8.0, 16.0)  # between the looks for claims whose reply was lost
LOST_DELAY_S = 2.0
WORKING_S = 0.5  # the same while a lost session works

Rows: TypeAlias = list[tasks.Claimed]


class Refusals:
    """`claim` and `claim_lapsed` take over when such a statement has failed, and `forget` is called when a claim has
    succeeded again. `claim_some` claims, all that the order allows or only the named ones; `next_order` says what there
    is room for now."""

    def __init__(
        self,
        pool: Pool,
        claim_some: Callable[[tasks.ClaimOrder, Sequence[str] | None], Awaitable[Rows]],
        next_order: Callable[[], tasks.ClaimOrder | None],
        on_ended: Callable[[str, str], None],
    ) -> None:
        self._pool = pool
        self._odd = odd_rows.OddSearch(pool)
        self._claim_some = claim_some
        self._next_order = next_order
        self._on_ended = on_ended
        self._skipped: dict[str, OddTask] = {}  # refused
        self._passed: set[str] = set()  # those of them after which others were claimed
        self._stuck: set[str] = set()  # those that could not even be set aside
        self._failures = 0
        self.are_known = False

    def forget(self) -> None:
        self._skipped, self._passed, self._stuck, self.are_known = {}, set(), set(), False

    async def claim(self, order: tasks.ClaimOrder) -> Rows:
        try:
            rows = await mending(lambda: self._claim_some(order, None), self._mend)
        except psycopg.Error as problem:
            if not is_about_content(problem):
                raise
            self.are_known = True
            return await self._claim_in_parts(order.queues, problem)
        self.forget()
        return rows

    async def claim_lapsed(self, act: Callable[[], Awaitable[Rows]]) -> Rows:
        """If one of them is refused, all are left to the reaper, which handles each by itself (R-19)."""
        try:
            return await mending(act, self._mend)
        except psycopg.Error as problem:
            if not is_about_content(problem):
                raise
            self._failures += 1
            if logs.is_worth_a_line(self._failures):
                log.error("claims whose lease ran out cannot be taken over: %s", describe(problem))
            return []

    async def _mend(self) -> bool:
        if self._skipped or self._stuck:  # it is known who is refused; a search through the whole queue finds nothing
            return False
        aside = await self._odd.set_aside()
        self._tell(aside)
        return bool(aside)

    async def _claim_in_parts(self, queues: list[str], problem: psycopg.Error) -> Rows:
        rows, refused = await self._claim_each([task for id_, task in self._skipped.items() if id_ in self._passed])
        await self._set_aside(refused)
        async with self._pool.connection() as conn:
            due = await odd_rows.find_due(conn, queues, [*self._skipped, *self._stuck], LOOK_AT)
        claimed, refused = await self._claim_each(due)
        rows += claimed
        for row in rows:
            self._skipped.pop(row.id, None)
        if not rows and len(refused) >= MOST:
            raise problem
        for task in refused:
            self._skipped[task.claim.task_id] = task
            log.warning("a task is skipped: %s", task.reason, extra={"horsies": task.facts})
        self._passed = set(self._skipped) if rows else self._passed
        return rows

    async def _claim_each(self, found: Sequence[OddTask]) -> tuple[Rows, list[OddTask]]:
        """Claim these as far as there is room; also return those that are refused, each with the reason."""
        refused: list[OddTask] = []

        async def claim(part: Sequence[OddTask]) -> Rows:
            order = self._next_order() if len(refused) < MOST else None
            return await self._claim_some(order, [task.claim.task_id for task in part]) if order else []

        def give_up(task: OddTask, why: Exception) -> None:
            refused.append(task._replace(reason=f"the database refuses its claim: {describe(why)}"))

        parts = await by_halves(found, claim, is_refusal=is_about_content, give_up=give_up)
        return [row for part in parts for row in part], refused

    async def _set_aside(self, found: Sequence[OddTask]) -> None:
        if not found:
            return
        async with self._pool.connection() as conn:
            aside = await odd_rows.set_aside(conn, found)
        for task in found:
            del self._skipped[task.claim.task_id]
        self._stuck |= {task.claim.task_id for task in found} - {task.claim.task_id for task in aside}
        self._tell(aside)

    def _tell(self, aside: Sequence[OddTask]) -> None:
        for task in aside:
            if task.workflow_id is not None:
                self._on_ended(task.claim.task_id, task.workflow_id)


class UnknownClaims:
    """After a claim whose reply was lost, the database may have given the worker tasks that it does not know of (W-21).
    So it may have after a claim that was no longer its own: if a crash of the server lost that claim, and the task was
    claimed again under the same number, the new claim was dropped with the old one (L-03).

    One look is not enough: a statement whose connection is lost goes on, and may commit after it. So there are more, at
    growing pauses, and for as long as that session works or a row could not be returned. `on_due` is called when it is
    time for the next one."""

    def __init__(self, pool: Pool, worker_id: str, in_hand: InHand, on_due: Callable[[], None]) -> None:
        self._pool = pool
        self._worker_id = worker_id
        self._in_hand = in_hand
        self._on_due = on_due
        self._sessions: set[int] = set()  # lost ones that may still be at work
        self._looks = 0  # since the last suspicion
        self._delay_s: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.are_possible = False  # it is time to look

    def suspect(self, session: int | None = None) -> None:
        """There may be some, from now on, and also later if this session was lost."""
        if session is not None:
            self._sessions.add(session)
        # A task whose claim was not ours must not be claimed and lost again at once: others have a turn.
        self._delay_s = None if session is not None else LOST_DELAY_S
        self._looks, self.are_possible = 0, True

    async def hand_back(self) -> None:
        """Return them to the queue. None of them has begun."""
        if not self.are_possible:
            return
        self.are_possible = False  # first, so that a suspicion that comes up meanwhile counts for the next look
        try:
            async with self._pool.connection() as conn:
                if self._sessions:  # asked before the look, which then sees what they have committed
                    self._sessions = await holds.working_sessions(conn, self._sessions)
                is_done = await self._return(conn)
        except BaseException:
            self.are_possible = True
            raise
        if self._sessions or not is_done or self._looks < len(LOOKS_S):
            self._look_again(WORKING_S if self._sessions else LOOKS_S[min(self._looks, len(LOOKS_S) - 1)])

    async def hand_back_all(self) -> None:
        """The same for a worker that leaves: it does not look again later, so it waits for lost sessions to end."""
        await self.hand_back()
        while self._sessions:
            await asyncio.sleep(WORKING_S / 5)
            self.are_possible = True
            await self.hand_back()

    def _look_again(self, pause: float) -> None:
        self._looks += 1
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(pause, self._is_time)

    def _is_time(self) -> None:
        self.are_possible = True
        self._on_due()

    async def _return(self, conn: Connection) -> bool:
        """Whether all could be returned."""
        unknown = await holds.unknown_claims(conn, self._worker_id, [held.claim for held in self._in_hand])
        if not unknown:
            return True
        log.info("returning %d claims to the queue because the reply to the claim was lost", len(unknown))
        left: list[Claim] = []

        def leave(claim: Claim, problem: Exception) -> None:
            left.append(claim)
            facts = {"horsies": {"task_id": claim.task_id}}
            log.warning("a claim cannot be returned now and will be retried: %s", describe(problem), extra=facts)

        await by_halves(
            unknown,
            lambda part: tasks.apply(conn, self._worker_id, [Requeue(claim, self._delay_s) for claim in part]),
            is_refusal=is_about_one,
            give_up=leave,
        )
        return not left
