"""What travels with a task from its send to its end: the payload and how a send can fail, the retry policy and other
options that are stored in its row, and its trace context. Most of it is importable from `models/tasks.py`.

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
from functools import cached_property, lru_cache
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from horsies.core.exception_mapper import is_reserved, validate_error_code_string
from horsies.core.models.base import A_YEAR_MS
from horsies.core.models.codes import BUILTIN_CODE_REGISTRY, BuiltInTaskCode
from horsies.core.models.failures import OperationFailed
from horsies.core.text import about_unknown, explains_keywords
from horsies.core.types import Err, Ok

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
    enqueue_delay_seconds: float | None
    task_options: str | None
    enqueue_sha: str
    flags_json: str | None = None
    idempotency_key: str | None = None
    reuse_after_failure: bool = False  # the key is free again if its task ended without success


# A send before anybody asks for its payload: the fields that it may share with others, the two texts of its arguments,
# and its fingerprint. A payload takes longer to make than the rest of this, and of thousands that are sent together
# hardly one is ever looked at.
Draft: TypeAlias = tuple[Mapping[str, Any], str | None, str | None, str]


def payload_of(fields: Mapping[str, Any], args_json: str | None, kwargs_json: str | None, sha: str) -> TaskSendPayload:
    """The payload that a draft describes."""
    return TaskSendPayload(args_json=args_json, kwargs_json=kwargs_json, enqueue_sha=sha, **fields)


def is_timeout(value: Any) -> bool:
    """Whether a `timeout_ms` can have this value."""
    return isinstance(value, int) and not isinstance(value, bool) and MIN_TIMEOUT_MS <= value <= MAX_TIMEOUT_MS


@dataclass(frozen=True, slots=True)
class TaskSendError(OperationFailed):
    """A send that was not made. If `retryable`, `retry_send` sends `payload` again under `task_id`. For a `send_many`,
    `position` is the place of the call that is wrong, if there is one, and `batch` has all ids and payloads for
    `retry_send`."""

    code: TaskSendErrorCode
    task_id: str | None = None
    payload: TaskSendPayload | None = None
    position: int | None = None
    batch: tuple[tuple[str, TaskSendPayload], ...] = field(default=(), repr=False)  # it may be very long


TaskSendResult: TypeAlias = Ok[T] | Err[TaskSendError]


class TaskSendFailed(ValueError):
    """Raised for a send that failed, by `unwrap()` and `send_or_raise`; `error` says everything about it."""

    def __init__(self, error: TaskSendError, text: str = "") -> None:
        why = f"{error.code.value}: {error.message}"
        super().__init__(f"{text}: {why}" if text else why)
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return TaskSendFailed, (self.error,)


def with_trace(task_options: str | None, trace: str | None) -> str | None:
    """The options with the context among them; all of it is JSON."""
    return task_options if trace is None else _with_field(task_options, KEY, trace)


def with_node(task_options: str | None, node_id: str) -> str | None:
    """The options of a node's task: they name the node, so that the task can know it (P-02)."""
    return _with_field(task_options, "node", json.dumps(node_id))


def _with_field(task_options: str | None, name: str, value: str) -> str | None:
    if not task_options or task_options == "{}":
        return f'{{"{name}":{value}}}'
    return f'{task_options[:-1]},"{name}":{value}}}' if task_options.endswith("}") else task_options


def trace_in(task_options: str | None) -> str | None:
    """The context in these options, as JSON."""
    if task_options is None or f'"{KEY}"' not in task_options:
        return None
    try:
        found = json.loads(task_options)
    except (ValueError, RecursionError):
        return None
    return carrier_to_json(found.get(KEY)) if isinstance(found, dict) else None


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


MIN_TIMEOUT_MS = 1000
MAX_TIMEOUT_MS = A_YEAR_MS

Interval = Annotated[int, Field(ge=1, le=86_400, strict=True)]


class RetryPolicy(BaseModel):
    """Which errors are retried, how often, and after how many seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    auto_retry_for: list[BuiltInTaskCode | str] = Field(min_length=1, description="error codes that are retried")
    max_retries: int = Field(default=3, ge=1, le=20, strict=True, description="how often")
    intervals: list[Interval] = Field(
        default_factory=lambda: [60, 300, 900],
        min_length=1,
        description="seconds before each retry (`fixed`), or one base that doubles (`exponential`)",
    )
    backoff_strategy: Literal["fixed", "exponential"] = Field(
        default="fixed", description="`fixed`: one delay for each retry; `exponential`: one that doubles"
    )
    jitter: bool = Field(default=True, description="vary each delay randomly by up to a quarter")

    @classmethod
    @explains_keywords
    def fixed(
        cls, intervals: list[int], *, auto_retry_for: list[BuiltInTaskCode | str], jitter: bool = True
    ) -> RetryPolicy:
        """One retry after each of these delays."""
        return cls(
            auto_retry_for=auto_retry_for,
            max_retries=len(intervals),
            intervals=intervals,
            backoff_strategy="fixed",
            jitter=jitter,
        )

    @classmethod
    @explains_keywords
    def exponential(
        cls,
        base_seconds: int,
        *,
        max_retries: int,
        auto_retry_for: list[BuiltInTaskCode | str],
        jitter: bool = True,
    ) -> RetryPolicy:
        """Delays that double each time."""
        return cls(
            auto_retry_for=auto_retry_for,
            max_retries=max_retries,
            intervals=[base_seconds],
            backoff_strategy="exponential",
            jitter=jitter,
        )

    @model_validator(mode="before")
    @classmethod
    def _names_are_settings(cls, given: Any) -> Any:
        for name in given if isinstance(given, dict) else ():
            if name not in cls.model_fields:
                raise ValueError(f"unknown setting {name!r}{about_unknown(str(name), cls.model_fields)}")
        return given

    @field_validator("auto_retry_for", mode="before")
    @classmethod
    def _entries_are_codes(cls, entries: Any) -> Any:
        if isinstance(entries, str) or not isinstance(entries, list | tuple | set | frozenset):
            raise ValueError("a list of error codes is needed")
        return [_code(entry) for entry in entries]

    @model_validator(mode="after")
    def _intervals_fit_the_strategy(self) -> RetryPolicy:
        wanted = self.max_retries if self.backoff_strategy == "fixed" else 1
        if len(self.intervals) != wanted:
            raise ValueError(
                f"{self.backoff_strategy} backoff with max_retries={self.max_retries} needs exactly {wanted} "
                f"interval(s), not {len(self.intervals)}"
            )
        return self

    @cached_property
    def codes(self) -> frozenset[str]:
        """The listed codes as plain text."""
        return frozenset(str(entry) for entry in self.auto_retry_for)


def _code(entry: Any) -> BuiltInTaskCode | str:
    if isinstance(entry, str) and is_reserved(entry):
        return BUILTIN_CODE_REGISTRY[str(entry)]
    return validate_error_code_string(entry, field_name="auto_retry_for")


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """What the `task_options` column contains, so that retry and recovery never need the task's code."""

    retry_policy: RetryPolicy | None = None
    timeout_ms: int | None = None
    trace: str | None = None  # the trace context of a row, as JSON; a definition has none
    node: str | None = None  # the node of a workflow that a row is the task of; a definition has none

    @property
    def max_retries(self) -> int:
        return self.retry_policy.max_retries if self.retry_policy else 0

    def to_json(self) -> str | None:
        """Compact JSON; None if nothing is set."""
        fields: dict[str, Any] = {}
        if self.retry_policy is not None:
            fields["retry_policy"] = self.retry_policy.model_dump(mode="json")
        if self.timeout_ms is not None:
            fields["timeout_ms"] = self.timeout_ms
        return json.dumps(fields, separators=(",", ":")) if fields else None

    @staticmethod
    def from_json(text: str | None) -> TaskOptions:
        """The options of a row; `ValueError` if the text contains none."""
        return _options_from(text) if text is not None else _NO_OPTIONS


_NO_OPTIONS = TaskOptions()


@lru_cache(maxsize=1024)  # thousands of rows carry the same few texts
def _options_from(text: str) -> TaskOptions:
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"task_options is not JSON: {problem}") from None
    if fields is None:
        return _NO_OPTIONS
    if not isinstance(fields, dict):
        raise ValueError("task_options is not a JSON object")
    timeout = fields.get("timeout_ms")
    if timeout is not None and (not isinstance(timeout, int) or isinstance(timeout, bool) or timeout < 1):
        raise ValueError("task_options.timeout_ms is not a number of milliseconds")
    policy = fields.get("retry_policy")
    try:
        trace = carrier_to_json(fields.get(KEY))
        longest = None if timeout is None else min(timeout, MAX_TIMEOUT_MS)
        found = RetryPolicy.model_validate(policy) if policy is not None else None
        node = fields.get("node")
        return TaskOptions(found, longest, trace, node if isinstance(node, str) else None)
    except ValidationError as problem:
        raise ValueError(f"task_options.retry_policy: {problem}") from None
