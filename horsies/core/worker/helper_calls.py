"""How a worker has user code called that is not a task: recovery hooks (R-74 to R-76), the `build_with` of child
workflows (F-60), and the encoding of the arguments of schedules (W-01).

The worker imports no module with tasks, so it asks its helper child. The children report which events have handlers
when they are ready, and a helper is started only if it is needed. The process is in `helper_process.py`; the messages
and the helper's own side are in `child/helper.py`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence

from horsies.core.child.helper import decision_of, payload_of, plan_of
from horsies.core.hooks import Decision, Event, FailureReason, Job, JobRecoveryResult, Observed, WorkerRecovered
from horsies.core.models.tasks import TaskSendPayload
from horsies.core.models.workflow import plan, registry
from horsies.core.recovery.hooks import SWEEP_S, Budget, complain, news_about, question_about
from horsies.core.scheduler.payloads import Wanted
from horsies.core.text import counted
from horsies.core.types import Err, Result
from horsies.core.worker.helper_process import NAME, HelperChild, HelperFailed

log = logging.getLogger("horsies.worker")
hook_log = logging.getLogger("horsies.recovery")

MOST_LOSSES = 3  # helpers that may hang or die in one sweep
MOST_TROUBLES = 1_000
START_S = 120.0
LAST_NEWS_S = 3.0
MOST_NEWS_BYTES = 32 << 20  # of arguments, in news that nobody has heard yet
NEWS_BYTES = 500  # about what a piece of news takes beside the arguments
PATIENCE_S = 60.0  # for its turn, and for the start of a helper that does not run


class HelperHookCaller:
    """A `HookCaller`. `known()` gives the names of the events that have handlers."""

    def __init__(self, helper: HelperChild, known: Callable[[], Collection[str]]) -> None:
        self._helper = helper
        self._known = known
        self._troubles: dict[str, None] = {}  # tasks in whose question the helper was lost, the latest last
        self._news: deque[Observed] = deque()
        self._news_bytes = 0
        self._dropped = 0
        self._telling: asyncio.Task[None] | None = None
        self._is_closed = False

    def has(self, event: type[Event]) -> bool:
        return event.__name__ in self._known()

    async def decide(
        self, jobs: Sequence[Job], *, recovering: str, reason: FailureReason, within_s: float = SWEEP_S
    ) -> list[Decision | None]:
        """A task that the helper was lost with is skipped, and asked about last the next time, so that the others can
        use the helper first. After some losses, or after a minute, the rest is left for later."""
        budget = Budget(within_s)
        answers: list[Decision | None] = [None] * len(jobs)
        losses = 0
        for place in sorted(range(len(jobs)), key=lambda place: jobs[place].id in self._troubles):
            if budget.is_spent or losses >= MOST_LOSSES:
                break
            job = jobs[place]
            question = question_about(job, recovering, reason)
            try:
                answers[place] = _read(await self._helper.ask(question, budget.left))
            except HelperFailed as problem:
                if problem.handler is None:
                    hook_log.error(
                        "recovery hooks could not be called: %s", problem, extra={"horsies": {"task_id": job.id}}
                    )
                    break
                losses += 1
                answers[place] = JobRecoveryResult.Skip
                self._remember(job.id)
                complain(problem.handler, question, problem)
        if None in answers:
            left = counted(answers.count(None), "task")
            hook_log.warning("%s left for the next sweep: the hooks could not be called", left)
        return answers

    async def interrupted(self, jobs: Sequence[Job], *, reason: FailureReason) -> None:
        self._post(news_about(job, reason) for job in jobs)

    async def recovered(self, *, recovering: str, dead: Sequence[str], jobs_recovered: int) -> None:
        self._post([WorkerRecovered(recovering, sorted(dead), jobs_recovered)])

    async def close(self) -> None:
        """Deliver the remaining events, for a moment; then end the helper."""
        if self._telling is not None:
            await asyncio.wait({self._telling}, timeout=LAST_NEWS_S)
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)
        self._is_closed = True
        await self._helper.close()

    # News wait in line, so that no handler holds up a recovery

    def _post(self, news: Iterable[Observed]) -> None:
        for event in news:
            if not self.has(type(event)) or self._is_closed:
                continue
            if self._news_bytes > MOST_NEWS_BYTES:
                self._dropped += 1
                continue
            self._news.append(event)
            self._news_bytes += _size(event)
        if self._news and (self._telling is None or self._telling.done()):
            self._telling = asyncio.create_task(self._tell(), name="tell recovery hooks")

    async def _tell(self) -> None:
        while self._news:
            event = self._news.popleft()
            self._news_bytes -= _size(event)
            try:
                await self._helper.ask(event, START_S)
            except HelperFailed as problem:
                complain(problem.handler or NAME, event, problem)
                if problem.handler is None:  # there is nobody to hear them
                    self._dropped += 1 + len(self._news)
                    self._news.clear()
                    self._news_bytes = 0
        if self._dropped:
            hook_log.error(
                "%d recovery events were not delivered to their hooks, which are too slow or broken", self._dropped
            )
            self._dropped = 0

    def _remember(self, task_id: str) -> None:
        self._troubles.pop(task_id, None)
        self._troubles[task_id] = None
        if len(self._troubles) > MOST_TROUBLES:
            del self._troubles[next(iter(self._troubles))]


def _read(answer: bytes) -> Decision:
    try:
        return decision_of(answer)
    except (ValueError, KeyError, TypeError) as problem:  # a handler has broken its own process
        raise HelperFailed(f"an answer that cannot be read: {problem!r}", "the helper process") from None


def _size(event: Observed) -> int:
    job = getattr(event, "job", None)
    return NEWS_BYTES + (0 if job is None else len(job.args_json or "") + len(job.kwargs_json or ""))


class HelperBuilder:
    """A `Builder`. If the helper hangs or dies in a `build_with`, there is no plan: another try would do the same and
    take the helper away from all others each time. If there was no helper to ask, the node waits for the next try."""

    def __init__(self, helper: HelperChild) -> None:
        self._helper = helper

    async def build(self, request: registry.BuildRequest) -> plan.WorkflowPlan:
        try:
            return plan_of(await self._helper.ask(request, PATIENCE_S))
        except HelperFailed as problem:
            if (
                problem.handler is None or self._helper.is_closed
            ):  # the end of a helper that stops with its worker says nothing
                raise
            raise _failed(request, str(problem)) from None
        except (ValueError, KeyError, TypeError) as problem:  # build_with has broken its own process
            raise _failed(request, f"an answer that cannot be read: {problem!r}") from None


def _failed(request: registry.BuildRequest, why: str) -> registry.BuildFailed:
    log.error("build_with of the workflow %r failed: %s", request.definition_key, why)
    return registry.BuildFailed(f"build_with of the workflow {request.definition_key!r}: {why}")


class HelperPreparer:
    """A `Preparer`."""

    def __init__(self, helper: HelperChild) -> None:
        self._helper = helper

    async def prepare(self, wanted: Wanted, limit_s: float) -> Result[TaskSendPayload, str]:
        try:
            return payload_of(await self._helper.ask(wanted, PATIENCE_S, limit_s))
        except (HelperFailed, ValueError, KeyError, TypeError, RecursionError) as problem:
            if self._helper.is_closed:  # the worker stops, so this is no failure
                await asyncio.Event().wait()
            return Err(f"its arguments cannot be encoded: {problem}")
