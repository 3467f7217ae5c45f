"""Turns the end of a wait into the `TaskResult` for the caller (T-61). Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from horsies.core.brokers.results import broker_error, describe
from horsies.core.brokers.waiter import Ending, TimedOut, Unreachable
from horsies.core.codec.results import ResultCodec
from horsies.core.codec.serde import SerializationError, task_result_from_json
from horsies.core.models.broker import BrokerErrorCode, BrokerOperationError, BrokerResult
from horsies.core.models.tasks import (
    BuiltInTaskCode,
    ContractCode,
    OperationalErrorCode,
    OutcomeCode,
    RetrievalCode,
    TaskError,
    TaskResult,
)
from horsies.core.store.results import Ended
from horsies.core.types.result import Err, Ok, Result
from horsies.core.types.status import TaskStatus

AnyResult: TypeAlias = TaskResult[Any, TaskError]


def result_of(task_id: str, ending: Ending, codec: ResultCodec | None) -> AnyResult:
    """What the caller gets; a stored text that cannot be read is an error result too."""
    match ending:
        case TimedOut():
            return _err(RetrievalCode.WAIT_TIMEOUT, f"task {task_id} did not end in time; it may still be running")
        case Unreachable(problem):
            return _err(OperationalErrorCode.BROKER_ERROR, f"the database could not be queried: {describe(problem)}")
        case Ended(status=None):
            return _err(RetrievalCode.TASK_NOT_FOUND, f"there is no task {task_id}")
        case Ended(result=None):
            return _without_text(ending)
        case Ended():
            read = read_text(ending.result or "", codec)
            return read.value if isinstance(read, Ok) else _unreadable(ending, read.err_value)


def typed_result_of(
    task_id: str, ending: Ending, codec_of: Callable[[str | None], ResultCodec | None]
) -> BrokerResult[AnyResult]:
    """The same for a caller that needs the type (T-64): a failed query, an unknown type or an unreadable text is an
    `Err`."""
    if isinstance(ending, Unreachable):
        return Err(broker_error(BrokerErrorCode.DB_OPERATION_FAILED, ending.problem))
    if not isinstance(ending, Ended) or ending.status is None or ending.result is None:
        return Ok(result_of(task_id, ending, None))
    if (codec := codec_of(ending.task_name)) is None:
        why = f"task {ending.task_name!r} is not registered here, so the type of its result is unknown"
        return Err(BrokerOperationError(BrokerErrorCode.NO_TYPE_AVAILABLE, why))
    result = result_of(task_id, ending, codec)
    if result.err is not None and result.err.error_code is OperationalErrorCode.RESULT_DESERIALIZATION_ERROR:
        return Err(BrokerOperationError(BrokerErrorCode.INVALID_JSON_PAYLOAD, result.err.message or ""))
    return Ok(result)


def is_final(ending: Ending) -> bool:
    """Whether a later wait would end in the same way."""
    return isinstance(ending, Ended) and ending.status is not None


def read_text(text: str, codec: ResultCodec | None) -> Result[AnyResult, SerializationError]:
    """Read a stored result. A valid result whose value has the wrong type is distinguished from an invalid result."""
    read = task_result_from_json(text, codec)
    if isinstance(read, Ok) or codec is None:
        return read
    plain = task_result_from_json(text)
    if isinstance(plain, Ok) and plain.value.is_ok():
        return Err(SerializationError(read.err_value.message, ContractCode.PYDANTIC_HYDRATION_ERROR))
    return read


def _without_text(ended: Ended) -> AnyResult:
    match ended.status:
        case TaskStatus.CANCELLED:
            return _err(OutcomeCode.TASK_CANCELLED, "the task was cancelled")
        case TaskStatus.EXPIRED:
            return _err(OutcomeCode.TASK_EXPIRED, "the task expired before it ran")
        case TaskStatus.FAILED:
            return _err(OperationalErrorCode.WORKER_CRASHED, ended.failed_reason or "the task failed without a result")
        case _:
            return _err(RetrievalCode.RESULT_NOT_AVAILABLE, "the task completed, but no result is stored")


def _unreadable(ended: Ended, problem: SerializationError) -> AnyResult:
    if ended.status in (TaskStatus.CANCELLED, TaskStatus.EXPIRED):
        return _without_text(ended)  # the status alone says it all
    return _err(problem.code, f"the stored result of task {ended.task_id} cannot be read: {problem.message}")


def _err(code: BuiltInTaskCode, message: str) -> AnyResult:
    return TaskResult(err=TaskError(error_code=code, message=message))
