"""Sends with options, and many sends at once. `task.with_options(...)` is a task with a deadline, an idempotency key,
flags or a connection for its sends; it is immutable and reusable. `collect` turns the calls of a `send_many` into
payloads: everything is bound, checked and encoded before anything is written, and the first wrong call is the error,
with its position. `send.py` writes the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeAlias, TypeVar, final

from horsies.core import tracing
from horsies.core.models.sending import Draft, RetryPolicy
from horsies.core.models.tasks import TaskSendError, TaskSendResult
from horsies.core.producer import bulk, enqueue, envelope
from horsies.core.producer.send import TaskHandle
from horsies.core.store.sends import Drafts
from horsies.core.tasks.definition import NO_OPTIONS, Delay, Flags, SendOptions, TaskDefinition, flags_of, given
from horsies.core.text import explains_keywords
from horsies.core.types import Err, Ok, Result, pause, run_sync

if TYPE_CHECKING:
    from horsies.core.task_decorator import TaskFunction
    from horsies.core.tasks.definition import CallerConnection


P = ParamSpec("P")
T = TypeVar("T")

# So many calls are encoded before the event loop gets its turn.
AT_A_TIME = 200


@final
@dataclass(frozen=True, slots=True)
class PreparedTask(Generic[P, T]):
    """A call of a task with its own options, made by `task.prepare(...)`. It is checked when it is sent."""

    task: TaskDefinition[P, T]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    options: SendOptions


def prepared(
    task: TaskDefinition[P, T], args: tuple[Any, ...], kwargs: Mapping[str, Any], options: SendOptions
) -> PreparedTask[P, T]:
    """The call as an immutable value."""
    return PreparedTask(task, args, MappingProxyType(dict(kwargs)), options)


Call: TypeAlias = PreparedTask[P, T] | tuple[Any, ...] | Mapping[str, Any]


def may_begin(calls: Any, options: SendOptions) -> bool:
    """Whether parts may be written while later calls are encoded. Not if that runs an iterator of the caller's, which
    may take its time or send something itself: no transaction waits for that. Calls with keys are written in the order
    of all their keys, and a span is around the writing only."""
    if type(calls) not in (list, tuple) or len(calls) <= bulk.PART:
        return False
    if options.connection is not None or tracing.is_on():
        return False
    return not any(isinstance(call, PreparedTask) and call.options.idempotency_key is not None for call in calls)


async def collect(
    task: TaskDefinition[P, T],
    calls: Iterable[Call[P, T]],
    options: SendOptions,
    sent_at: datetime,
    stream: bulk.Stream | None = None,
) -> Result[Drafts, TaskSendError]:
    """What to write for the calls, or what is wrong with the first bad one. Others need an event loop meanwhile. The
    stream gets each part as soon as it is encoded."""
    made = Drafts([], [])
    written = 0
    new_ids = enqueue.new_task_ids()
    for draft in _each(task, calls, options, sent_at):
        if isinstance(draft, TaskSendError):
            return Err(draft)
        made.ids.append(next(new_ids))
        made.drafts.append(draft)
        if len(made) % AT_A_TIME == 0:
            if stream is not None and len(made) - written == bulk.PART:
                stream.put(made.part(written, len(made)))
                written = len(made)
            await pause(0)
    if stream is not None:
        stream.put(made.part(written, len(made)))
    return Ok(made)


def _each(
    task: TaskDefinition[Any, Any], calls: Any, options: SendOptions, sent_at: datetime
) -> Iterator[Draft | TaskSendError]:
    try:
        options = _for_all(calls, options)
    except ValueError as problem:
        yield envelope.refused(task, str(problem), problem).error
        return
    # The calls that have no key share this; a key that may be reused belongs to a call of its own.
    shared = envelope.frame(task, replace(options, reuse_after_failure=False), sent_at)
    if isinstance(shared, Err):
        yield shared.error
        return
    for position, call in enumerate(calls):
        made = _draft(shared.value, call, options)
        yield _at(position, task, made) if isinstance(made, TaskSendError) else made


def _for_all(calls: Any, options: SendOptions) -> SendOptions:
    if not isinstance(calls, Iterable):
        raise ValueError(f"send_many takes a list of calls, not {type(calls).__name__}")
    if options.idempotency_key is not None:
        raise ValueError(
            "an idempotency key belongs to one task: give each call its own with "
            "task.with_options(idempotency_key=...).prepare(...)"
        )
    # Flags may be an iterator, but they are needed more than once.
    return options if options.flags is None else replace(options, flags=flags_of(options.flags))


def _draft(shared: envelope.Frame, call: Any, options: SendOptions) -> Draft | TaskSendError:
    task = shared.task
    if isinstance(call, tuple):
        return envelope.fill(shared, call, {})
    if isinstance(call, PreparedTask):
        return _prepared(shared, call, options)
    if not isinstance(call, Mapping):
        return envelope.refused(task, f"{_A_CALL}, not {type(call).__name__}").error
    if not all(isinstance(name, str) for name in call):
        return envelope.refused(task, "the names of keyword arguments must be strings").error
    if envelope.has_deadline(task, call):
        return envelope.draft(task, (), call, options, shared.fields["sent_at"])
    return envelope.fill(shared, (), dict(call))


_A_CALL = "a call is a tuple of positional arguments, a dict of keyword arguments or a task.prepare(...)"


def _prepared(shared: envelope.Frame, call: PreparedTask[Any, Any], options: SendOptions) -> Draft | TaskSendError:
    task = shared.task
    if call.task.task_name != task.task_name:
        return envelope.refused(task, f"it was prepared for task {call.task.task_name!r}").error
    if call.options.connection is not None and call.options.connection is not options.connection:
        return envelope.refused(task, "it was prepared with a different connection than the send_many").error
    if call.options is NO_OPTIONS and not envelope.has_deadline(task, call.kwargs):
        return envelope.fill(shared, call.args, dict(call.kwargs))
    try:
        own = call.options.with_defaults(options)
    except ValueError as problem:
        return envelope.refused(task, str(problem), problem).error
    return envelope.draft(task, call.args, dict(call.kwargs), own, shared.fields["sent_at"])


def _at(position: int, task: TaskDefinition[Any, Any], error: TaskSendError) -> TaskSendError:
    whose = f"task {task.task_name!r}: "
    return replace(error, message=f"{whose}calls[{position}]: {error.message.removeprefix(whose)}", position=position)


class _Unset:
    """Not given, which is not the same as None."""


_UNSET: Final = _Unset()


@dataclass(frozen=True, slots=True)
class TaskSendOptions(Generic[P, T]):
    """A task with options for its sends."""

    _task: TaskFunction[P, T]
    options: SendOptions

    @explains_keywords
    def with_options(
        self,
        *,
        good_until: datetime | _Unset | None = _UNSET,
        idempotency_key: str | _Unset | None = _UNSET,
        flags: Flags | _Unset | None = _UNSET,
        connection: CallerConnection | _Unset | None = _UNSET,
        queue: str | _Unset | None = _UNSET,
        priority: int | _Unset | None = _UNSET,
        timeout_ms: int | _Unset | None = _UNSET,
        retry_policy: RetryPolicy | _Unset | None = _UNSET,
        eta: datetime | _Unset | None = _UNSET,
        delay: float | timedelta | _Unset | None = _UNSET,
        reuse_after_failure: bool | _Unset = _UNSET,
    ) -> TaskSendOptions[P, T]:
        """A copy with some options changed; None removes an earlier one."""
        given = {
            "good_until": good_until,
            "idempotency_key": idempotency_key,
            "flags": flags,
            "connection": connection,
            "queue": queue,
            "priority": priority,
            "timeout_ms": timeout_ms,
            "retry_policy": retry_policy,
            "eta": eta,
            "delay": delay,
            "reuse_after_failure": reuse_after_failure,
        }
        changed: dict[str, Any] = {name: value for name, value in given.items() if value is not _UNSET}
        return TaskSendOptions(self._task, replace(self.options, **changed))

    async def send_async(self, *args: P.args, **kwargs: P.kwargs) -> TaskSendResult[TaskHandle[T]]:
        """Enqueue the task."""
        return await self._task.dispatch(self.options, None, args, kwargs)

    send = run_sync(send_async)

    async def send_or_raise_async(self, *args: P.args, **kwargs: P.kwargs) -> TaskHandle[T]:
        """Enqueue the task, or raise `TaskSendFailed`."""
        return (await self._task.dispatch(self.options, None, args, kwargs)).unwrap()

    send_or_raise = run_sync(send_or_raise_async)

    async def schedule_async(self, delay: Delay, *args: P.args, **kwargs: P.kwargs) -> TaskSendResult[TaskHandle[T]]:
        """Enqueue the task to run after `delay`: seconds, a `timedelta`, or the `datetime` at which it is due."""
        return await self._task.dispatch(self.options, given(delay), args, kwargs)

    schedule = run_sync(schedule_async)

    def prepare(self, *args: P.args, **kwargs: P.kwargs) -> PreparedTask[P, T]:
        """A call with these options, for `send_many`."""
        return prepared(self._task, args, kwargs, self.options)

    async def send_many_async(self, calls: Iterable[Call[P, T]]) -> TaskSendResult[list[TaskHandle[T]]]:
        """Enqueue a task for each call, all or none. Options of a prepared call override these options."""
        return await self._task.dispatch_many(self.options, calls)

    send_many = run_sync(send_many_async)
