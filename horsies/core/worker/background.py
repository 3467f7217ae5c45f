"""What a worker does beside its own tasks: the recovery services and their intervals, and the scheduler if it has one.

Nothing here knows the worker's own tasks, children or claims. Short work shares one pool; a sweep keeps its connection
while hooks are called, so it has its own. The services themselves are in `recovery/` and `scheduler/`; `service.py`
runs their steps.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from random import uniform
from typing import TypeAlias

from horsies.core import loop
from horsies.core.db import AWAY, Connections, PoolTimeout
from horsies.core.recovery import apply, dead_workers, reaper, retention
from horsies.core.recovery.hooks import HookCaller
from horsies.core.recovery.sweep import Sweeper
from horsies.core.recovery.unknown_names import UnknownNames
from horsies.core.scheduler import payloads
from horsies.core.store import workers
from horsies.core.store.names import Known
from horsies.core.text import counted
from horsies.core.worker import fence, helper_calls, helper_process, publishing
from horsies.core.worker.config import Code, Identity, Plan
from horsies.core.workflows.advance import BuildLater

log = logging.getLogger("horsies.worker")
recovery_log = logging.getLogger("horsies.recovery")

NO_CODE = Code("", Known(frozenset(), ""))
MOST_LATE_S = 0.5  # so that the workers of a team do not ask for their turn at the same moment

Step: TypeAlias = Callable[[], Awaitable[None]]


class Rounds:
    """What the services are at: how many rounds are under way, and how many have begun so far. Each may enqueue tasks
    that this worker would run."""

    def __init__(self) -> None:
        self.under_way = self.begun = 0

    def of(self, step: Step) -> Step:
        """The same step, as a round."""

        async def counted() -> None:
            self.under_way += 1
            self.begun += 1
            try:
                await step()
            finally:
                self.under_way -= 1

        return counted


class LastLook:
    """Tells a worker that has nothing to do whether it may end (W-81). Its own recovery may just have enqueued
    something, whose notification has not come yet: so one more look for tasks has to find nothing, and no round and no
    task may have come since that look was asked for."""

    def __init__(self, rounds: Rounds, taken: Callable[[], int], look: Callable[[], None]) -> None:
        self._rounds, self._taken, self._look = rounds, taken, look
        self._seen: tuple[int, int] | None = None

    def found_nothing(self) -> bool:
        """To be asked whenever there is nothing to do; asks for another look if that is needed."""
        if self._rounds.under_way:
            return False
        before, self._seen = self._seen, (self._rounds.begun, self._taken())
        if before != self._seen:
            self._look()
        return before == self._seen


class RecoveryServices:
    """`steps` are the services, which the worker runs like its own, and `rounds` tells what they are at. `on_ended`
    gets tasks of workflows that were ended, `build_later` gets nodes whose child workflow has not been built."""

    def __init__(
        self,
        plan: Plan,
        me: Identity,
        *,
        pool: Connections,
        patient: Connections,
        hooks: HookCaller,
        pulse: fence.Pulse,
        on_ended: apply.OnEnded = apply.nobody,
        build_later: BuildLater | None = None,
        looks: Connections | None = None,
        is_idle: Callable[[], bool] = lambda: False,
        code: Callable[[], Code] = lambda: NO_CODE,
    ) -> None:
        self._pool, self._me, self._pulse, self._code = pool, me, pulse, code
        self._recovery, self._sweeping = plan.app.config.recovery, plan.recovery
        settings = (self._recovery, self._sweeping)
        self._looks = looks or pool
        self._dead_workers = dead_workers.DeadWorkers(
            pool, patient, me, *settings, hooks, pulse, on_ended=on_ended, looks=self._looks
        )
        self._reaper = reaper.Reaper(
            pool, *settings, hooks, me.worker_id, pulse, patient=patient, on_ended=on_ended, build_later=build_later,
            counted=plan.limits.counted, unknown=_unknown_names(plan, pool, code, on_ended, me.worker_id),
        )  # fmt: skip
        self._sweeper = Sweeper(patient, self._sweeping, self._recovery, hooks, me.worker_id, pulse, on_ended=on_ended)
        self.deadlines = reaper.Deadlines(self._looks, self._reaper, is_idle)
        self._retention = retention.Retention(pool, *settings, task_logs=plan.app.config.task_logs)
        self._publisher = publishing.Publisher(pool, lambda: code().catalogue)
        self.rounds = Rounds()

    def steps(self) -> list[tuple[str, Step]]:
        """The services by name."""
        check_s = self._recovery.check_interval_ms / 1000
        tick: Step = self._reaper.tick
        sweep: Step = self._sweeper.step
        a_round = self.rounds.of
        found: list[tuple[str, Step]] = []
        if self._recovery.use_liveness_evidence:
            watch = loop.every(dead_workers.LOOK_EVERY_S, a_round(self._dead_workers.watch), at_once=True)
            found.append(("dead workers", watch))
            tick, sweep = self._dead_workers.first(tick), self._dead_workers.first(sweep)
        found += [
            ("reaper", self._in_turn(check_s, a_round(tick))),
            ("expiry", self._expire),
            ("retention", loop.every(check_s, self._retention.step)),
            ("publisher", self._publish),
        ]
        if self._sweeping.enabled:
            found.append(("sweeper", loop.every(self._sweeping.sweep_interval.total_seconds(), a_round(sweep))))
        return [(name, harmless(name, step)) for name, step in found]

    async def _expire(self) -> None:
        await self.deadlines.until_due()
        await self.rounds.of(self.deadlines.look)()

    async def _publish(self) -> None:
        await self._publisher.wait()
        await self.rounds.of(self._publisher.publish)()

    def _in_turn(self, every_s: float, tick: Step) -> Step:
        """A tick at the start, and then one every `every_s` by some worker of the team (R-15). A worker that may not
        judge others by their silence (R-23) leaves that to its team, and makes the other passes itself."""
        pause: float | None = None

        async def step() -> None:
            nonlocal pause
            is_first = pause is None
            await asyncio.sleep(pause or 0.0)
            late_s = min(MOST_LATE_S, every_s / 10)
            pause = every_s + late_s  # whoever had the turn lets the others go first
            if self._pulse.may_judge():
                async with self._looks.connection() as conn:
                    age_s = await workers.take_turn(
                        conn, self._me.worker_id, self._code().team, 0 if is_first else every_s
                    )
                if age_s is not None:
                    pause = every_s - age_s + uniform(0.0, late_s)
                    return
            await tick()

        return step


def _unknown_names(
    plan: Plan, pool: Connections, code: Callable[[], Code], on_ended: apply.OnEnded, me: str
) -> UnknownNames | None:
    if not plan.leaves_unknown:
        return None
    grace = timedelta(milliseconds=plan.app.config.recovery.unknown_task_grace_ms)
    return UnknownNames(pool, plan.queues, grace, lambda: code().known, on_ended, me)


def schedule_steps(
    plan: Plan, pool: Connections, helper: helper_process.HelperChild, is_stopping: Callable[[], bool]
) -> list[tuple[str, Step]]:
    """The scheduler as one more service, on the connection for recovery; none if this worker does not schedule."""
    if not plan.config.with_scheduler:
        return []
    from horsies.core.scheduler import service

    config = payloads.require_schedule(plan.app.config)
    scheduler = service.Scheduler(config, pool, helper_calls.HelperPreparer(helper))
    count = counted(len(config.schedules), "schedule")
    log.info("this worker also runs the scheduler: %s in the code, a check every %g s", count, scheduler.interval_s)

    async def step() -> None:
        try:
            if is_stopping():  # the tasks of this worker may take long, so others send what becomes due
                await asyncio.Event().wait()
            await asyncio.sleep(await scheduler.step())
        except asyncio.CancelledError:
            scheduler.close()
            raise

    return [("scheduler", harmless("scheduler", step))]


def harmless(name: str, step: Step) -> Step:
    """The same step, except that a bug in it does not stop the worker's own tasks. Failures of the database are passed
    on."""

    async def guarded() -> None:
        try:
            await step()
        except PoolTimeout as problem:
            # Mostly a sweep keeps the connection while it calls slow hooks. This is not an outage (W-60).
            recovery_log.warning("%s had no connection and will be retried: %s", name, problem)
        except AWAY:
            raise
        except Exception:
            recovery_log.exception("%s failed", name)

    return guarded
