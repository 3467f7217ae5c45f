"""Writes sends to the queue: a payload becomes a row, and a handle with methods to wait for the task, inspect it and
cancel it. What fails for a reason that passes is tried again, under the same id, so that a try that had succeeded
unseen is recognised (T-51).

Nothing is raised for expected failures. The error has a code, the reason, the id and the payload, so that the send can
be repeated without being written twice. `envelope.py` builds the payload and decides what can be repeated, and
`enqueue.py` has the statements, also for a send inside the caller's transaction.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

import psycopg

from horsies.core import tracing
from horsies.core.db import describe, is_not_permitted, reason
from horsies.core.models import tasks as models
from horsies.core.producer import bulk, enqueue
from horsies.core.producer.watching import Watching
from horsies.core.store.sends import Drafts, Send
from horsies.core.tasks.definition import TaskDefinition
from horsies.core.types import Err, Ok, Result, run_sync
from horsies.core.types import pause as wait

if TYPE_CHECKING:
    from datetime import datetime

    from horsies.core.brokers.actions import TaskActionResult
    from horsies.core.brokers.postgres import PostgresBroker
    from horsies.core.codec.shapes import ResultCodec
    from horsies.core.models.broker import BrokerResult
    from horsies.core.models.notes import TaskLogLine
    from horsies.core.producer.waiter import Ending
    from horsies.core.tasks.definition import CallerConnection


T = TypeVar("T")


class TaskHandle(Generic[T]):
    """A task that was sent, with the type of its result."""

    __slots__ = ("_broker", "_codec", "_final", "task_id")

    def __init__(self, task_id: str, broker: PostgresBroker, codec: ResultCodec | None = None) -> None:
        self.task_id = task_id
        self._broker = broker
        self._codec = codec
        self._final: models.TaskResult[T, models.TaskError] | None = None

    async def get_async(self, timeout_ms: int | None = None) -> models.TaskResult[T, models.TaskError]:
        """Wait for the result, at most `timeout_ms` milliseconds. It never raises: a failure is an error result."""
        if self._final is not None:
            return self._final
        with tracing.getting("task", self.task_id):
            return self._keep(await self._broker.wait_async(self.task_id, timeout_ms))

    get = run_sync(get_async)

    async def result_async(self, timeout_ms: int | None = None) -> T:
        """Wait as `get` does, and return the value, or raise `TaskFailed`."""
        result = await self.get_async(timeout_ms)
        if result.err is not None:
            raise models.TaskFailed(result.err)
        value: T = result.ok_value
        return value

    result = run_sync(result_async)

    async def info_async(
        self, *, include_result: bool = False, include_failed_reason: bool = False, include_attempts: bool = False
    ) -> BrokerResult[models.TaskInfo | None]:
        """The state of the task; `Ok(None)` if its row is gone."""
        return await self._broker.get_task_info_async(
            self.task_id,
            include_result=include_result,
            include_failed_reason=include_failed_reason,
            include_attempts=include_attempts,
        )

    info = run_sync(info_async)

    def watch(self) -> Iterator[models.TaskInfo]:
        """The state of the task now, and again whenever the state or the progress has changed, until its end; nothing
        if its row is gone. It ends earlier if this process stops waiting (X-21). It raises only if the database is
        away for longer than half a minute."""
        watching = Watching(self._broker, self.task_id)
        while (info := watching.next()) is not None:
            yield info

    async def watch_async(self) -> AsyncIterator[models.TaskInfo]:
        """The same, for `async for`."""
        watching = Watching(self._broker, self.task_id)
        while (info := await watching.next_async()) is not None:
            yield info

    async def logs_async(self) -> BrokerResult[list[TaskLogLine]]:
        """What the task has logged, all attempts, the oldest first. It is kept if the app has `task_logs` (P-51a)."""
        return await self._broker.get_task_logs_async(self.task_id)

    logs = run_sync(logs_async)

    async def cancel_async(self, *, include_running: bool = False) -> TaskActionResult:
        """Cancel the task unless it has ended. A running task is cancelled only with `include_running`; its code is
        then stopped."""
        return await self._broker.cancel_task_async(self.task_id, include_running=include_running)

    cancel = run_sync(cancel_async)

    def _keep(self, ending: Ending) -> models.TaskResult[T, models.TaskError]:
        """The result of an ending. Only the task's own result is final; a wait that failed may be repeated."""
        result, is_final = self._broker.read_ending(self.task_id, ending, self._codec)
        if is_final:
            self._final = result
        return result

    def __repr__(self) -> str:
        return f"TaskHandle(task_id={self.task_id!r})"


class Retryable(Protocol):
    """An error that says whether a retry may succeed."""

    @property
    def retryable(self) -> bool: ...


# The pauses of `resend_on_transient_err` in seconds: doubling, no jitter.
RESEND_PAUSES = (0.2, 0.4, 0.8)

_ABOUT_DATA, _NO_TABLE = "22", "42P01"
_NO_TABLES = (
    "the database of this connection has no horsies tables; make them with `horsies init-db`, or by a send without "
    "connection="
)

E = TypeVar("E", bound=Retryable)
AnyTask: TypeAlias = TaskDefinition[Any, Any]
Ids: TypeAlias = list[str]
Written: TypeAlias = Result[Ids, models.TaskSendError]
Explain: TypeAlias = Callable[[BaseException], models.TaskSendError]


class Sender:
    """Sends through one broker, for callers of either kind; with `resend` a failure of the database is tried again.

    With a `connection`, the rows become part of the caller's transaction, and nothing is retried.
    """

    def __init__(self, broker: PostgresBroker, *, resend: bool = False) -> None:
        self._broker = broker
        self._pauses = RESEND_PAUSES if resend else ()

    async def send(
        self,
        payload: models.TaskSendPayload,
        task: TaskDefinition[Any, T],
        *,
        task_id: str | None = None,
        connection: CallerConnection | None = None,
    ) -> models.TaskSendResult[TaskHandle[T]]:
        """Write the row, under a new id or, for a repeated send, under its own id."""
        task_id = task_id or enqueue.new_task_id()
        with tracing.sending(payload, task_id) as span:
            written = await self._send(Send(task_id, payload, span.trace), task, connection)
            if isinstance(written, Err):
                span.failed(written.error.code)
                return written
        return Ok(TaskHandle(written.value[0], self._broker, task.codec.result))

    def stream(self, sent_at: datetime) -> bulk.Stream:
        """For tasks of a `send_many` that are written while it encodes the others. It must be ended or dropped."""
        return bulk.Stream(self._broker, sent_at)

    async def send_many(
        self,
        sends: Sequence[Send],
        task: TaskDefinition[Any, T],
        *,
        connection: CallerConnection | None = None,
        stream: bulk.Stream | None = None,
    ) -> models.TaskSendResult[list[TaskHandle[T]]]:
        """Write all rows, or none. All of them are in the stream, if there is one."""
        if not sends:
            return Ok([])
        with tracing.sending(sends[0].payload, None, len(sends)) as span:
            if isinstance(sends, Drafts):
                sends = sends.traced(span.trace)
            elif span.trace is not None:
                sends = [send._replace(trace=span.trace) for send in sends]
            written = await self._send_all(sends, task, connection, stream)
            if isinstance(written, Err):
                span.failed(written.error.code)
                return written
        return Ok([TaskHandle(task_id, self._broker, task.codec.result) for task_id in written.value])

    async def _send(self, send: Send, task: AnyTask, connection: CallerConnection | None) -> Written:
        explain = partial(failure, send)
        if connection is not None:
            return await inside(connection, [send], explain)
        return await tried(partial(self._write, send), explain, self._pauses)

    async def _send_all(
        self, sends: Sequence[Send], task: AnyTask, connection: CallerConnection | None, stream: bulk.Stream | None
    ) -> Written:
        explain = partial(failure_of_many, sends)
        if connection is not None:
            return await inside(connection, list(sends), explain)
        return await tried(self._writing(sends, stream), explain, self._pauses)

    def _writing(self, sends: Sequence[Send], stream: bulk.Stream | None) -> Callable[[], Awaitable[Ids]]:
        """Each call of it is a try. Only the first may copy: after that the rows may be there."""
        untried = [sends] if isinstance(sends, Drafts) and bulk.is_fit(sends) else []

        async def attempt() -> Ids:
            while untried:
                new = untried.pop()
                if await bulk.copied(self._broker, new, stream):
                    return new.ids
            return await self._broker.bridge.call(partial(self._broker.write_all, list(sends)))

        return attempt

    async def _write(self, send: Send) -> Ids:
        hub = self._broker.bridge.peek()
        if hub is not None and (written := await hub.writer.write_alone(send)) is not None:
            return _accepted(written)
        return _accepted(await self._broker.bridge.ask_async(lambda hub, answer: hub.writer.submit(send, answer)))


def _accepted(verdict: enqueue.SendOutcome) -> Ids:
    if isinstance(verdict, enqueue.Mismatch):
        raise enqueue.SendMismatchError(0, verdict.reason)
    return [verdict.task_id]


async def inside(connection: CallerConnection, sends: Sequence[Send], explain: Explain) -> Written:
    """Write them in the caller's transaction."""
    try:
        return Ok(await enqueue.write(connection, sends))
    except Exception as problem:
        return Err(of_the_caller(explain(problem)))


async def tried(
    attempt: Callable[[], Awaitable[T]], explain: Callable[[BaseException], E], pauses: Sequence[float]
) -> Result[T, E]:
    """The final outcome; `explain` turns an exception into an error."""
    for pause in (*pauses, None):
        try:
            return Ok(await attempt())
        except Exception as problem:
            error = explain(problem)
        if pause is None or not error.retryable:
            break
        await wait(pause)
    return Err(error)


def failure(send: Send, problem: BaseException) -> models.TaskSendError:
    """Why one send was not written; with its id and payload."""
    code, why, cause = _judged(problem)
    message = f"task {send.payload.task_name!r}: {why}"
    return models.TaskSendError(
        code, message, send.task_id, send.payload, retryable=_may_pass(code, problem), exception=cause
    )


def failure_of_many(sends: Sequence[Send], problem: BaseException) -> models.TaskSendError:
    """Why none of many was written; with all of them if they can be sent again."""
    code, why, cause = _judged(problem)
    position = problem.position if isinstance(problem, enqueue.SendMismatchError) else None
    where = "" if position is None else f"calls[{position}]: "
    return models.TaskSendError(
        code,
        f"task {sends[0].payload.task_name!r}: {where}{why}",
        retryable=_may_pass(code, problem),
        exception=cause,
        position=position,
        batch=tuple((send.task_id, send.payload) for send in sends) if code.is_retryable else (),
    )


def of_the_caller(error: models.TaskSendError) -> models.TaskSendError:
    """The same for a send in the caller's transaction. There is nothing to replay, because the task belongs to the rest
    of the transaction; the caller runs the transaction again."""
    return replace(error, retryable=False, task_id=None, payload=None, batch=())


def _may_pass(code: models.TaskSendErrorCode, problem: BaseException) -> bool:
    """Whether a retry may succeed by itself. A right that is missing does not appear by itself (O-20)."""
    return code.is_retryable and not is_not_permitted(enqueue.behind(problem))


def _judged(problem: BaseException) -> tuple[models.TaskSendErrorCode, str, BaseException | None]:
    if isinstance(problem, enqueue.SendMismatchError):
        return models.TaskSendErrorCode.PAYLOAD_MISMATCH, str(problem), None
    if isinstance(problem, enqueue.WrongConnectionError):
        return models.TaskSendErrorCode.VALIDATION_FAILED, str(problem), problem
    if enqueue.is_misuse(problem):
        return models.TaskSendErrorCode.VALIDATION_FAILED, describe(problem), problem
    cause = reason(enqueue.behind(problem))
    state = str(getattr(cause, "sqlstate", None) or "")  # of psycopg and asyncpg
    if isinstance(cause, psycopg.DataError | ValueError) or state.startswith(_ABOUT_DATA):
        # No number of tries can write or store this payload.
        return models.TaskSendErrorCode.VALIDATION_FAILED, describe(cause), cause
    if state == _NO_TABLE:
        return models.TaskSendErrorCode.VALIDATION_FAILED, _NO_TABLES, cause
    return models.TaskSendErrorCode.ENQUEUE_FAILED, describe(cause), cause
