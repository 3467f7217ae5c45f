"""What a failed send reports: its code, the reason, and everything needed for a retry where that makes sense."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import psycopg
from psycopg.errors import UndefinedTable

from horsies.core.brokers.results import describe, reason
from horsies.core.models.tasks import TaskSendError, TaskSendErrorCode
from horsies.core.producer import caller
from horsies.core.producer.enqueue import MismatchError
from horsies.core.store.sends import Send

_NO_TABLES = (
    "the database of this connection has no horsies tables; make them with `horsies init-db`, or by a send without "
    "connection="
)


def failure(send: Send, problem: BaseException) -> TaskSendError:
    """Why one send was not written; with its id and payload."""
    code, why, cause = _judged(problem)
    message = f"task {send.payload.task_name!r}: {why}"
    return TaskSendError(code, message, code.is_retryable, send.task_id, send.payload, cause)


def failure_of_many(sends: Sequence[Send], problem: BaseException) -> TaskSendError:
    """Why none of many was written; with all of them if a retry may succeed."""
    code, why, cause = _judged(problem)
    position = problem.position if isinstance(problem, MismatchError) else None
    where = "" if position is None else f"calls[{position}]: "
    return TaskSendError(
        code,
        f"task {sends[0].payload.task_name!r}: {where}{why}",
        code.is_retryable,
        exception=cause,
        position=position,
        batch=tuple((send.task_id, send.payload) for send in sends) if code.is_retryable else (),
    )


def of_the_caller(error: TaskSendError) -> TaskSendError:
    """The same for a send in the caller's transaction. There is nothing to replay, because the task belongs to the rest
    of the transaction; the caller runs the transaction again."""
    return replace(error, retryable=False, task_id=None, payload=None, batch=())


def _judged(problem: BaseException) -> tuple[TaskSendErrorCode, str, BaseException | None]:
    if isinstance(problem, MismatchError):
        return TaskSendErrorCode.PAYLOAD_MISMATCH, str(problem), None
    if isinstance(problem, caller.WrongConnectionError):
        return TaskSendErrorCode.VALIDATION_FAILED, str(problem), problem
    if caller.is_misuse(problem):
        return TaskSendErrorCode.VALIDATION_FAILED, describe(problem), problem
    cause = reason(caller.behind(problem))
    if isinstance(cause, psycopg.DataError | ValueError):
        # It cannot be written or stored, however often that is tried.
        return TaskSendErrorCode.VALIDATION_FAILED, describe(cause), cause
    if isinstance(cause, UndefinedTable):
        return TaskSendErrorCode.VALIDATION_FAILED, _NO_TABLES, cause
    return TaskSendErrorCode.ENQUEUE_FAILED, describe(cause), cause
