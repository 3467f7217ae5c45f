"""Claims although the database refuses the claim of some task (L-19a), and returns claims whose reply was lost (W-21).

The claim chooses its own rows, so a refusal does not say which one is at fault. First, rows outside the limits are set
aside. If there are none, somebody's trigger or constraint refuses a task: then tasks are claimed by their ids, in
smaller and smaller parts, until the refused ones are left. These are skipped. One that is refused again after others
were claimed is set aside. If no task is accepted, somebody may have stopped all claims on purpose, and failing the
queue would be wrong. What cannot be set aside is skipped for as long as the claim as a whole is refused.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeAlias

import psycopg

from horsies.core import logs
from horsies.core.db import Pool, by_halves, describe, is_about_content, is_about_one, mending
from horsies.core.store import odd_rows, tasks
from horsies.core.store.odd_rows import OddTask
from horsies.core.tasks.moves import Claim, Requeue

log = logging.getLogger("horsies.worker")

LOOK_AT = 1_000  # tasks that wait, in one pass
MOST = 50  # refused tasks that one pass looks for

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


async def return_unknown_claims(pool: Pool, worker_id: str, known: Collection[Claim]) -> None:
    """Return claims that belong to this worker according to the database, and of which it does not know (W-21)."""
    async with pool.connection() as conn:
        unknown = [claim for claim in await tasks.unknown_claims(conn, worker_id) if claim not in known]
        if unknown:
            log.info("returning %d claims to the queue because the reply to the claim was lost", len(unknown))
            await by_halves(
                unknown,
                lambda part: tasks.apply(conn, worker_id, [Requeue(claim) for claim in part]),
                is_refusal=is_about_one,
                give_up=_left_behind,
            )


def _left_behind(claim: Claim, problem: Exception) -> None:
    facts = {"horsies": {"task_id": claim.task_id}}
    log.warning("a claim cannot be returned, and is left until its lease runs out: %s", describe(problem), extra=facts)
