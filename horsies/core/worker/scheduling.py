"""A worker with a scheduler: the scheduler as one more of its services, on the connection for recovery."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from horsies.core import logs
from horsies.core.recovery.connections import Connections
from horsies.core.scheduler.checks import require_schedule
from horsies.core.scheduler.service import Scheduler
from horsies.core.worker.caretaker import Step, harmless
from horsies.core.worker.helper_child import HelperChild
from horsies.core.worker.helper_preparer import HelperPreparer
from horsies.core.worker.plan import Plan

log = logging.getLogger("horsies.worker")


def schedule_steps(
    plan: Plan, pool: Connections, helper: HelperChild, is_stopping: Callable[[], bool]
) -> list[tuple[str, Step]]:
    """The service by name; none if this worker does not schedule."""
    if not plan.config.with_scheduler:
        return []
    config = require_schedule(plan.app.config)
    scheduler = Scheduler(config, pool, HelperPreparer(helper))
    count = logs.counted(len(config.schedules), "schedule")
    log.info("this worker also runs the scheduler: %s in the code, a check every %g s", count, scheduler.interval_s)

    async def step() -> None:
        try:
            if is_stopping():  # its tasks may take long: what becomes due meanwhile is for others, or for later
                await asyncio.Event().wait()
            await asyncio.sleep(await scheduler.step())
        except asyncio.CancelledError:
            scheduler.close()
            raise

    return [("scheduler", harmless("scheduler", step))]
