"""Starts the workflows of the plan through the public interface, pauses, resumes and cancels some of them, over
connections that break now and then. A start that failed is repeated as the documentation says until it has succeeded.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from horsies import Err, HandleResult, Horsies, Ok, WorkflowHandle
from tests.chaos.flow_history import Control, Started
from tests.chaos.flow_plan import FlowAct
from tests.chaos.flows import spec_of

AGAIN_S = 0.2
RESUME_EVERY_S = 0.5


class FlowProducer:
    """`run` the plan; `started` and `controls` are what came of it."""

    def __init__(self, app: Horsies) -> None:
        self._app = app
        self.started: list[Started] = []
        self.controls: list[Control] = []
        self.unsent: list[str] = []  # why a start failed for good
        self._under_way: set[asyncio.Task[None]] = set()

    async def run(self, acts: list[FlowAct], begin: float) -> None:
        for act in acts:
            await asyncio.sleep(max(0.0, begin + act.at - time.monotonic()))
            task = asyncio.create_task(self._do(act))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def finish(self) -> None:
        if self._under_way:
            await asyncio.gather(*self._under_way)

    async def resume_all(self) -> None:
        """Again and again, whatever is paused: by us, or because a node has failed."""
        while True:
            for one in self.started:
                handle: WorkflowHandle[Any] = WorkflowHandle(one.workflow_id, self._app.get_broker())
                status = await handle.status_async()
                if isinstance(status, Ok) and status.value == "PAUSED":
                    await self._control("resume", handle, handle.resume_async)
            await asyncio.sleep(RESUME_EVERY_S)

    async def _do(self, act: FlowAct) -> None:
        handle = await self._start(act)
        if handle is None:
            return
        begun = time.monotonic()
        if act.pause is not None:
            after_s, for_s = act.pause
            await asyncio.sleep(after_s)
            await self._control("pause", handle, handle.pause_async)
            await asyncio.sleep(for_s)
            if act.cancel is None or time.monotonic() - begun < act.cancel:
                await self._control("resume", handle, handle.resume_async)
        if act.cancel is not None:
            await asyncio.sleep(max(0.0, begun + act.cancel - time.monotonic()))
            await self._control("cancel", handle, handle.cancel_async)

    async def _start(self, act: FlowAct) -> WorkflowHandle[Any] | None:
        spec = spec_of(self._app, act)
        deadline = None if act.deadline_s is None else datetime.now(UTC) + timedelta(seconds=act.deadline_s)
        result = await spec.start_async(good_until=deadline)
        while isinstance(result, Err) and result.error.retryable:
            await asyncio.sleep(AGAIN_S)
            result = await spec.retry_start_async(result.error)
        if isinstance(result, Err):
            self.unsent.append(f"{act.key}: {result.error.code} {result.error.message}")
            return None
        self.started.append(Started(act.key, result.value.workflow_id, time.time()))
        return result.value

    async def _control(
        self, what: str, handle: WorkflowHandle[Any], ask: Callable[[], Awaitable[HandleResult[Any]]]
    ) -> None:
        result = await ask()
        while isinstance(result, Err) and result.error.retryable:
            await asyncio.sleep(AGAIN_S)
            result = await ask()
        self.controls.append(Control(what, handle.workflow_id, time.time(), isinstance(result, Ok)))
