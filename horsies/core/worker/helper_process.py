"""The worker's side of its helper child (W-01): one process for user code that is not a task. It is started when it is
first needed, killed with all its processes when it hangs, and replaced when it is needed again.

Nothing here blocks the worker: each question has its time limit, and events wait in a separate line. All methods belong
to the thread of the worker's event loop. What is asked, and what an answer means, is in `helper_calls.py`.
"""

import asyncio
import logging
from dataclasses import dataclass, replace

from horsies.core.child import helper
from horsies.core.child.wire import ChildSpec, Frame, Kind, WireError, pack
from horsies.core.hooks import Event
from horsies.core.models.workflow.registry import BuildRequest
from horsies.core.recovery.hooks import GRACE_S
from horsies.core.scheduler.payloads import Wanted
from horsies.core.worker import children, finalize
from horsies.core.worker.launcher import ChildProcess, Launcher, LauncherDied

log = logging.getLogger("horsies.worker")

NAME = "horsies-helper"
READY_TIMEOUT_S = 120.0
FAREWELL_S = 0.1  # between the end of its socket and the report that it has ended
GOODBYE_S = 1.0


class HelperFailed(Exception):
    """There is no answer. `handler` is the user code that hung or died; None if none was running."""

    def __init__(self, why: str, handler: str | None = None) -> None:
        super().__init__(why)
        self.handler = handler


@dataclass(eq=False)
class Question:
    """A question that the helper has not answered yet."""

    token: int
    answer: asyncio.Future[bytes]
    limit_s: float
    handler: str | None = None
    timer: asyncio.TimerHandle | None = None

    def fail(self, why: str) -> None:
        if not self.answer.done():
            self.answer.set_exception(HelperFailed(why, self.handler))


@dataclass(eq=False)
class HelperRun:
    """One process, from its fork to its end."""

    process: ChildProcess
    ready: asyncio.Future[None]
    link: children.Link | None = None

    def is_broken(self, why: str) -> None:
        if not self.ready.done():
            self.ready.set_exception(HelperFailed(why))
            self.ready.exception()  # whoever waited may be gone


class HelperChild:
    """Answers one question at a time; other callers wait for their turn."""

    def __init__(self, launcher: Launcher, spec: ChildSpec) -> None:
        self._launcher = launcher
        self._spec = replace(spec, is_helper=True, journal=None)
        self._limit_s = spec.recovery_hook_timeout_ms / 1000 + GRACE_S
        self._turn = asyncio.Lock()
        self._running: HelperRun | None = None
        self._starting: asyncio.Task[None] | None = None
        self._watchers: set[asyncio.Task[None]] = set()
        self._question: Question | None = None
        self._tokens = 0
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        return None if self._running is None else self._running.process.pid

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    async def ask(self, event: Event | BuildRequest | Wanted, patience_s: float, limit_s: float | None = None) -> bytes:
        """The answer to this event; HelperFailed if there is none. `patience_s` limits the wait for the turn and for
        the start of a missing helper, which continues after that; `limit_s` limits each handler, if it is not the
        default."""
        try:
            async with asyncio.timeout(patience_s) as patience:
                await self._turn.acquire()
                try:
                    running = await self._ready()
                    patience.reschedule(None)
                    return await self._answer(running, event, self._limit_s if limit_s is None else limit_s + GRACE_S)
                finally:
                    self._turn.release()
        except TimeoutError:
            raise HelperFailed(f"it was not ready within {patience_s:.1f} s") from None

    async def close(self) -> None:
        """End it, politely first."""
        self._is_closed = True
        running = self._running
        if running is not None and running.link is not None:
            if running.ready.done() and self._question is None:
                running.link.write(pack(Kind.BYE, 0))
                await asyncio.wait({running.process.exited}, timeout=GOODBYE_S)
            running.process.kill_group()
        left = self._watchers if self._starting is None else {*self._watchers, self._starting}
        if left:
            await asyncio.wait(left, timeout=GOODBYE_S)

    # Its life

    async def _ready(self) -> HelperRun:
        if self._is_closed:
            raise HelperFailed("the worker stops")
        if self._running is None or not self._running.ready.done():
            if self._starting is None or self._starting.done():
                self._starting = asyncio.create_task(self._start(), name="start the helper")
                self._starting.add_done_callback(_look_at)
            await asyncio.shield(self._starting)
        if self._running is None:
            raise HelperFailed("it ended as soon as it was ready")
        return self._running

    async def _start(self) -> None:
        try:
            await self._launcher.start()
            process = await self._launcher.spawn(self._spec, NAME)
        except (LauncherDied, OSError, TimeoutError) as problem:
            raise HelperFailed(f"it could not be started: {problem}") from None
        if self._is_closed:  # nobody would see to its end
            process.kill_group()
            process.sock.close()
            raise HelperFailed("the worker stops")
        running = self._running = HelperRun(process, asyncio.get_running_loop().create_future())
        running.link = children.Link(
            process.sock, lambda frames: self._heard(running, frames), lambda why: _kill_soon(process)
        )
        watcher = asyncio.create_task(self._watch(running), name="watch the helper")
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                await running.ready
        except TimeoutError:
            raise HelperFailed(f"it was not ready within {READY_TIMEOUT_S:g} s") from None
        finally:
            if not running.ready.done() or running.ready.cancelled() or running.ready.exception() is not None:
                self._give_up(running)

    async def _watch(self, running: HelperRun) -> None:
        how = finalize.describe_exit(await running.process.exited)
        if running.link is not None:
            running.link.drain()
            running.link.close()
        running.process.close_outbox()
        if self._running is running:
            self._running = None
            running.is_broken(f"it {how} before it was ready")
            if self._question is not None:
                self._question.fail(f"the helper process {how}")
            if not self._is_closed:
                log.warning("helper process %s", how, extra={"horsies": {"pid": running.process.pid}})

    def _give_up(self, running: HelperRun) -> None:
        """Kill it without waiting: the next helper need not wait for its end."""
        running.process.kill_group()
        if self._running is running:
            self._running = None

    # One question

    async def _answer(self, running: HelperRun, event: Event | BuildRequest | Wanted, limit_s: float) -> bytes:
        assert running.link is not None
        self._tokens += 1
        question = self._question = Question(self._tokens, asyncio.get_running_loop().create_future(), limit_s)
        self._watch_time(running, question)
        try:
            running.link.write(pack(Kind.RUN, question.token, *_packed(event)))
            return await question.answer
        except WireError as problem:
            raise HelperFailed(f"it cannot be reached: {problem}", "none") from None
        finally:
            self._question = None
            if question.timer is not None:
                question.timer.cancel()

    def _heard(self, running: HelperRun, frames: list[Frame]) -> None:
        for kind, token, parts in frames:
            if kind is Kind.READY and not running.ready.done():
                running.ready.set_result(None)
            elif kind is Kind.BROKEN:
                running.is_broken(parts[0].decode("utf-8", "replace"))
            elif (question := self._question) is None or question.token != token or question.answer.done():
                continue  # about a question that nobody waits for any more
            elif kind is Kind.STARTED:
                question.handler = parts[0].decode("utf-8", "replace")
                self._watch_time(running, question)
            elif kind is Kind.ANSWER:
                question.answer.set_result(parts[0])

    def _watch_time(self, running: HelperRun, question: Question) -> None:
        if question.timer is not None:
            question.timer.cancel()
        question.timer = asyncio.get_running_loop().call_later(question.limit_s, self._late, running, question)

    def _late(self, running: HelperRun, question: Question) -> None:
        if not question.answer.done():
            log.warning("the helper process hangs and is being killed", extra={"horsies": {"pid": running.process.pid}})
            question.fail(f"it took longer than {question.limit_s - GRACE_S:g} s")
            self._give_up(running)


def _packed(event: Event | BuildRequest | Wanted) -> tuple[bytes, bytes]:
    if isinstance(event, BuildRequest):
        return helper.pack_build(event)
    return helper.pack_wanted(event) if isinstance(event, Wanted) else helper.pack_event(event)


def _kill_soon(process: ChildProcess) -> None:
    """Nobody can hear it any more. A helper that has ended closes its socket too, and its end is reported in a
    moment."""
    asyncio.get_running_loop().call_later(FAREWELL_S, process.kill_group)


def _look_at(starting: asyncio.Task[None]) -> None:
    """The caller that waited may be gone."""
    if not starting.cancelled() and (problem := starting.exception()) is not None:
        log.error("the helper process cannot be used: %s", problem)
