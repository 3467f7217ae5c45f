"""Recovery hooks: what a user registers, what handlers get and what they may return (R-70 to R-77). Pure.

An event is the class whose instance the handlers get. `recovery/hooks.py` calls the handlers and limits their time;
`recovery/decide.py` says what becomes of their answers.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, ClassVar, TypeAlias, TypeVar, overload

from horsies.core.codec.serde import loads_json
from horsies.core.errors import misuse
from horsies.core.models.base import MOST
from horsies.core.types import TaskStatus


class FailureReason(StrEnum):
    """Why a task was interrupted (R-73)."""

    WORKER_CRASHED = "WORKER_CRASHED"
    SHUTDOWN = "SHUTDOWN"


@dataclass(frozen=True)
class Job:
    """A read-only view of a task at the moment when its worker was found gone (R-71).

    `args`, `kwargs` and `flags` are the stored plain JSON values, read anew at each access, so changing them has no
    effect. Values that cannot be read are empty; such a task fails by itself when it runs.
    """

    id: str
    task_name: str
    queue_name: str = "default"
    status: TaskStatus = TaskStatus.RUNNING
    worker_id: str | None = None  # the worker that held the task
    retry_count: int = 0
    max_retries: int = 0
    priority: int = 100
    enqueued_at: datetime | None = None
    claimed_at: datetime | None = None
    started_at: datetime | None = None
    good_until: datetime | None = None
    args_json: str | None = None
    kwargs_json: str | None = None
    flags_json: str | None = None

    @property
    def args(self) -> list[Any]:
        value = loads_json(self.args_json).unwrap_or(None)
        return value if isinstance(value, list) else []

    @property
    def kwargs(self) -> dict[str, Any]:
        return _object(self.kwargs_json)

    @property
    def flags(self) -> dict[str, Any]:
        return _object(self.flags_json)

    @property
    def attempts(self) -> int:
        """The number of attempts so far, including the interrupted one (L-38)."""
        return self.retry_count + (self.status is TaskStatus.RUNNING)


def _object(text: str | None) -> dict[str, Any]:
    value = loads_json(text).unwrap_or(None)
    return value if isinstance(value, dict) else {}


@dataclass(frozen=True, slots=True)
class JobRecovery:
    """Decides what happens to a task of a dead worker: its handlers return a `JobRecoveryResult`."""

    job: Job
    worker_id: str  # the worker that recovers the task
    previous_worker_id: str
    reason: FailureReason = FailureReason.WORKER_CRASHED


@dataclass(frozen=True, slots=True)
class JobInterrupted:
    """A task was taken from its worker and recovered; its handlers are only informed."""

    job: Job
    worker_id: str  # the worker that held the task
    reason: FailureReason = FailureReason.WORKER_CRASHED


@dataclass(frozen=True, slots=True)
class WorkerRecovered:
    """A sweep has recovered the tasks of dead workers; its handlers are only informed."""

    worker_id: str  # the worker that made the sweep
    dead_worker_ids: list[str]
    jobs_recovered: int


class JobRecoveryResult:
    """What a handler of `JobRecovery` can return (R-72); None counts as `Default`."""

    __slots__ = ("name",)

    name: str
    Default: ClassVar[JobRecoveryResult]  # run it again after `recovery_delay`; the attempt does not count
    FailWithBackoff: ClassVar[JobRecoveryResult]  # treat it as a crash, by the task's own retry policy
    Skip: ClassVar[JobRecoveryResult]  # leave it locked; the next sweep offers it again
    Reschedule: ClassVar[type[Reschedule]]  # run it again at a given time; may set the attempt counter

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"JobRecoveryResult.{self.name}"


@dataclass(frozen=True, repr=False)
class Reschedule(JobRecoveryResult):
    """Run the task again at `run_at` (with a time zone; a past time means at once), with `attempts` as its counter if
    given."""

    run_at: datetime
    attempts: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", "Reschedule")
        if not isinstance(self.run_at, datetime) or self.run_at.utcoffset() is None:
            raise ValueError(f"Reschedule: run_at must be a datetime with a time zone, not {self.run_at!r}")
        object.__setattr__(self, "run_at", self.run_at.astimezone(UTC))
        if self.attempts is not None and (type(self.attempts) is not int or not 0 <= self.attempts <= MOST):
            raise ValueError(f"Reschedule: attempts must be a whole number from 0 to {MOST}")

    def __repr__(self) -> str:
        return f"JobRecoveryResult.Reschedule(run_at={self.run_at!r}, attempts={self.attempts!r})"


JobRecoveryResult.Default = JobRecoveryResult("Default")
JobRecoveryResult.FailWithBackoff = JobRecoveryResult("FailWithBackoff")
JobRecoveryResult.Skip = JobRecoveryResult("Skip")
JobRecoveryResult.Reschedule = Reschedule
Event: TypeAlias = JobRecovery | JobInterrupted | WorkerRecovered
Observed: TypeAlias = JobInterrupted | WorkerRecovered
EVENTS: tuple[type[Event], ...] = (JobRecovery, JobInterrupted, WorkerRecovered)
RESERVED = ("WorkerStart", "WorkerShutdown", "JobStart", "JobComplete", "JobFail")  # events that may come later
Decision: TypeAlias = JobRecoveryResult
RecoveryHandler: TypeAlias = Callable[
    [JobRecovery], "JobRecoveryResult | Awaitable[JobRecoveryResult] | Awaitable[JobRecoveryResult | None] | None"
]
InterruptedHandler: TypeAlias = Callable[[JobInterrupted], object]  # an awaitable that an observer returns is awaited
RecoveredHandler: TypeAlias = Callable[[WorkerRecovered], object]
Handler: TypeAlias = Callable[[Any], Any]
RH = TypeVar("RH", bound=RecoveryHandler)
IH = TypeVar("IH", bound=InterruptedHandler)
WH = TypeVar("WH", bound=RecoveredHandler)
_HELP = "@hooks.on(JobRecovery) above a function of one argument"


class HookRegistry:
    """The handlers of each event, in the order in which they were registered."""

    def __init__(self) -> None:
        self._handlers: dict[type[Event], list[Handler]] = {event: [] for event in EVENTS}

    @overload
    def on(self, event: type[JobRecovery]) -> Callable[[RH], RH]: ...
    @overload
    def on(self, event: type[JobRecovery], handler: RecoveryHandler) -> RecoveryHandler: ...
    @overload
    def on(self, event: type[JobInterrupted]) -> Callable[[IH], IH]: ...
    @overload
    def on(self, event: type[JobInterrupted], handler: InterruptedHandler) -> InterruptedHandler: ...
    @overload
    def on(self, event: type[WorkerRecovered]) -> Callable[[WH], WH]: ...
    @overload
    def on(self, event: type[WorkerRecovered], handler: RecoveredHandler) -> RecoveredHandler: ...
    def on(self, event: Any, handler: Any = None) -> Any:
        """Register a plain or async function with one argument, the event. Without a function this is a decorator."""
        if not isinstance(event, type) or event not in self._handlers:
            raise misuse(_event_problem(event), _HELP, of=handler)
        if handler is None:
            return lambda function: self._add(event, function)
        return self._add(event, handler)

    def handlers(self, event: type[Event]) -> tuple[Handler, ...]:
        return tuple(self._handlers[event])

    def has(self, event: type[Event]) -> bool:
        return bool(self._handlers[event])

    def _add(self, event: type[Event], handler: Any) -> Any:
        if problem := _handler_problem(event, handler):
            raise misuse(problem, _HELP, of=handler)
        self._handlers[event].append(handler)
        return handler

    def __repr__(self) -> str:
        counts = ", ".join(f"{event.__name__}: {len(found)}" for event, found in self._handlers.items())
        return f"<HookRegistry {counts}>"


def name_of(handler: Any) -> str:
    """The name of a handler in messages."""
    return f"{getattr(handler, '__module__', '?')}.{getattr(handler, '__qualname__', type(handler).__name__)}"


def _event_problem(event: Any) -> str:
    name = event.__name__ if isinstance(event, type) else str(event)
    known = ", ".join(known.__name__ for known in EVENTS)
    if name in RESERVED:
        return f"the event {name} is reserved and cannot be used yet; the events are {known}"
    hint = f" (the class {name}, not its name)" if name in known.split(", ") else ""
    return f"{event!r} is not an event of recovery hooks; the events are {known}{hint}"


def _handler_problem(event: type[Event], handler: Any) -> str | None:
    who = f"a handler of {event.__name__}"
    if isinstance(handler, type) or not callable(handler):
        return f"{who} is a function of one argument, not {handler!r}"
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        return f"{who} returns its answer, but {name_of(handler)} is a generator"
    try:
        inspect.signature(handler).bind(object())
    except TypeError as problem:
        return f"{who} is called with one argument, but {name_of(handler)} cannot be: {problem}"
    except ValueError:  # a builtin without a signature
        return None
    return None
