"""The functions of `horsies.monitoring`."""

from __future__ import annotations

from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.monitoring.actions import TaskActionResult


async def cancel_task(broker: PostgresBroker, task_id: str, *, include_running: bool = False) -> TaskActionResult:
    """Cancel a task that has not ended. A running task is cancelled only with `include_running`; its code is then
    stopped."""
    return await broker.cancel_task_async(task_id, include_running=include_running)
