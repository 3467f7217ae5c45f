"""What a task returns, and what is known about it.

`TaskResult` is what a task function returns: an ok value or a `TaskError`. This module also has the values read from
the queue (`TaskInfo`, `TaskAttemptInfo`) and, re-exported, the codes, policies and send types that belong to tasks.
`codec/serde.py` turns results into text.
"""

import traceback
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final, Generic, NoReturn, final, get_args, overload

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, SerializeAsAny, field_serializer, field_validator
from pydantic_core import CoreSchema, core_schema
from typing_extensions import TypeVar

# fmt: off
from horsies.core.models.codes import (
    BUILTIN_CODE_FAMILIES, BUILTIN_CODE_REGISTRY as BUILTIN_CODE_REGISTRY, RETRY_ELIGIBLE as RETRY_ELIGIBLE,
    BuiltInTaskCode as BuiltInTaskCode, ContractCode as ContractCode, OperationalErrorCode as OperationalErrorCode,
    OutcomeCode as OutcomeCode, RetrievalCode as RetrievalCode,
)
from horsies.core.models.notes import TaskProgress
from horsies.core.models.sending import (
    MAX_TIMEOUT_MS as MAX_TIMEOUT_MS, MIN_TIMEOUT_MS as MIN_TIMEOUT_MS, RetryPolicy as RetryPolicy,
    TaskOptions as TaskOptions, TaskSendError as TaskSendError, TaskSendErrorCode as TaskSendErrorCode,
    TaskSendFailed as TaskSendFailed, TaskSendPayload as TaskSendPayload, TaskSendResult as TaskSendResult,
    is_timeout as is_timeout,
)
from horsies.core.types import TaskAttemptOutcome, TaskStatus, WorkflowStatus
# fmt: on

BUILTIN_KEY: Final = "__builtin_task_code__"
MAX_TRACEBACK_CHARS: Final = 20_000


class TaskError(BaseModel):
    """Why a task did not succeed. `error_code` is a built-in member or a string of your own; `data` is plain JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    error_code: BuiltInTaskCode | str | None = None
    message: str | None = None
    data: Any = None
    exception: dict[str, Any] | None = None

    @field_validator("error_code", mode="before")
    @classmethod
    def _built_in_codes_keep_their_identity(cls, code: Any) -> Any:
        if isinstance(code, BUILTIN_CODE_FAMILIES) or code is None:
            return code
        if isinstance(code, dict) and code.keys() == {BUILTIN_KEY}:
            try:
                return BUILTIN_CODE_REGISTRY[code[BUILTIN_KEY]]
            except (KeyError, TypeError):
                raise ValueError("not a built-in code of this version") from None
        if isinstance(code, Enum):
            raise ValueError(f"{type(code).__name__} is not a family of built-in codes; give a plain string")
        if isinstance(code, str) and code in BUILTIN_CODE_REGISTRY:
            member = BUILTIN_CODE_REGISTRY[code]
            raise ValueError(f"{code!r} is a built-in code; give {type(member).__name__}.{member.name} instead")
        return code

    @field_validator("exception", mode="before")
    @classmethod
    def _exceptions_become_dicts(cls, exc: Any) -> Any:
        return exception_dict(exc) if isinstance(exc, BaseException) else exc

    @field_serializer("error_code")
    def _mark_built_in_codes(self, code: BuiltInTaskCode | str | None) -> dict[str, str] | str | None:
        return {BUILTIN_KEY: code.value} if isinstance(code, BUILTIN_CODE_FAMILIES) else code

    @property
    def code(self) -> str | None:
        """The code as plain text, as in the `error_code` column."""
        return None if self.error_code is None else str(self.error_code)


class TaskFailed(Exception):
    """Raised by `handle.result()` for a task that did not succeed, or was not waited for to the end; `error` says
    why. The traceback of the task's own exception, if there was one, is a note."""

    def __init__(self, error: TaskError) -> None:
        super().__init__(": ".join(part for part in (error.code, error.message) if part))
        self.error = error
        trace = (error.exception or {}).get("traceback")
        if isinstance(trace, str) and trace:
            self.add_note(f"in the task:\n{trace}")

    def __reduce__(self) -> tuple[Any, ...]:
        return TaskFailed, (self.error,)


def exception_dict(exc: BaseException) -> dict[str, Any]:
    """An exception as data: type, module, message and the end of its traceback."""
    try:
        message = str(exc)
    except Exception:
        message = f"<{type(exc).__name__} whose text cannot be made>"
    return {
        "type": type(exc).__name__,
        "module": type(exc).__module__,
        "message": message[:MAX_TRACEBACK_CHARS],
        "traceback": _traceback_text(exc)[-MAX_TRACEBACK_CHARS:],
    }


def _traceback_text(exc: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(exc, limit=-50))
    except Exception:  # the user's __str__ may raise, and must not hide the error
        return "".join(traceback.format_tb(exc.__traceback__, limit=-50))


OutT = TypeVar("OutT", default=Any)


class SubWorkflowSummary(BaseModel, Generic[OutT]):
    """How a child workflow ended."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    status: WorkflowStatus
    output: OutT | None = None
    total_tasks: int = 0
    completed_tasks: int = 0
    failed_tasks: int = 0
    skipped_tasks: int = 0
    error_summary: str | None = None


class SubWorkflowError(TaskError):
    """The error of a node that was a child workflow."""

    sub_workflow_id: str
    sub_workflow_summary: SerializeAsAny[SubWorkflowSummary[Any]]


T_co = TypeVar("T_co", covariant=True)
E_co = TypeVar("E_co", covariant=True, default=TaskError)


class _Unset:
    def __repr__(self) -> str:
        return "UNSET"


_UNSET: Final = _Unset()


@final
class TaskResult(Generic[T_co, E_co]):
    """What a task returns: `TaskResult(ok=value)` or `TaskResult(err=error)`. `ok=None` is a success."""

    __slots__ = ("_err", "_ok")
    __match_args__ = ("ok", "err")

    _ok: T_co | _Unset
    _err: E_co | None

    @overload
    def __init__(self, *, ok: T_co) -> None: ...
    @overload
    def __init__(self, *, err: E_co) -> None: ...
    def __init__(self, *, ok: Any = _UNSET, err: Any = None) -> None:
        if (ok is _UNSET) == (err is None):
            raise ValueError("a TaskResult must have either ok or err, not both")
        object.__setattr__(self, "_ok", ok)
        object.__setattr__(self, "_err", err)

    def is_ok(self) -> bool:
        return self._err is None

    def is_err(self) -> bool:
        return self._err is not None

    @property
    def ok(self) -> T_co | None:
        """The value, or None if this is an error."""
        return None if isinstance(self._ok, _Unset) else self._ok

    @property
    def err(self) -> E_co | None:
        """The error, or None if this is a success."""
        return self._err

    @property
    def ok_value(self) -> T_co:
        if isinstance(self._ok, _Unset):
            raise ValueError(f"the task did not succeed: {self._err!r}")
        return self._ok

    @property
    def err_value(self) -> E_co:
        if self._err is None:
            raise ValueError("the task succeeded, so there is no error")
        return self._err

    def unwrap(self) -> T_co:
        return self.ok_value

    def unwrap_err(self) -> E_co:
        return self.err_value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TaskResult):
            return NotImplemented
        return bool(self._ok == other._ok and self._err == other._err)

    def __hash__(self) -> int:
        return hash((self._ok, self._err))

    def __repr__(self) -> str:
        return f"TaskResult(ok={self._ok!r})" if self._err is None else f"TaskResult(err={self._err!r})"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a TaskResult is immutable")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a TaskResult is immutable")

    def __reduce__(self) -> Any:
        return _rebuild, (self._err is None, self._ok if self._err is None else self._err)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The type of a parameter: `{"ok": …}` or `{"err": {…}}`, each side by its declared type."""
        given = get_args(source)
        error = given[1] if len(given) > 1 else TaskError
        return _result_schema(
            handler.generate_schema(given[0] if given else Any),
            # A node that was a whole workflow delivers its own kind of error to whoever waits for it (F-62).
            handler.generate_schema(SubWorkflowError | TaskError if error is TaskError else error),
        )


def _rebuild(is_ok: bool, value: Any) -> TaskResult[Any, Any]:
    return TaskResult(ok=value) if is_ok else TaskResult(err=value)


def _result_schema(ok: CoreSchema, err: CoreSchema) -> CoreSchema:
    field = core_schema.typed_dict_field
    sides = core_schema.typed_dict_schema(
        {"ok": field(ok, required=False), "err": field(err, required=False)}, extra_behavior="forbid"
    )
    # Instances are taken apart before the check and put together after it, so that both sides are validated.
    return core_schema.no_info_after_validator_function(
        lambda parts: TaskResult(**parts),
        core_schema.no_info_before_validator_function(_parts_if_result, sides),
        serialization=core_schema.plain_serializer_function_ser_schema(_parts_if_result, return_schema=sides),
    )


def _parts_if_result(value: Any) -> Any:
    if isinstance(value, TaskResult):
        return {"ok": value.ok} if value.is_ok() else {"err": value.err}
    return value


@dataclass(frozen=True, slots=True)
class TaskAttemptInfo:
    """One attempt of a task (a row of horsies_task_attempts)."""

    id: int
    task_id: str
    attempt: int
    outcome: TaskAttemptOutcome
    will_retry: bool
    started_at: datetime | None
    finished_at: datetime | None
    error_code: str | None
    error_message: str | None
    failed_reason: str | None
    worker_id: str | None
    worker_hostname: str | None
    worker_pid: int | None
    worker_process_name: str | None
    created_at: datetime | None


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """A task as its row describes it. `result`, `failed_reason` and `attempts` are set only on request."""

    task_id: str
    task_name: str
    status: TaskStatus
    queue_name: str
    priority: int
    retry_count: int
    max_retries: int
    next_retry_at: datetime | None
    sent_at: datetime
    enqueued_at: datetime
    claimed_at: datetime | None
    started_at: datetime | None
    completed_at: datetime | None
    failed_at: datetime | None
    worker_hostname: str | None
    worker_pid: int | None
    worker_process_name: str | None
    error_code: str | None
    good_until: datetime | None
    flags: dict[str, bool]
    claimed_by_worker_id: str | None
    finalizing_at: datetime | None
    result: TaskResult[Any, TaskError] | None = None
    failed_reason: str | None = None
    attempts: list[TaskAttemptInfo] | None = None
    progress: TaskProgress | None = None
