"""The reaper: every worker's regular search for tasks and workflows without an active owner (R-15 to R-18, R-23).

A tick is a list of passes. Each works in small steps, every step is a separate transaction that skips locked rows, so
any number of reapers may work at the same time. Full retention (R-80) is a separate service: it may take a minute, and
stale tasks must not wait for it. `Deadlines` runs beside the ticks. Which worker of a team makes a tick is decided in
`worker/background.py`.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from datetime import timedelta
from functools import partial
from random import uniform
from time import monotonic
from typing import TypeAlias

import psycopg

from horsies.core import events, logs
from horsies.core.db import AWAY, Connection, Connections, by_halves, describe, is_about_content, mending
from horsies.core.models.recovery import RecoveryConfig, WorkerRecoveryConfig
from horsies.core.recovery import apply, hooks, retention
from horsies.core.recovery.reconcile import Reconciler
from horsies.core.recovery.sweep import sweep_abandoned
from horsies.core.recovery.unknown_names import UnknownNames
from horsies.core.store import caps, odd_rows, rollup, tasks, workers
from horsies.core.store.recovery import STEP, Expired, expire_waiting, is_any_workflow_open, overdue
from horsies.core.text import counted
from horsies.core.types import TaskStatus
from horsies.core.workflows.advance import BuildLater

log = logging.getLogger("horsies.recovery")

PASS_S = 10.0  # for each pass of a tick
EXPIRY_S = 1.0
MOST_SHARES = 5  # of the looks for what has expired: if the other workers die, this one looks again soon
IDLE_S = 6.0  # a little longer than the default of `notify_poll_interval_ms`, after which the worker looks ahead
UNUSED = timedelta(days=1)  # a queue for which no worker has had a cap for so long is not counted any more (D-56)
FORGET_EVERY, PRUNE_EVERY = 4, 20  # ticks: what is outdated there does no harm
MOST_IN_PARTS = 5_000  # tasks past their deadline, if one of them is refused

Pass: TypeAlias = Callable[[], Awaitable[None]]


class Reaper:
    """`tick` makes every pass once; `expire` and `expire_workflows` are also called separately, more often. `patient`
    lends the connection that is kept while hooks are called. `on_ended` gets tasks of workflows that a pass has ended,
    `build_later` gets nodes whose child workflow has not been built. `counted` are the queues with a cap in this
    worker, `unknown` ends tasks that nobody knows."""

    def __init__(
        self,
        pool: Connections,
        recovery: RecoveryConfig,
        worker_recovery: WorkerRecoveryConfig,
        hook_caller: hooks.HookCaller,
        me: str,
        pulse: apply.MayJudge,
        *,
        patient: Connections | None = None,
        on_ended: apply.OnEnded = apply.nobody,
        build_later: BuildLater | None = None,
        counted: Sequence[str] = (),
        unknown: UnknownNames | None = None,
        pass_s: float = PASS_S,
    ) -> None:
        self._pool = pool
        self._patient = patient or pool
        self._recovery = recovery
        self._sweeping = worker_recovery
        self._hook_caller = hook_caller
        self._me = me
        self._pulse = pulse
        self._pass_s = pass_s
        self._counted = counted
        self._unknown = unknown
        self._on_ended = on_ended
        grace = timedelta(milliseconds=recovery.crashed_worker_recovery_grace_ms)
        self._reconciler = Reconciler(pool, None, grace, build_later=build_later)
        self._retention = retention.Retention(pool, recovery, worker_recovery)
        self._failures: dict[str, int] = {}
        self._odd = odd_rows.OddSearch(pool)
        self._refusals: Counter[str] = Counter()  # by task, of the last pass
        self._ticks = 0
        self._has_workflows = True  # or not, as the pass over nodes has just found
        self._gauges_due = 0.0

    @property
    def passes(self) -> Iterator[tuple[str, Pass]]:
        """What a tick does, in order (R-16)."""
        yield "expiry", self.expire
        if self._recovery.auto_requeue_stale_claimed:
            yield "stale claims", self.requeue_claimed
        if self._recovery.auto_fail_stale_running:
            yield "stale runs", self.end_running
        yield "abandoned workers", self.sweep_abandoned
        if self._unknown is not None:
            yield "unknown names", self.end_unknown
            if self._ticks % PRUNE_EVERY == 0:
                yield "known names", self.prune_names
        # These follow the passes that end tasks, in this order: nodes are settled before their workflow is ended.
        yield "nodes of workflows", self.reconcile
        yield "ends of workflows", self.end_workflows
        yield "heartbeats", self.prune_heartbeats
        if self._ticks % FORGET_EVERY == 0:
            yield "doorbell", self.forget_sleepers
        yield "caps", self.check_counts
        if monotonic() >= self._gauges_due:
            yield "gauges", self.note_gauges

    async def tick(self) -> None:
        """Make every pass once. A pass that fails is logged and does not stop the next."""
        # First, because a row that is outside the limits would be in the way of each of them.
        for name, run in (("odd rows", self.mend_in_flight), *self.passes):
            try:
                await run()
            except Exception as problem:
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise  # the pass failed because this service is being ended
                self._failed(name, problem)
            else:
                self._failures.pop(name, None)
        self._ticks += 1

    async def mend_in_flight(self) -> None:
        """Mend or set aside tasks in flight whose row is outside the limits (D-14), because nothing could recover them
        later (L-19a). Those that wait are found by the claim that fails because of them."""
        self._tell_of(await odd_rows.set_aside_odd(self._pool, with_waiting=False))

    async def _set_aside_odd(self) -> bool:
        aside = await self._odd.set_aside()
        self._tell_of(aside)
        return bool(aside)

    def _tell_of(self, aside: Sequence[odd_rows.OddTask]) -> None:
        self._on_ended((task.claim.task_id, task.workflow_id) for task in aside if task.workflow_id is not None)

    async def expire(self) -> None:
        """Expire waiting tasks past their deadline (L-07); at the head of a queue, every claim would have to skip
        them."""
        names, until = Counter[tuple[str, str]](), self._deadline()
        try:
            while True:
                expired = await mending(self._expire, self._set_aside_odd)
                names.update((task.queue_name, task.task_name) for task in expired)
                if len(expired) < STEP or monotonic() >= until:
                    break
        except psycopg.Error as problem:
            if not is_about_content(problem):
                raise
            names += await self._expire_in_parts(until)
        if total := names.total():
            events.emit("tasks.expired", count=total, by=self._me, names=names)
            log.info("%s expired: past the deadline and not claimed yet", counted(total, "waiting task"))

    async def _expire(self, only: Sequence[str] | None = None) -> set[Expired]:
        async with self._pool.connection() as conn:
            expired = await expire_waiting(conn, STEP, only)
        self._on_ended(apply.of_workflows(expired))
        return expired

    async def _expire_in_parts(self, until: float) -> Counter[tuple[str, str]]:
        """The database refuses to expire some task, and nothing is outside the limits. That task is left (L-19a)."""
        async with self._pool.connection() as conn:
            ids = [row["id"] for row in await overdue(conn, MOST_IN_PARTS)]
        known, self._refusals = self._refusals, Counter()
        refused, names = partial(self._refused, known), Counter[tuple[str, str]]()
        for place in range(0, len(ids), STEP):
            part = ids[place : place + STEP]
            parts = await by_halves(part, self._expire, is_refusal=is_about_content, give_up=refused)
            names.update((task.queue_name, task.task_name) for part_done in parts for task in part_done)
            if monotonic() >= until:
                break
        return names

    def _refused(self, known: Counter[str], task_id: str, problem: Exception) -> None:
        count = self._refusals[task_id] = known[task_id] + 1
        if logs.is_worth_a_line(count):
            facts = {"horsies": {"task_id": task_id}}
            log.error("a task past its deadline cannot be expired: %s", describe(problem), extra=facts)

    async def requeue_claimed(self) -> None:
        """Return stale CLAIMED tasks to the queue, because their code never started (R-19)."""
        await self._recover(TaskStatus.CLAIMED)

    async def end_running(self) -> None:
        """Retry or fail stale RUNNING tasks, each by its own policy (R-20)."""
        await self._recover(TaskStatus.RUNNING)

    async def sweep_abandoned(self) -> None:
        """Sweep dead workers with worker recovery that no sweeper has handled (R-68)."""
        if not self._pulse.may_judge():
            return
        # Look first without the sweep lock, which would be in the way of a sweeper at every tick.
        async with self._pool.connection() as conn:
            found = await workers.abandoned(conn, self._me, self._recovery)
        if found:
            await sweep_abandoned(
                self._patient, self._sweeping, self._recovery, self._hook_caller,
                me=self._me, pulse=self._pulse, on_ended=self._on_ended,
            )  # fmt: skip

    async def end_unknown(self) -> None:
        """Fail waiting tasks that no live worker has known for too long (O-31)."""
        if (
            self._unknown is not None and self._pulse.may_judge()
        ):  # the workers that know them may be cut off too
            await self._unknown.end_orphans(self._deadline())

    async def expire_workflows(self) -> None:
        """End workflows past their deadline (F-96), as often as tasks; otherwise some of their nodes would expire
        earlier than others."""
        await self._reconciler.expire(self._deadline())

    async def reconcile(self) -> None:
        """Repair nodes that nothing moves any more (R-30 to R-35)."""
        async with self._pool.connection() as conn:
            self._has_workflows = await is_any_workflow_open(conn)
        if self._has_workflows:
            await self._reconciler.reconcile(self._deadline())

    async def end_workflows(self) -> None:
        """End workflows past their deadline, and workflows whose nodes have all ended (R-36, R-38)."""
        if self._has_workflows:
            await self._reconciler.end_workflows(self._deadline())
        self._has_workflows = True

    async def prune_heartbeats(self) -> None:
        """Delete heartbeats that are no longer needed (R-81)."""
        await self._retention.prune_heartbeats(self._deadline())

    async def forget_sleepers(self) -> None:
        """Delete rows of the waiting list whose time is over, because the processes that wrote them have died."""
        await self._while_there_is_more(workers.forget_sleepers)

    async def prune_names(self) -> None:
        """Delete what was noted about names and left tasks, and is not needed any more."""
        if self._unknown is not None:
            await self._while_there_is_more(self._unknown.prune)

    async def _while_there_is_more(self, delete_some: Callable[[Connection], Awaitable[bool]]) -> None:
        until = self._deadline()
        async with self._pool.connection() as conn:
            while await delete_some(conn) and monotonic() < until:
                pass

    async def check_counts(self) -> None:
        """See to it that the count of each queue with a cap is right (D-56), and that it stays short."""
        async with self._pool.connection() as conn:
            if not await caps.is_counting(conn):
                return
            for queue, held, running in await caps.compare(conn):
                log.warning(
                    "the count of tasks in flight of %s was wrong, by %d in flight and %d of them running, and is "
                    "corrected; were the triggers of horsies_tasks switched off?",
                    "all queues" if queue == caps.ALL else f"queue {queue!r}", -held, -running,
                )  # fmt: skip
            await caps.fold(conn, None, self._counted)
            await caps.stop_counting(conn, UNUSED)

    async def note_gauges(self) -> None:
        """Note what waits and runs, once a minute (D-59). The next minute is not begun earlier than it begins."""
        async with self._pool.connection() as conn:
            self._gauges_due = monotonic() + await rollup.note_gauges(conn)

    async def _recover(self, status: TaskStatus) -> None:
        if not self._pulse.may_judge():  # the silence may be the fault of the database
            return
        until = self._deadline()
        recovering = apply.recover_stale(
            self._pool, status, self._recovery, self._sweeping, self._hook_caller, me=self._me, pulse=self._pulse
        )
        async with aclosing(recovering) as steps:
            async for recovered in steps:
                self._on_ended(apply.of_workflows(recovered))
                if monotonic() >= until or not self._pulse.may_judge():
                    return

    def _deadline(self) -> float:
        return monotonic() + self._pass_s

    def _failed(self, name: str, problem: Exception) -> None:
        failures = self._failures[name] = self._failures.get(name, 0) + 1
        if not isinstance(problem, AWAY):
            log.error("reaper: the pass over %s failed", name, exc_info=problem)
            return
        level = logging.WARNING if logs.is_worth_a_line(failures) else logging.DEBUG
        log.log(level, "reaper: the pass over %s failed and will be retried: %s", name, describe(problem))


class Deadlines:
    """Expires tasks and workflows when their deadlines pass, not only at ticks: at the head of a queue, overdue tasks
    would be in the way of every claim. `until_due` sleeps until the next known deadline, or until it is time to `look`
    for new ones. A worker that is idle looks ahead anyway before it sleeps (`saw`), and then this costs nothing; while
    it is busy, it takes its share of one look a second."""

    def __init__(self, pool: Connections, reaper: Reaper, is_idle: Callable[[], bool] = lambda: False) -> None:
        self._pool = pool
        self._reaper = reaper
        self._is_idle = is_idle
        self._passed = monotonic()
        self._due = self._passed + EXPIRY_S
        self._is_changed = asyncio.Event()

    async def look(self) -> None:
        self._passed = monotonic()
        async with self._pool.connection() as conn:
            ahead = await tasks.look_ahead(conn)
        self.saw(ahead)
        if ahead.workflows_s == 0:
            await self._reaper.expire_workflows()
        if ahead.tasks_s == 0:
            await self._reaper.expire()

    def saw(self, ahead: tasks.Outlook) -> None:
        """Somebody has looked ahead."""
        now = monotonic()
        pause = pause_before_look(ahead, is_idle=self._is_idle())
        # Those who know of the same deadline do not come at the same moment.
        pause += uniform(0.0, EXPIRY_S * (1 - 1 / max(1, ahead.workers))) if pause else 0.0
        self._due = max(self._passed + EXPIRY_S, now + pause)
        self._is_changed.set()

    async def until_due(self) -> None:
        while (pause := self._due - monotonic()) > 0:
            self._is_changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._is_changed.wait()


def pause_before_look(ahead: tasks.Outlook, *, is_idle: bool) -> float:
    """When to look again for what has expired. A deadline that is known is not missed; one that is set later is found
    by the next look, of this worker or of another."""
    share_s = EXPIRY_S * min(max(1, ahead.workers), MOST_SHARES)
    known = [seconds for seconds in (ahead.tasks_s, ahead.workflows_s) if seconds is not None]
    return min([IDLE_S if is_idle else share_s, *known])
