"""The parts of a send, how it can fail, and where a task's trace context is stored; the first two are importable from
`models/tasks.py`.

The trace context is in `task_options`, as `"trace": {"traceparent": "…"}`. It is added when the row is written and is
not part of the payload, so fingerprints and idempotency ignore it. The reader trusts nothing: anything other than a few
short texts is not a context.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, TypeAlias, TypeVar

from horsies.core.types.result import Err, Ok

T = TypeVar("T")
KEY: Final = "trace"
MOST_CHARS: Final = 2_048  # a larger context (baggage) is cut down to the trace itself
_TRACE: Final = ("traceparent", "tracestate")


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


def with_trace(task_options: str | None, trace: str | None) -> str | None:
    """The options with the context among them; all of it is JSON."""
    if trace is None:
        return task_options
    if not task_options or task_options == "{}":
        return f'{{"{KEY}":{trace}}}'
    return f'{task_options[:-1]},"{KEY}":{trace}}}' if task_options.endswith("}") else task_options


def trace_in(task_options: str | None) -> str | None:
    """The context in these options, as JSON."""
    if task_options is None or f'"{KEY}"' not in task_options:
        return None
    try:
        found = json.loads(task_options)
    except (ValueError, RecursionError):
        return None
    return carrier_to_json(found.get(KEY)) if isinstance(found, dict) else None


def without_trace(task_options: str | None) -> str | None:
    """The options as they were given with the send."""
    if task_options is None or f'"{KEY}"' not in task_options:
        return task_options
    try:
        found = json.loads(task_options)
    except (ValueError, RecursionError):
        return task_options
    if not isinstance(found, dict) or found.pop(KEY, None) is None:
        return task_options
    return json.dumps(found, separators=(",", ":")) if found else None


def carrier_to_json(carrier: Any) -> str | None:
    """What a propagator has written, as compact JSON of limited size; None if it is not usable."""
    if not isinstance(carrier, Mapping):
        return None
    for fields in (carrier, {name: carrier[name] for name in _TRACE if name in carrier}):
        if fields and all(isinstance(key, str) and isinstance(value, str) for key, value in fields.items()):
            text = json.dumps(dict(fields), separators=(",", ":"))
            if len(text) <= MOST_CHARS:
                return text
    return None
