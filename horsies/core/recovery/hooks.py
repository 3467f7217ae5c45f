"""Calls the user's recovery hooks: how handlers are called, for how long, and what counts as an answer (R-74 to R-76).

Code that recovers tasks gets a `HookCaller`. Manual operations call the handlers in their own process (`InProcess`). A
worker uses its helper child (`worker/helper_process.py`), which calls them through `Handlers` as well. The caller loads
the views of tasks before it recovers them, because afterwards their old owner is no longer known.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import monotonic
from typing import Any, Protocol, TypeVar

from horsies.core import hooks
from horsies.core.db import Bridge, BridgeError
from horsies.core.text import counted

log = logging.getLogger("horsies.recovery")

HANDLER_S = 10.0  # for each call of a handler
SWEEP_S = 60.0  # for all of a sweep
CANCEL_S = 1.0  # for a handler to end after it was cancelled
GRACE_S = 1.5  # a handler that runs this much longer than its limit blocks its thread
T = TypeVar("T")
_PLAIN_ANSWERS = (
    hooks.JobRecoveryResult.Default,
    hooks.JobRecoveryResult.FailWithBackoff,
    hooks.JobRecoveryResult.Skip,
)


class HookCaller(Protocol):
    """Passes questions and events to the user's hooks. A failure of a hook never leaves this class."""

    def has(self, event: type[hooks.Event]) -> bool:
        """Whether there is any handler. If not, views need not be loaded."""
        ...

    async def decide(
        self, jobs: Sequence[hooks.Job], *, recovering: str, reason: hooks.FailureReason, within_s: float = SWEEP_S
    ) -> list[hooks.Decision | None]:
        """What to do with each task, in the same order. None: the task was not asked about and is left for the next
        sweep. A sweep that asks several times passes the time that is left."""
        ...

    async def interrupted(self, jobs: Sequence[hooks.Job], *, reason: hooks.FailureReason) -> None:
        """These tasks were taken from their workers and recovered, and that is committed."""
        ...

    async def recovered(self, *, recovering: str, dead: Sequence[str], jobs_recovered: int) -> None:
        """A sweep that found dead workers has ended and is committed."""
        ...


class NoHooks:
    """There are no hooks."""

    def has(self, event: type[hooks.Event]) -> bool:
        return False

    async def decide(
        self, jobs: Sequence[hooks.Job], *, recovering: str, reason: hooks.FailureReason, within_s: float = SWEEP_S
    ) -> list[hooks.Decision | None]:
        return [hooks.JobRecoveryResult.Default for _ in jobs]

    async def interrupted(self, jobs: Sequence[hooks.Job], *, reason: hooks.FailureReason) -> None:
        pass

    async def recovered(self, *, recovering: str, dead: Sequence[str], jobs_recovered: int) -> None:
        pass


class InProcess:
    """Calls the handlers in this process, on a separate event loop and thread, so that they cannot block the calling
    loop. If a handler blocks that thread, the thread is abandoned, and the next handler gets another one."""

    def __init__(self, registry: hooks.HookRegistry, *, handler_s: float = HANDLER_S) -> None:
        self._registry = registry
        self._limit_s = handler_s
        self._handlers = Handlers(registry, limit_s=handler_s, before=self._note)
        self._thread: Bridge[None] | None = None
        self._current, self._since = "", 0.0

    def has(self, event: type[hooks.Event]) -> bool:
        return self._registry.has(event)

    async def decide(
        self, jobs: Sequence[hooks.Job], *, recovering: str, reason: hooks.FailureReason, within_s: float = SWEEP_S
    ) -> list[hooks.Decision | None]:
        if not self.has(hooks.JobRecovery):
            return [hooks.JobRecoveryResult.Default for _ in jobs]
        answers: list[hooks.Decision | None] = [None] * len(jobs)
        budget = Budget(within_s)
        for place, job in enumerate(jobs):
            if budget.is_spent:
                left = counted(len(jobs) - place, "task")
                log.warning("%s left for the next sweep: the hooks take too long", left)
                break
            question = question_about(job, recovering, reason)
            answer = await self._ask(question, partial(self._handlers.decide, question))
            answers[place] = hooks.JobRecoveryResult.Skip if answer is None else answer
        return answers

    async def interrupted(self, jobs: Sequence[hooks.Job], *, reason: hooks.FailureReason) -> None:
        budget = Budget(SWEEP_S)
        for place, job in enumerate(jobs):
            if budget.is_spent:
                log.warning("%d JobInterrupted events were dropped: their handlers take too long", len(jobs) - place)
                break
            news = news_about(job, reason)
            await self._ask(news, partial(self._handlers.tell, news))

    async def recovered(self, *, recovering: str, dead: Sequence[str], jobs_recovered: int) -> None:
        news = hooks.WorkerRecovered(recovering, sorted(dead), jobs_recovered)
        await self._ask(news, partial(self._handlers.tell, news))

    async def _ask(self, event: hooks.Event, call: Callable[[], Awaitable[T]]) -> T | None:
        """None if there are no handlers, or if the handlers' thread is blocked or was ended by one of them."""
        if not self.has(type(event)):
            return None
        if self._thread is None:
            self._thread = Bridge(lambda: None, dispose=_nothing, name="horsies hooks")
        self._note("?")
        asking = asyncio.ensure_future(self._thread.call(call))
        try:
            while not asking.done():
                left = self._since + self._limit_s + GRACE_S - monotonic()
                if left <= 0:
                    raise TimeoutError(f"it took longer than {self._limit_s:g} s")
                await asyncio.wait({asking}, timeout=left)
            return asking.result()
        except (TimeoutError, BridgeError) as problem:
            self._thread = None
            complain(self._current, event, problem)
            return None
        finally:
            asking.cancel()

    def _note(self, handler: str) -> None:
        self._current, self._since = handler, monotonic()


async def _nothing(_: None) -> None:
    pass


def question_about(job: hooks.Job, recovering: str, reason: hooks.FailureReason) -> hooks.JobRecovery:
    return hooks.JobRecovery(job, recovering, job.worker_id or "", reason)


def news_about(job: hooks.Job, reason: hooks.FailureReason) -> hooks.JobInterrupted:
    return hooks.JobInterrupted(job, job.worker_id or "", reason)


class Budget:
    """A time limit that starts now."""

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._until = self._loop.time() + seconds

    @property
    def left(self) -> float:
        return max(0.0, self._until - self._loop.time())

    @property
    def is_spent(self) -> bool:
        return self.left <= 0


class Handlers:
    """Calls the handlers of a registry on this event loop, one after the other, each for at most `limit_s`. The caller
    must be able to do without the loop for a while, because plain functions block it. `before(name)` is called with the
    name of the next handler."""

    def __init__(self, registry: hooks.HookRegistry, *, limit_s: float, before: Callable[[str], None]) -> None:
        self._registry = registry
        self._limit_s = limit_s
        self._before = before

    async def decide(self, question: hooks.JobRecovery) -> hooks.Decision:
        """The first answer that is not Default. A broken handler means Skip: it must neither lose the task nor run it
        against its policy (R-74)."""
        for handler in self._registry.handlers(hooks.JobRecovery):
            answer, problem = await self._call(handler, question)
            if problem is None and answer is not None and not _is_answer(answer):
                problem = TypeError(f"it returned {answer!r}, which is not a JobRecoveryResult")
            if problem is not None:
                complain(hooks.name_of(handler), question, problem, trace=problem)
                return hooks.JobRecoveryResult.Skip
            if answer is not None and answer is not hooks.JobRecoveryResult.Default:
                decision: hooks.Decision = answer
                return decision
        return hooks.JobRecoveryResult.Default

    async def tell(self, news: hooks.Observed) -> None:
        """Call all handlers, even if some of them fail (R-76)."""
        for handler in self._registry.handlers(type(news)):
            _, problem = await self._call(handler, news)
            if problem is not None:
                complain(hooks.name_of(handler), news, problem, trace=problem)

    async def _call(self, handler: hooks.Handler, event: hooks.Event) -> tuple[Any, BaseException | None]:
        """What the handler returned, or what went wrong. It runs as a separate asyncio task, so that it can cancel only
        itself."""
        self._before(hooks.name_of(handler))
        running = asyncio.ensure_future(_guarded(handler, event))
        try:
            await asyncio.wait({running}, timeout=self._limit_s)
            if running.cancelled():
                return None, asyncio.CancelledError("it cancelled itself")
            if running.done():
                return running.result()
        finally:
            if not running.done():
                running.cancel()
        await asyncio.wait({running}, timeout=CANCEL_S)
        return None, TimeoutError(f"it took longer than {self._limit_s:g} s")


async def _guarded(handler: hooks.Handler, event: hooks.Event) -> tuple[Any, BaseException | None]:
    try:
        answer = handler(event)
        return (await answer if inspect.isawaitable(answer) else answer), None
    except BaseException as problem:  # this includes SystemExit: a handler does not end its caller
        return None, problem


def _is_answer(answer: Any) -> bool:
    return isinstance(answer, hooks.JobRecoveryResult.Reschedule) or any(answer is known for known in _PLAIN_ANSWERS)


def complain(handler: str, event: hooks.Event, problem: BaseException, *, trace: BaseException | None = None) -> None:
    """Log the failure, with the task that it concerned."""
    job = getattr(event, "job", None)
    log.error(
        "the %s hook %s failed%s: %s: %s",
        type(event).__name__,
        handler,
        ", the task is skipped" if isinstance(event, hooks.JobRecovery) else "",
        type(problem).__name__,
        problem,
        exc_info=trace if trace is not None and trace.__traceback__ is not None else None,
        extra={"horsies": {} if job is None else {"task_id": job.id, "task": job.task_name}},
    )
