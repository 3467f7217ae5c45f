"""The main thread of a helper child (W-01): calls the app's recovery hooks for the worker, builds child workflows with
the `build_with` of their definitions (F-60), and encodes the arguments of schedules.

It reports which handler it is about to call, so that the worker knows which one hung or died. Handlers are called one
after the other: async ones on an event loop that lives as long as the child, plain ones in the same thread. If one
blocks, the worker kills this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence

from horsies.core.hooks import HookRegistry, JobRecovery
from horsies.core.models.tasks import TaskSendPayload
from horsies.core.recovery.asking import Handlers
from horsies.core.scheduler.payloads import Wanted
from horsies.core.types.result import Err, Result
from horsies.core.worker import schedule_wire, wire
from horsies.core.worker.build_wire import BUILD, pack_failure, pack_plan, request_of
from horsies.core.worker.hook_wire import event_of, pack_decision
from horsies.core.worker.inbox import Inbox, Item
from horsies.core.worker.schedule_wire import PREPARE, pack_payloads
from horsies.core.worker.uplink import Uplink
from horsies.core.worker.wire import Kind
from horsies.core.workflows.definitions import BuildFailed, BuildRequest
from horsies.core.workflows.plan import WorkflowPlan

log = logging.getLogger("horsies.child")


class HookServer:
    """Replaces the `Runner` of other children. The io thread calls `tokens` and `stop`."""

    def __init__(
        self,
        registry: HookRegistry,
        build: Callable[[BuildRequest], WorkflowPlan],
        prepare: Callable[[Sequence[Wanted]], Iterator[Result[TaskSendPayload, str]]],
        inbox: Inbox,
        uplink: Uplink,
        limit_s: float,
    ) -> None:
        self._build = build
        self._prepare = prepare
        self._inbox = inbox
        self._uplink = uplink
        self._handlers = Handlers(registry, limit_s=limit_s, before=self._say_before)
        self._token = 0
        self._loop = asyncio.new_event_loop()
        self._bell = asyncio.Event()

    def serve(self) -> None:
        """Answer requests until the worker says goodbye."""
        self._inbox.notify(self._ring)
        serving = self._loop.create_task(self._serve())
        while not serving.done():
            try:
                self._loop.run_until_complete(serving)
            except (SystemExit, KeyboardInterrupt) as error:
                # Not from a handler, whose exceptions are caught, but from something one has left on the loop.
                log.error("%s in a background task or callback was ignored", type(error).__name__)

    def close(self) -> None:
        """Cancel what handlers have left on the loop, and let it clean up."""
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        with contextlib.suppress(BaseException):
            if left:
                self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())

    def _ring(self) -> None:
        self._loop.call_soon_threadsafe(self._bell.set)

    def tokens(self) -> list[int]:
        return []  # it has no tasks to beat for

    def stop(self, token: int) -> None:
        pass

    async def _serve(self) -> None:
        while True:
            self._bell.clear()
            item = self._inbox.poll()
            if item is not None:
                await self._answer(item)
            elif self._inbox.is_closed:
                return
            else:
                await self._bell.wait()

    async def _answer(self, item: Item) -> None:
        self._token = item.token
        name, content = item.parts[0], item.parts[1]
        if name == BUILD:
            answer = self._built(content)
        elif name == PREPARE:
            answer = self._prepared(content)
        else:
            answer = await self._said(name, content)
        self._inbox.held.discard(item.token)
        self._uplink.send(wire.pack(Kind.ANSWER, item.token, answer))

    async def _said(self, name: bytes, content: bytes) -> bytes:
        event = event_of(name, content)
        if isinstance(event, JobRecovery):
            return pack_decision(await self._handlers.decide(event))
        await self._handlers.tell(event)
        return b""

    def _built(self, content: bytes) -> bytes:
        request = request_of(content)
        self._say_before(f"build_with of {request.definition_key}")
        try:
            return pack_plan(self._build(request))
        except BuildFailed as problem:
            return pack_failure(problem)
        except BaseException as problem:  # SystemExit too: user code does not end the helper
            log.exception("build_with of the workflow %r failed", request.definition_key)
            return pack_failure(BuildFailed(f"{type(problem).__name__}: {problem}"))

    def _prepared(self, content: bytes) -> bytes:
        wanted = schedule_wire.request_of(content).wanted
        answers = self._prepare(wanted)
        made: list[Result[TaskSendPayload, str]] = []
        try:
            for one in wanted:
                self._say_before(schedule_wire.handler_of(one))
                made.append(next(answers))
            return pack_payloads(made)
        except BaseException as problem:  # SystemExit too: user code does not end the helper
            log.exception("the arguments of schedules could not be encoded")
            return pack_payloads([Err(f"{type(problem).__name__}: {problem}") for _ in wanted])

    def _say_before(self, handler: str) -> None:
        self._uplink.send(wire.pack(Kind.STARTED, self._token, handler.encode("utf-8", "replace")))
