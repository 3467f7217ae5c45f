"""When a failed task is retried, and the options that are stored in its row; importable from `models/tasks.py`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from horsies.core.exception_mapper import is_reserved, validate_error_code_string
from horsies.core.models.codes import BUILTIN_CODE_REGISTRY, BuiltInTaskCode
from horsies.core.models.sending import KEY, carrier_to_json

MIN_TIMEOUT_MS = 1000

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
        return TaskOptions(RetryPolicy.model_validate(policy) if policy is not None else None, timeout, trace)
    except ValidationError as problem:
        raise ValueError(f"task_options.retry_policy: {problem}") from None
