"""How a task is sent: by itself, with options, and many at once. `task.with_options(...)` is a task with a deadline, an
idempotency key, flags or a connection for its sends; it is immutable and reusable. `collect` turns the calls of a
`send_many` into payloads: everything is bound, checked and encoded before anything is written, and the first wrong call
is the error, with its position. `send.py` writes the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeAlias, TypeVar, Unpack, final

from horsies.core import tracing
from horsies.core.models.failures import Refused
from horsies.core.models.sending import Draft
from horsies.core.models.tasks import TaskSendResult
from horsies.core.producer import bulk, enqueue, envelope
from horsies.core.producer.failed_sends import watched
from horsies.core.producer.send import TaskHandle
from horsies.core.store.sends import Drafts
from horsies.core.tasks.definition import (
    NO_OPTIONS,
    Delay,
    SendOptionArgs,
    SendOptions,
    TaskDefinition,
    flags_of,
    given,
)
from horsies.core.text import refuse_unknown
from horsies.core.types import Err, pause, run_sync

if TYPE_CHECKING:
    from horsies.core.task_decorator import TaskFunction


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
) -> Drafts:
    """What to write for the calls; `Refused` says what is wrong with the first bad one. Others need an event loop
    meanwhile. The stream gets each part as soon as it is encoded."""
    made = Drafts([], [])
    written = 0
    new_ids = enqueue.new_task_ids()
    for draft in _each(task, calls, options, sent_at):
        made.ids.append(next(new_ids))
        made.drafts.append(draft)
        if len(made) % AT_A_TIME == 0:
            if stream is not None and len(made) - written == bulk.PART:
                stream.put(made.part(written, len(made)))
                written = len(made)
            await pause(0)
    if stream is not None:
        stream.put(made.part(written, len(made)))
    return made


def _each(task: TaskDefinition[Any, Any], calls: Any, options: SendOptions, sent_at: datetime) -> Iterator[Draft]:
    try:
        options = _for_all(calls, options)
    except ValueError as problem:
        raise envelope.refused(task, str(problem), problem) from None
    # The calls that have no key share this; a key that may be reused belongs to a call of its own.
    shared = envelope.frame(task, replace(options, reuse_after_failure=False), sent_at)
    for position, call in enumerate(calls):
        try:
            made = _draft(shared, call, options)
        except Refused as refusal:
            whose = f"task {task.task_name!r}: "
            message = f"{whose}calls[{position}]: {refusal.error.message.removeprefix(whose)}"
            raise Refused(replace(refusal.error, message=message, position=position)) from None
        yield made


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


def _draft(shared: envelope.Frame, call: Any, options: SendOptions) -> Draft:
    task = shared.task
    if isinstance(call, tuple):
        return envelope.fill(shared, call, {})
    if isinstance(call, PreparedTask):
        return _prepared(shared, call, options)
    if not isinstance(call, Mapping):
        raise envelope.refused(task, f"{_A_CALL}, not {type(call).__name__}")
    if not all(isinstance(name, str) for name in call):
        raise envelope.refused(task, "the names of keyword arguments must be strings")
    if envelope.has_deadline(task, call):
        return envelope.draft(task, (), call, options, shared.fields["sent_at"])
    return envelope.fill(shared, (), dict(call))


_A_CALL = "a call is a tuple of positional arguments, a dict of keyword arguments or a task.prepare(...)"


def _prepared(shared: envelope.Frame, call: PreparedTask[Any, Any], options: SendOptions) -> Draft:
    task = shared.task
    if call.task.task_name != task.task_name:
        raise envelope.refused(task, f"it was prepared for task {call.task.task_name!r}")
    if call.options.connection is not None and call.options.connection is not options.connection:
        raise envelope.refused(task, "it was prepared with a different connection than the send_many")
    if call.options is NO_OPTIONS and not envelope.has_deadline(task, call.kwargs):
        return envelope.fill(shared, call.args, dict(call.kwargs))
    try:
        own = call.options.with_defaults(options)
    except ValueError as problem:
        raise envelope.refused(task, str(problem), problem) from None
    return envelope.draft(task, call.args, dict(call.kwargs), own, shared.fields["sent_at"])


class Sends(Generic[P, T]):
    """The ways of sending a task, with the options that its sends have."""

    __slots__ = ()

    _task: TaskFunction[P, T]
    _send_options: SendOptions

    def with_options(self, **options: Unpack[SendOptionArgs]) -> TaskSendOptions[P, T]:
        """The task with options for its sends: a deadline, an idempotency key, flags, another queue, priority, time
        limit or retry policy, the time when it is due, or your connection. With a connection of psycopg, SQLAlchemy or
        asyncpg, the task becomes part of your transaction. None removes an option that was set before."""
        refuse_unknown("with_options", options, SendOptionArgs.__optional_keys__)
        return TaskSendOptions(self._task, replace(self._send_options, **options))

    async def send_async(self, *args: P.args, **kwargs: P.kwargs) -> TaskSendResult[TaskHandle[T]]:
        """Enqueue the task. A `good_until=` among the arguments is its deadline, if the function has no such
        parameter."""
        return await self._dispatch(None, args, kwargs)

    send = run_sync(send_async)

    async def send_or_raise_async(self, *args: P.args, **kwargs: P.kwargs) -> TaskHandle[T]:
        """Enqueue the task, or raise `TaskSendFailed`."""
        return (await self._dispatch(None, args, kwargs)).unwrap()

    send_or_raise = run_sync(send_or_raise_async)

    async def schedule_async(self, delay: Delay, *args: P.args, **kwargs: P.kwargs) -> TaskSendResult[TaskHandle[T]]:
        """Enqueue the task to run after `delay`: seconds, a `timedelta`, or the `datetime` at which it is due."""
        return await self._dispatch(given(delay), args, kwargs)

    schedule = run_sync(schedule_async)

    def prepare(self, *args: P.args, **kwargs: P.kwargs) -> PreparedTask[P, T]:
        """A call with these options, for `send_many`."""
        return PreparedTask(self._task, args, MappingProxyType(dict(kwargs)), self._send_options)

    async def send_many_async(self, calls: Iterable[Call[P, T]]) -> TaskSendResult[list[TaskHandle[T]]]:
        """Enqueue a task for each call, all or none; the handles are in the same order. A call is a tuple of positional
        arguments, a dict of keyword arguments, or a `prepare(...)`, which a type checker can check and whose options
        override these."""
        return watched(self._task.task_name, await self._write_many(calls))

    send_many = run_sync(send_many_async)

    async def _dispatch(
        self, delay: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> TaskSendResult[TaskHandle[T]]:
        """Build the payload and write it."""
        task, options, sent_at = self._task, self._send_options, datetime.now(UTC)
        if task.app.sends_suppressed:
            return envelope.suppressed(task)
        payload = envelope.build(task, args, kwargs, options, sent_at, delay)
        if isinstance(payload, Err):
            return watched(task.task_name, payload)
        sent = await task.app.sender.send(payload.value, task, connection=options.connection)
        return watched(task.task_name, sent) if isinstance(sent, Err) else sent

    async def _write_many(self, calls: Iterable[Call[P, T]]) -> TaskSendResult[list[TaskHandle[T]]]:
        """Build all payloads and write them together; nothing is committed before all are known to be right."""
        task, options, sent_at = self._task, self._send_options, datetime.now(UTC)
        if task.app.sends_suppressed:
            return envelope.suppressed(task)
        stream = task.app.sender.stream(sent_at) if may_begin(calls, options) else None
        try:
            batch = await collect(task, calls, options, sent_at, stream)
            return await task.app.sender.send_many(batch, task, connection=options.connection, stream=stream)
        except Refused as refusal:
            return Err(refusal.error)
        finally:
            if stream is not None:
                stream.drop()


@dataclass(frozen=True, slots=True)
class TaskSendOptions(Sends[P, T]):
    """A task with options for its sends."""

    _task: TaskFunction[P, T]
    _send_options: SendOptions
