"""Writes sends to the queue: a payload becomes a row, and a handle. Never raises for what can go wrong; the error
carries the id and the payload, so that the send can be replayed without being written twice. Building the payload, and
judging what may be replayed, is `envelope.py`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import psycopg

from horsies.core.brokers.results import describe, reason
from horsies.core.definition import TaskDefinition
from horsies.core.models.tasks import TaskSendError, TaskSendErrorCode, TaskSendPayload, TaskSendResult
from horsies.core.producer.enqueue import Mismatch
from horsies.core.producer.handle import TaskHandle
from horsies.core.producer.ids import new_task_id
from horsies.core.store.sends import Send
from horsies.core.sync import BridgeError
from horsies.core.types.result import Err, Ok, Result

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker

T = TypeVar("T")

# The pauses of `resend_on_transient_err` in seconds: doubling, no jitter (T-51).
RESEND_PAUSES = (0.2, 0.4, 0.8)

Written: TypeAlias = Result[str, TaskSendError]


class Sender:
    """Sends through one broker; with `resend` a failure of the database is tried again by itself."""

    def __init__(self, broker: PostgresBroker, *, resend: bool = False) -> None:
        self._broker = broker
        self._pauses = RESEND_PAUSES if resend else ()

    def send(
        self, payload: TaskSendPayload, task: TaskDefinition[Any, T], *, task_id: str | None = None
    ) -> TaskSendResult[TaskHandle[T]]:
        """Write the row, under a new id or, when a send is replayed, under its own."""
        send = Send(task_id or new_task_id(), payload)
        try:
            return self._handled(task, self._broker.bridge.run(self._writing(send)))
        except BridgeError as problem:
            return Err(_failed(send, problem))

    async def send_async(
        self, payload: TaskSendPayload, task: TaskDefinition[Any, T], *, task_id: str | None = None
    ) -> TaskSendResult[TaskHandle[T]]:
        """Write the row, under a new id or, when a send is replayed, under its own."""
        send = Send(task_id or new_task_id(), payload)
        try:
            return self._handled(task, await self._broker.bridge.call(self._writing(send)))
        except BridgeError as problem:
            return Err(_failed(send, problem))

    def _writing(self, send: Send) -> Callable[[], Awaitable[Written]]:
        return functools.partial(_write, self._broker, send, self._pauses)

    def _handled(self, task: TaskDefinition[Any, T], written: Written) -> TaskSendResult[TaskHandle[T]]:
        if isinstance(written, Ok):
            return Ok(TaskHandle(written.value, self._broker, task.codec.result))
        return written


async def _write(broker: PostgresBroker, send: Send, pauses: tuple[float, ...]) -> Written:
    """Insert the row, and again after each pause while the database fails. Runs on the bridge."""
    for pause in pauses:
        written = await _write_once(broker, send)
        if isinstance(written, Ok) or not written.err_value.retryable:
            return written
        await asyncio.sleep(pause)
    return await _write_once(broker, send)


async def _write_once(broker: PostgresBroker, send: Send) -> Written:
    try:
        verdict = await broker.write(send)
    except (psycopg.DataError, UnicodeError) as problem:
        # The server cannot store it, however often it is asked.
        return Err(_error(send, TaskSendErrorCode.VALIDATION_FAILED, describe(problem), problem))
    except Exception as problem:
        return Err(_failed(send, problem))
    if isinstance(verdict, Mismatch):
        return Err(_error(send, TaskSendErrorCode.PAYLOAD_MISMATCH, verdict.reason))
    return Ok(verdict.task_id)


def _failed(send: Send, problem: BaseException) -> TaskSendError:
    return _error(send, TaskSendErrorCode.ENQUEUE_FAILED, describe(problem), reason(problem))


def _error(send: Send, code: TaskSendErrorCode, why: str, problem: BaseException | None = None) -> TaskSendError:
    message = f"task {send.payload.task_name!r}: {why}"
    return TaskSendError(code, message, code.is_retryable, send.task_id, send.payload, problem)
