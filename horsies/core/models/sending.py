"""The parts of a send, and how it can fail; importable from `models/tasks.py`."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias, TypeVar

from horsies.core.types.result import Err, Ok

T = TypeVar("T")


class TaskSendErrorCode(StrEnum):
    """Why nothing was enqueued."""

    SEND_SUPPRESSED = "SEND_SUPPRESSED"
    VALIDATION_FAILED = "VALIDATION_FAILED"
    ENQUEUE_FAILED = "ENQUEUE_FAILED"
    PAYLOAD_MISMATCH = "PAYLOAD_MISMATCH"
    PAYLOAD_TOO_LARGE = "PAYLOAD_TOO_LARGE"

    @property
    def is_retryable(self) -> bool:
        return self is TaskSendErrorCode.ENQUEUE_FAILED


@dataclass(frozen=True, slots=True)
class TaskSendPayload:
    """A task as it is written to the queue. Sending it again with the same id is safe: `enqueue_sha` is its
    fingerprint."""

    task_name: str
    queue_name: str
    priority: int
    args_json: str | None
    kwargs_json: str | None
    sent_at: datetime
    good_until: datetime | None
    enqueue_delay_seconds: int | None
    task_options: str | None
    enqueue_sha: str
    flags_json: str | None = None
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True)
class TaskSendError:
    """A send that was not made. If `retryable`, `retry_send` sends `payload` again under `task_id`. For a `send_many`,
    `position` is the place of the call that is wrong, if there is one, and `batch` has all ids and payloads for
    `retry_send_many`."""

    code: TaskSendErrorCode
    message: str
    retryable: bool = False
    task_id: str | None = None
    payload: TaskSendPayload | None = None
    exception: BaseException | None = None
    position: int | None = None
    batch: tuple[tuple[str, TaskSendPayload], ...] = field(default=(), repr=False)  # it may be very long


TaskSendResult: TypeAlias = Ok[T] | Err[TaskSendError]
