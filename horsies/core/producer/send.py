"""Writes sends to the queue: a payload becomes a row, and a handle.

It never raises for expected failures; the error has the id and the payload, so that the send can be repeated without
being written twice. `envelope.py` builds the payload and decides what can be repeated; a send inside the caller's
transaction goes through `caller.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from horsies.core import tracing
from horsies.core.definition import TaskDefinition
from horsies.core.models.tasks import TaskSendError, TaskSendPayload, TaskSendResult
from horsies.core.producer import caller
from horsies.core.producer.enqueue import Mismatch, MismatchError, Verdict
from horsies.core.producer.failures import failure, failure_of_many, of_the_caller
from horsies.core.producer.handle import TaskHandle
from horsies.core.producer.ids import new_task_id
from horsies.core.producer.resending import RESEND_PAUSES, tried
from horsies.core.store.sends import Send
from horsies.core.tracing import Spanning
from horsies.core.types.result import Err, Ok, Result

if TYPE_CHECKING:
    from horsies.core.brokers.hub import Hub
    from horsies.core.brokers.postgres import PostgresBroker
    from horsies.core.producer.options import CallerConnection
    from horsies.core.sync import Answer

T = TypeVar("T")

Ids: TypeAlias = list[str]
Written: TypeAlias = Result[Ids, TaskSendError]
Explain: TypeAlias = Callable[[BaseException], TaskSendError]


class Sender:
    """Sends through one broker, for callers of either kind; with `resend` a failure of the database is tried again.

    With a `connection`, the rows become part of the caller's transaction, and nothing is retried.
    """

    def __init__(self, broker: PostgresBroker, *, resend: bool = False) -> None:
        self._broker = broker
        self._pauses = RESEND_PAUSES if resend else ()

    async def send(
        self,
        payload: TaskSendPayload,
        task: TaskDefinition[Any, T],
        *,
        task_id: str | None = None,
        connection: CallerConnection | None = None,
    ) -> TaskSendResult[TaskHandle[T]]:
        """Write the row, under a new id or, for a repeated send, under its own id."""
        task_id = task_id or new_task_id()
        with tracing.sending(payload, task_id) as span:
            send = Send(task_id, payload, span.trace)
            explain = partial(failure, send)
            if connection is not None:
                return self._handle(task, await _inside(connection, [send], explain), span)
            return self._handle(task, await tried(partial(self._write, send), explain, self._pauses), span)

    async def send_many(
        self, sends: Sequence[Send], task: TaskDefinition[Any, T], *, connection: CallerConnection | None = None
    ) -> TaskSendResult[list[TaskHandle[T]]]:
        """Write all rows, or none."""
        if not sends:
            return Ok([])
        with tracing.sending_many(sends[0].payload, len(sends)) as span:
            sends = _traced(sends, span.trace)
            explain = partial(failure_of_many, sends)
            if connection is not None:
                return self._handles(task, await _inside(connection, sends, explain), span)
            writing = partial(self._broker.write_all, sends)
            attempt = partial(self._broker.bridge.call, writing)
            return self._handles(task, await tried(attempt, explain, self._pauses), span)

    async def _write(self, send: Send) -> Ids:
        hub = self._broker.bridge.peek()
        if hub is not None and (written := await hub.writer.write_alone(send)) is not None:
            return _accepted(written)
        return _accepted(await self._broker.bridge.ask_async(_submit(send)))

    def _handle(self, task: TaskDefinition[Any, T], written: Written, span: Spanning) -> TaskSendResult[TaskHandle[T]]:
        if isinstance(written, Err):
            span.failed(written.error.code)
            return written
        return Ok(TaskHandle(written.value[0], self._broker, task.codec.result))

    def _handles(
        self, task: TaskDefinition[Any, T], written: Written, span: Spanning
    ) -> TaskSendResult[list[TaskHandle[T]]]:
        if isinstance(written, Err):
            span.failed(written.error.code)
            return written
        return Ok([TaskHandle(task_id, self._broker, task.codec.result) for task_id in written.value])


def _traced(sends: Sequence[Send], trace: str | None) -> Sequence[Send]:
    return sends if trace is None else [send._replace(trace=trace) for send in sends]


def _submit(send: Send) -> Callable[[Hub, Answer[Verdict]], None]:
    return lambda hub, answer: hub.writer.submit(send, answer)


def _accepted(verdict: Verdict) -> Ids:
    if isinstance(verdict, Mismatch):
        raise MismatchError(0, verdict.reason)
    return [verdict.task_id]


async def _inside(connection: CallerConnection, sends: Sequence[Send], explain: Explain) -> Written:
    try:
        return Ok(await caller.write(connection, sends))
    except Exception as problem:
        return Err(of_the_caller(explain(problem)))
