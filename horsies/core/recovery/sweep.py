"""Sweeping: returns the tasks of dead workers to the queue (R-44 to R-58, R-60 to R-63, R-68).

A sweep is a transaction of at most `STEP` tasks under the sweep lock, and another one while there are more. The dead
workers and their tasks are read without locks, because hooks are called next and take time; then the answers are
applied through `recover_tasks`, which skips everything that has changed in the meantime. Events follow the commit.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from time import monotonic
from typing import NamedTuple, TypeAlias

from horsies.core import events, hooks
from horsies.core.db import AWAY, Connection, Connections
from horsies.core.models.recovery import RecoveryConfig, SweepStaleWorkersResult, WorkerRecoveryConfig
from horsies.core.recovery import apply
from horsies.core.recovery.decide import SweepDecision, SweepDecisions, sweep_decisions
from horsies.core.recovery.hooks import SWEEP_S, HookCaller, NoHooks
from horsies.core.store import workers
from horsies.core.store.recovery import STEP
from horsies.core.store.task_reads import jobs as load_jobs
from horsies.core.store.workers import START, WHENEVER, Gone, OrphanedTask, SweepPosition
from horsies.core.tasks.moves import InFlight
from horsies.core.text import counted

log = logging.getLogger("horsies.recovery")

CRASHED = hooks.FailureReason.WORKER_CRASHED

Find: TypeAlias = Callable[[Connection], Awaitable[list[Gone]]]


async def sweep(
    pool: Connections,
    config: WorkerRecoveryConfig,
    recovery: RecoveryConfig,
    hook_caller: HookCaller,
    *,
    me: str,
    threshold: timedelta | None = None,
    delay: timedelta | None = None,
    dry_run: bool = False,
    pulse: apply.MayJudge | None = None,
    on_ended: apply.OnEnded = apply.nobody,
) -> SweepStaleWorkersResult:
    """One sweep now. A given `threshold` is used unchanged, whatever the workers' own settings say (R-63, R-94)."""

    async def find(conn: Connection) -> list[Gone]:
        found = await workers.dead(conn, me, config, recovery, threshold=threshold)
        return found if not found or await apply.is_really_silent(conn, pulse) else []

    if dry_run:  # no lock, no hooks, nothing changed
        async with pool.connection() as conn:
            return SweepStaleWorkersResult(worker_ids=sorted(one.worker_id for one in await find(conn)), dry_run=True)
    return await _Sweep(pool, hook_caller, me, _terms(config, delay), find, on_ended=on_ended).run()


async def sweep_abandoned(
    pool: Connections,
    config: WorkerRecoveryConfig,
    recovery: RecoveryConfig,
    hook_caller: HookCaller,
    *,
    me: str,
    pulse: apply.MayJudge | None = None,
    on_ended: apply.OnEnded = apply.nobody,
) -> SweepStaleWorkersResult:
    """Sweep workers that a sweeper should have swept long ago (R-68); `config` need not be enabled."""

    async def find(conn: Connection) -> list[Gone]:
        found = await workers.abandoned(conn, me, recovery)
        return found if not found or await apply.is_really_silent(conn, pulse) else []

    return await _Sweep(pool, hook_caller, me, _terms(config), find, on_ended=on_ended).run()


async def sweep_workers(
    pool: Connections,
    worker_ids: Sequence[str],
    config: WorkerRecoveryConfig,
    hook_caller: HookCaller,
    *,
    me: str,
    spare: Callable[[InFlight], bool] | None = None,
    on_ended: apply.OnEnded = apply.nobody,
) -> SweepStaleWorkersResult:
    """Sweep workers that are known to be dead: no threshold applies, and no task is deferred (R-100). Tasks in `spare`
    are left alone, and so is the row of their worker."""
    terms, find = _terms(config), _exactly(worker_ids)
    return await _Sweep(pool, hook_caller, me, terms, find, is_certain=True, spare=spare, on_ended=on_ended).run()


async def force_unlock(
    pool: Connections,
    worker_ids: Sequence[str],
    config: WorkerRecoveryConfig,
    *,
    me: str,
    on_ended: apply.OnEnded = apply.nobody,
) -> int:
    """Take all tasks from exactly these workers, dead or not, without hooks and without delay (R-96). Return how many
    tasks."""
    terms, find = _terms(config, timedelta(0)), _exactly(worker_ids)
    unlocking = _Sweep(pool, NoHooks(), me, terms, find, is_certain=True, is_exclusive=False, on_ended=on_ended)
    return (await unlocking.run()).recovered_count


class Sweeper:
    """The background service of a worker that has worker recovery enabled; `step` is called every `sweep_interval`."""

    def __init__(
        self,
        pool: Connections,
        config: WorkerRecoveryConfig,
        recovery: RecoveryConfig,
        hook_caller: HookCaller,
        me: str,
        pulse: apply.MayJudge,
        *,
        on_ended: apply.OnEnded = apply.nobody,
    ) -> None:
        self._pool = pool
        self._config = config
        self._recovery = recovery
        self._hook_caller = hook_caller
        self._me = me
        self._pulse = pulse
        self._on_ended = on_ended

    async def step(self) -> None:
        if not self._pulse.may_judge():
            return
        try:
            await sweep(
                self._pool, self._config, self._recovery, self._hook_caller,
                me=self._me, pulse=self._pulse, on_ended=self._on_ended,
            )  # fmt: skip
        except AWAY:
            raise
        except Exception:  # a mistake of ours must not stop the worker's own tasks
            log.exception("the sweep failed")


class _Terms(NamedTuple):
    delay_s: float
    most_recoveries: int | None


def _terms(config: WorkerRecoveryConfig, delay: timedelta | None = None) -> _Terms:
    wanted = config.recovery_delay if delay is None else delay
    return _Terms(wanted.total_seconds(), config.max_recoveries_per_task)


def _exactly(worker_ids: Sequence[str]) -> Find:
    named = [Gone(worker_id, WHENEVER) for worker_id in sorted(set(worker_ids))]

    async def find(conn: Connection) -> list[Gone]:
        return named

    return find


@dataclass(frozen=True, slots=True)
class _Batch:
    """What one transaction has done."""

    dead: set[str] = field(default_factory=set)
    recovered: list[InFlight] = field(default_factory=list)
    views: Mapping[str, hooks.Job] = field(default_factory=dict)
    skipped: int = 0
    deferred: int = 0
    has_more: bool = False


@dataclass
class _Sweep:
    """One sweep, from the first transaction to the last event."""

    pool: Connections
    hook_caller: HookCaller
    me: str
    terms: _Terms
    find: Find
    is_certain: bool = False  # the workers that are found are dead and cannot come back
    is_exclusive: bool = True  # the sweep holds the sweep lock
    spare: Callable[[InFlight], bool] | None = None
    on_ended: apply.OnEnded = apply.nobody
    has_lock: bool = False
    recovered: int = 0
    skipped: int = 0
    deferred: int = 0
    dead: set[str] = field(default_factory=set)
    _asking_s: float = SWEEP_S  # the time that is left for hooks
    _known: dict[str, Gone] | None = None  # the workers that the first transaction found
    _until: datetime | None = None  # the time of the first transaction
    _after: SweepPosition = START
    _keeping: set[str] = field(default_factory=set)  # workers of which a task was spared

    async def run(self) -> SweepStaleWorkersResult:
        try:
            while await self._step():
                pass
        except Exception:
            await self._tell_of_workers()  # hooks hear of what is committed
            raise
        await self._tell_of_workers()
        return SweepStaleWorkersResult(
            self.recovered, sorted(self.dead), self.skipped, self.deferred, lock_acquired=self.has_lock
        )

    async def _step(self) -> bool:
        """One transaction and its events; return whether another should follow."""
        async with self.pool.connection() as conn, conn.transaction():
            batch = await self._transaction(conn)
        self.dead |= batch.dead
        self.recovered += len(batch.recovered)
        self.skipped += batch.skipped
        self.deferred += batch.deferred
        self.on_ended(apply.of_workflows(batch.recovered))
        interrupted = [batch.views[task.task_id] for task in batch.recovered if task.task_id in batch.views]
        if interrupted and self.hook_caller.has(hooks.JobInterrupted):
            await self.hook_caller.interrupted(interrupted, reason=CRASHED)
        return batch.has_more

    async def _tell_of_workers(self) -> None:
        if self.dead:
            events.emit("workers.swept", workers=len(self.dead), tasks=self.recovered)
            tasks = counted(self.recovered, "task")
            log.info("swept %s: %s recovered", ", ".join(sorted(self.dead)), tasks)
            await self.hook_caller.recovered(recovering=self.me, dead=sorted(self.dead), jobs_recovered=self.recovered)

    async def _transaction(self, conn: Connection) -> _Batch:
        now = await self._begin(conn)
        gone = self._same(await self.find(conn)) if now is not None else []
        if now is None or not gone:
            return _Batch()
        self._until = self._until or now
        held = await workers.held(conn, gone, until=self._until, after=self._after)
        self._after = held[-1].place if held else self._after
        offered = self._offered(held)
        views = await self._views(conn, offered)
        decisions = await self._decisions(offered, views)
        is_over = len(held) < STEP or None in decisions.values()  # there are no more, or there is no time for more
        dead = await self._delete_dead_rows(conn, gone, is_over=is_over)
        offered = [task for task in offered if task.task_id in decisions and task.worker_id in dead]
        now, age_s = await workers.clock(conn) if views else (now, 0.0)
        found = sweep_decisions(offered, decisions, now=now, age_s=age_s, delay_s=self.terms.delay_s)
        recovered, refused = await self._recover(conn, found)
        deferred = sum(one.is_deferred and one.task.worker_id in dead for one in held) + len(found.unasked)
        return _Batch(dead, recovered, views, len(found.skipped) + refused, deferred, has_more=not is_over)

    async def _begin(self, conn: Connection) -> datetime | None:
        """The time of the transaction; None if another process is sweeping."""
        if not self.is_exclusive:
            return (await workers.clock(conn))[0]
        now = await workers.try_lock(conn)
        self.has_lock = self.has_lock or now is not None
        return now

    def _same(self, found: list[Gone]) -> list[Gone]:
        """The workers of the first transaction, with the settings of that time: a worker's own settings are gone with
        its row, and the tasks of workers found later may be behind the current position."""
        if self._known is None:
            self._known = {one.worker_id: one for one in found}
        return [self._known[one.worker_id]._replace(seen=one.seen) for one in found if one.worker_id in self._known]

    def _offered(self, held: Sequence[OrphanedTask]) -> list[InFlight]:
        tasks = [one.task for one in held if not one.is_deferred]
        if self.spare is None:
            return tasks
        spared = {task.task_id for task in tasks if self.spare(task)}
        self._keeping |= {task.worker_id for task in tasks if task.task_id in spared}
        return [task for task in tasks if task.task_id not in spared]

    async def _views(self, conn: Connection, offered: Sequence[InFlight]) -> dict[str, hooks.Job]:
        """The tasks as hooks see them, if there are hooks; they are loaded now, while their owners are known."""
        if not offered or not (self.hook_caller.has(hooks.JobRecovery) or self.hook_caller.has(hooks.JobInterrupted)):
            return {}
        return {job.id: job for job in await load_jobs(conn, [task.task_id for task in offered])}

    async def _decisions(
        self, offered: Sequence[InFlight], views: Mapping[str, hooks.Job]
    ) -> dict[str, hooks.Decision | None]:
        """Decisions for the tasks that have not changed; the others need nothing any more."""
        if not self.hook_caller.has(hooks.JobRecovery):
            return {task.task_id: hooks.JobRecoveryResult.Default for task in offered}
        asked = [
            view
            for task in offered
            if (view := views.get(task.task_id)) and (view.worker_id, view.status) == (task.worker_id, task.status)
        ]
        if not asked:
            return {}
        began = monotonic()
        answers = await self.hook_caller.decide(asked, recovering=self.me, reason=CRASHED, within_s=self._asking_s)
        self._asking_s = max(0.0, self._asking_s - (monotonic() - began))
        return dict(zip((view.id for view in asked), answers, strict=True))

    async def _delete_dead_rows(self, conn: Connection, gone: Sequence[Gone], *, is_over: bool) -> set[str]:
        """Delete the rows of the dead workers, and return which are really dead. A worker that was judged by its
        silence may have come back while the hooks were called; it keeps its tasks."""
        if not self.is_certain:
            return await workers.forget(conn, gone)
        if is_over:
            await workers.forget(conn, [one for one in gone if one.worker_id not in self._keeping])
        return {one.worker_id for one in gone}

    async def _recover(self, conn: Connection, found: SweepDecisions) -> tuple[list[InFlight], int]:
        """Apply the decisions; return which tasks were recovered, and how many the database refused."""
        recovered: list[InFlight] = []
        refused: list[InFlight] = []

        async def recover(tasks: Sequence[InFlight], verdict: SweepDecision) -> list[InFlight]:
            return await apply.recover_tasks(
                conn, tasks, verdict.action, "its worker is gone", self.me,
                delay_s=verdict.delay_s, attempts=verdict.attempts, most_recoveries=self.terms.most_recoveries,
            )  # fmt: skip

        for verdict, tasks in found.groups.items():
            step = partial(recover, verdict=verdict)
            recovered += await apply.recover_in_parts(tasks, step, lambda: nullcontext(conn), refused.append)
        return recovered, len(refused)
