"""Sends what the plan says, through the public interface, over connections that break now and then. A send that failed
is repeated as the documentation says until it has succeeded, so that in the end each is known to be there, once.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from horsies import INFRASTRUCTURE_RESILIENT_FLAG, Err, Horsies, Ok, TaskHandle
from tests.chaos.history import Cancelled, Sent
from tests.chaos.plan import Act

AGAIN_S = 0.2


class Producer:
    """`run` the plan; `sent`, `cancelled` are what came of it."""

    def __init__(self, app: Horsies) -> None:
        self._app = app
        self.sent: list[Sent] = []
        self.cancelled: list[Cancelled] = []
        self.unsent: list[str] = []  # why a send failed for good
        self._under_way: set[asyncio.Task[None]] = set()

    async def run(self, acts: list[Act], begin: float) -> None:
        for act in acts:
            await asyncio.sleep(max(0.0, begin + act.at - time.monotonic()))
            task = asyncio.create_task(self._do(act))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def finish(self) -> None:
        if self._under_way:
            await asyncio.gather(*self._under_way)

    async def _do(self, act: Act) -> None:
        if act.count > 1:
            await self._send_many(act)
            return
        handle = await self._send(act)
        if handle is not None and act.cancel is not None:
            after_s, include_running = act.cancel
            await asyncio.sleep(after_s)
            result = await self._app.get_broker().cancel_task_async(handle.task_id, include_running=include_running)
            self.cancelled.append(Cancelled(handle.task_id, time.time(), isinstance(result, Ok)))

    async def _send(self, act: Act) -> TaskHandle[Any] | None:
        task = self._app.tasks[act.task]
        deadline = None if act.deadline_s is None else datetime.now(UTC) + timedelta(seconds=act.deadline_s)
        options = task.with_options(
            good_until=deadline, flags=[INFRASTRUCTURE_RESILIENT_FLAG] if act.is_resilient else None
        )
        if act.delay_s is None:
            result = await options.send_async(key=act.key, **act.values)
        else:
            result = await options.schedule_async(act.delay_s, key=act.key, **act.values)
        while isinstance(result, Err) and result.error.retryable:
            await asyncio.sleep(AGAIN_S)
            again = task.retry_send_async if act.delay_s is None else task.retry_schedule_async
            result = await again(result.error)
        if isinstance(result, Err):
            self.unsent.append(f"{act.key}: {result.error.code} {result.error.message}")
            return None
        self.sent.append(Sent(act.key, result.value.task_id, time.time()))
        return result.value

    async def _send_many(self, act: Act) -> None:
        task = self._app.tasks[act.task]
        keys = [f"{act.key}.{number}" for number in range(act.count)]
        result = await task.send_many_async([{"key": key, **act.values} for key in keys])
        if isinstance(result, Ok):
            ids = [handle.task_id for handle in result.value]
        else:
            ids = [task_id for task_id, _ in result.error.batch]
            failed = result.error
            while failed.retryable:
                await asyncio.sleep(AGAIN_S)
                again = await task.retry_send_async(failed)
                if isinstance(again, Ok):
                    break
                failed = again.error
            else:
                self.unsent.append(f"{act.key}: {failed.code} {failed.message}")
                return
        for key, task_id in zip(keys, ids, strict=True):
            self.sent.append(Sent(key, task_id, time.time()))
