"""`@app.task` and what it makes of a function: a `TaskFunction` that can be called, sent and scheduled.

The decorator checks everything that can be known at definition time and reports all mistakes at once.
`tasks/execute.py` runs tasks; `producer/envelope.py` (`producer/many.py` for many) builds what is sent, and
`producer/send.py` writes it. `node_factory.py` makes nodes of workflows.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeAlias, TypeVar, overload

from horsies.core.codec.serde import TaskCodec
from horsies.core.errors import ConfigurationError, ErrorCode, SourceLocation, TaskDefinitionError, ValidationReport
from horsies.core.exception_mapper import default_code_problems, mapper_problems
from horsies.core.models import queues, tasks
from horsies.core.node_factory import MakesNodes, NodeFactory
from horsies.core.producer import envelope, many
from horsies.core.producer.failed_sends import watched
from horsies.core.producer.send import TaskHandle
from horsies.core.store.sends import Send
from horsies.core.tasks import definition, execute
from horsies.core.tasks.context import AsyncTaskContext, TaskContext
from horsies.core.text import OF_TASKS, about_unknown, explains_keywords
from horsies.core.types import Err, Ok, Result, run_sync

if TYPE_CHECKING:
    from horsies.core.app import Horsies
    from horsies.core.tasks.definition import CallerConnection

P = ParamSpec("P")
T = TypeVar("T")
AnyResult: TypeAlias = tasks.TaskResult[T, tasks.TaskError]
__all__ = ["AsyncTaskFunction", "NodeFactory", "TaskDecorator", "TaskFunction"]
MAX_NAME_LENGTH = 255


class TaskFunction(definition.TaskDefinition[P, T], MakesNodes[P, T]):
    """A task: call it to run it in this process, send it to run it in a worker."""

    def __init__(self, app: Horsies, fn: Callable[..., Any], **facts: Any) -> None:
        super().__init__(fn, **facts)
        self.app = app
        functools.update_wrapper(self, fn)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> tasks.TaskResult[T, tasks.TaskError]:
        """Run the function in this process, as a worker would, without a row, a retry or a queue."""
        return execute.now(execute.call(self, args, kwargs))

    async def send_async(self, *args: P.args, **kwargs: P.kwargs) -> tasks.TaskSendResult[TaskHandle[T]]:
        """Enqueue the task. A `good_until=` among the arguments is its deadline, if the function has no such
        parameter."""
        return await self.dispatch(definition.NO_OPTIONS, None, args, kwargs)

    send = run_sync(send_async)

    async def send_or_raise_async(self, *args: P.args, **kwargs: P.kwargs) -> TaskHandle[T]:
        """Enqueue the task, or raise `TaskSendFailed`."""
        return (await self.dispatch(definition.NO_OPTIONS, None, args, kwargs)).unwrap()

    send_or_raise = run_sync(send_or_raise_async)

    async def schedule_async(
        self, delay: definition.Delay, *args: P.args, **kwargs: P.kwargs
    ) -> tasks.TaskSendResult[TaskHandle[T]]:
        """Enqueue the task to run after `delay`: seconds, a `timedelta`, or the `datetime` at which it is due."""
        return await self.dispatch(definition.NO_OPTIONS, definition.given(delay), args, kwargs)

    schedule = run_sync(schedule_async)

    async def send_many_async(self, calls: Iterable[many.Call[P, T]]) -> tasks.TaskSendResult[list[TaskHandle[T]]]:
        """Enqueue a task for each call, all or none; the handles are in the same order. A call is a tuple of positional
        arguments, a dict of keyword arguments, or a `prepare(...)`, which a type checker can check."""
        return await self.dispatch_many(definition.NO_OPTIONS, calls)

    send_many = run_sync(send_many_async)

    def prepare(self, *args: P.args, **kwargs: P.kwargs) -> many.PreparedTask[P, T]:
        """A call for `send_many`."""
        return many.prepared(self, args, kwargs, definition.NO_OPTIONS)

    @explains_keywords
    def with_options(
        self,
        *,
        good_until: datetime | None = None,
        idempotency_key: str | None = None,
        flags: definition.Flags | None = None,
        connection: CallerConnection | None = None,
        queue: str | None = None,
        priority: int | None = None,
        timeout_ms: int | None = None,
        retry_policy: tasks.RetryPolicy | None = None,
        eta: datetime | None = None,
        delay: float | timedelta | None = None,
        reuse_after_failure: bool = False,
    ) -> many.TaskSendOptions[P, T]:
        """The task with options for its sends: a deadline, an idempotency key, flags, another queue, priority, time
        limit or retry policy, the time when it is due, or your connection. With a connection of psycopg, SQLAlchemy or
        asyncpg, the task becomes part of your transaction."""
        options = definition.SendOptions(
            good_until, idempotency_key, flags, connection, queue, priority, timeout_ms, retry_policy, eta, delay,
            reuse_after_failure,
        )  # fmt: skip
        return many.TaskSendOptions(self, options)

    async def retry_send_async(self, error: tasks.TaskSendError) -> tasks.TaskSendResult[TaskHandle[T]]:
        """Repeat a `send` that failed with ENQUEUE_FAILED: same id, same payload."""
        return await self._replay(error, scheduled=False)

    retry_send = run_sync(retry_send_async)

    async def retry_schedule_async(self, error: tasks.TaskSendError) -> tasks.TaskSendResult[TaskHandle[T]]:
        """Repeat a `schedule` that failed with ENQUEUE_FAILED: same id, same payload, same due time."""
        return await self._replay(error, scheduled=True)

    retry_schedule = run_sync(retry_schedule_async)

    async def retry_send_many_async(self, error: tasks.TaskSendError) -> tasks.TaskSendResult[list[TaskHandle[T]]]:
        """Repeat a `send_many` that failed with ENQUEUE_FAILED: same ids, same payloads, all or none."""
        again = self._again_many(error)
        sent = await self.app.sender.send_many(again.value, self) if isinstance(again, Ok) else again
        return watched(self.task_name, sent)

    retry_send_many = run_sync(retry_send_many_async)

    async def dispatch(
        self, options: definition.SendOptions, delay: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tasks.TaskSendResult[TaskHandle[T]]:
        """Build the payload and write it; all ways of sending use this."""
        payload = self._payload(options, delay, args, kwargs)
        if isinstance(payload, Err):
            return watched(self.task_name, payload)
        sent = await self.app.sender.send(payload.value, self, connection=options.connection)
        return watched(self.task_name, sent) if isinstance(sent, Err) else sent

    async def dispatch_many(
        self, options: definition.SendOptions, calls: Iterable[many.Call[P, T]]
    ) -> tasks.TaskSendResult[list[TaskHandle[T]]]:
        """Build all payloads and write them together; nothing is committed before all are known to be right."""
        return watched(self.task_name, await self._write_many(options, calls))

    async def _write_many(
        self, options: definition.SendOptions, calls: Iterable[many.Call[P, T]]
    ) -> tasks.TaskSendResult[list[TaskHandle[T]]]:
        sent_at = datetime.now(UTC)
        if self.app.sends_suppressed:
            return envelope.suppressed(self)
        stream = self.app.sender.stream(sent_at) if many.may_begin(calls, options) else None
        try:
            batch = await many.collect(self, calls, options, sent_at, stream)
            if isinstance(batch, Err):
                return batch
            return await self.app.sender.send_many(batch.value, self, connection=options.connection, stream=stream)
        finally:
            if stream is not None:
                stream.drop()

    def _payload(
        self, options: definition.SendOptions, delay: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Result[tasks.TaskSendPayload, tasks.TaskSendError]:
        sent_at = datetime.now(UTC)
        if self.app.sends_suppressed:
            return envelope.suppressed(self)
        return envelope.build(self, args, kwargs, options, sent_at, delay)

    async def _replay(self, error: tasks.TaskSendError, *, scheduled: bool) -> tasks.TaskSendResult[TaskHandle[T]]:
        again = self._again(error, scheduled)
        if isinstance(again, Err):
            return watched(self.task_name, again)
        return watched(self.task_name, await self.app.sender.send(again.value[1], self, task_id=again.value[0]))

    def _again(
        self, error: tasks.TaskSendError, scheduled: bool
    ) -> Result[tuple[str, tasks.TaskSendPayload], tasks.TaskSendError]:
        if self.app.sends_suppressed:
            return envelope.suppressed(self)
        return envelope.replay(self, error, scheduled=scheduled)

    def _again_many(self, error: tasks.TaskSendError) -> Result[list[Send], tasks.TaskSendError]:
        if self.app.sends_suppressed:
            return envelope.suppressed(self)
        return envelope.replay_many(self, error).map(lambda batch: [Send(*one) for one in batch])

    def __repr__(self) -> str:
        return f"<task {self.task_name!r} on queue {self.queue_name!r}>"


class AsyncTaskFunction(TaskFunction[P, T]):
    """A task whose function is `async def`: calling it gives an awaitable."""

    def __call__(  # type: ignore[override]
        self, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, tasks.TaskResult[T, tasks.TaskError]]:
        return execute.call(self, args, kwargs)


@dataclass(frozen=True, slots=True)
class TaskDecorator:
    """`@app.task(...)` before it is applied to its function."""

    app: Horsies
    task_name: Any
    queue_name: Any
    retry_policy: Any
    exception_mapper: Any
    default_unhandled_error_code: Any
    timeout_ms: Any
    flags: Any
    accepts: Any
    on_undecodable: Any
    unknown: Mapping[str, Any]

    # A context comes first, and is no argument of `send`; a `TaskResult` goes before any other value.
    @overload
    def __call__(
        self, fn: Callable[Concatenate[AsyncTaskContext, P], Coroutine[Any, Any, AnyResult[T]]], /
    ) -> AsyncTaskFunction[P, T]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[TaskContext, P], AnyResult[T]], /) -> TaskFunction[P, T]: ...
    @overload
    def __call__(
        self, fn: Callable[Concatenate[AsyncTaskContext, P], Coroutine[Any, Any, T]], /
    ) -> AsyncTaskFunction[P, T]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[TaskContext, P], T], /) -> TaskFunction[P, T]: ...
    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, AnyResult[T]]], /) -> AsyncTaskFunction[P, T]: ...
    @overload
    def __call__(self, fn: Callable[P, AnyResult[T]], /) -> TaskFunction[P, T]: ...
    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, T]], /) -> AsyncTaskFunction[P, T]: ...
    @overload
    def __call__(self, fn: Callable[P, T], /) -> TaskFunction[P, T]: ...
    def __call__(self, fn: Callable[..., Any], /) -> TaskFunction[Any, Any]:
        if self.task_name is None and inspect.isfunction(fn):
            return replace(self, task_name=default_name(fn))(fn)
        report = ValidationReport(phase="the definition of a task")
        for message, code in self._problems(fn):
            kind = ConfigurationError if code is ErrorCode.CONFIG_INVALID_EXCEPTION_MAPPER else TaskDefinitionError
            location = SourceLocation.from_function(fn) or SourceLocation.of_caller()
            report.add(kind(message, code=code, location=location))
        names = _names_around()
        codec = None
        if inspect.isfunction(fn):
            try:
                accepts = () if definition.accepts_problem(self.accepts) else self.accepts
                codec = definition.codec_if_ready(fn, names, accepts)
            except TaskDefinitionError as error:
                report.add(error)
        report.raise_if_any()
        task = self._define(fn, codec, names)
        self.app.register(task)
        return task

    def _define(
        self, fn: Callable[..., Any], codec: TaskCodec | None, names: Mapping[str, Any]
    ) -> TaskFunction[Any, Any]:
        kind = AsyncTaskFunction if inspect.iscoroutinefunction(fn) else TaskFunction
        config = self.app.config
        queue = self.queue_name if self.queue_name is not None else queues.DEFAULT_QUEUE
        return kind(
            self.app,
            fn,
            task_name=self.task_name,
            queue_name=queue,
            priority=config.priority_of(queue),
            options=tasks.TaskOptions(self.retry_policy, self.timeout_ms),
            flags=definition.flags_of(self.flags),
            exception_mapper=self.exception_mapper or {},
            app_exception_mapper=config.exception_mapper,
            default_unhandled_error_code=self.default_unhandled_error_code,
            app_default_unhandled_error_code=config.default_unhandled_error_code,
            sizes=self.app.sizes,
            hooks=self.app.task_hooks,
            known_queues={name: config.priority_of(name) for name in self.app.queue_names},
            codec=codec,
            local_names=names,
            accepts=self.accepts,
            leave_undecodable_ms=config.recovery.unknown_task_grace_ms if self.on_undecodable == "leave" else 0,
        )

    def _problems(self, fn: Any) -> Iterator[tuple[str, ErrorCode]]:
        yield from _function_problems(fn)
        yield from _name_problems(self.task_name)
        for option in self.unknown:
            known = [each.name for each in fields(self) if each.name not in ("app", "unknown")]
            text = f"@app.task() has no option {option!r}{about_unknown(option, known, OF_TASKS)}"
            yield text, ErrorCode.TASK_INVALID_OPTIONS
        if problem := self.app.task_queue_problem(self.queue_name):
            yield problem, ErrorCode.TASK_INVALID_QUEUE
        if self.retry_policy is not None and not isinstance(self.retry_policy, tasks.RetryPolicy):
            yield "retry_policy must be a RetryPolicy", ErrorCode.TASK_INVALID_OPTIONS
        if self.timeout_ms is not None and not tasks.is_timeout(self.timeout_ms):
            text = f"timeout_ms must be an integer from {tasks.MIN_TIMEOUT_MS} to {tasks.MAX_TIMEOUT_MS} (a year)"
            yield text, ErrorCode.TASK_INVALID_OPTIONS
        if problem := definition.accepts_problem(self.accepts):
            yield problem, ErrorCode.TASK_INVALID_OPTIONS
        if self.on_undecodable not in ("fail", "leave"):
            yield "on_undecodable must be 'fail' or 'leave'", ErrorCode.TASK_INVALID_OPTIONS
        try:
            definition.flags_of(self.flags)
        except (ValueError, TypeError) as problem:
            yield str(problem), ErrorCode.TASK_INVALID_OPTIONS
        for text in mapper_problems(self.exception_mapper or {}):
            yield text, ErrorCode.CONFIG_INVALID_EXCEPTION_MAPPER
        if self.default_unhandled_error_code is not None:
            for text in default_code_problems(self.default_unhandled_error_code):
                yield text, ErrorCode.CONFIG_INVALID_EXCEPTION_MAPPER


def default_name(fn: Callable[..., Any]) -> str:
    """`module.function` (X-02). A program that is run as a script has the name under which a worker imports it."""
    module = fn.__module__
    if module == "__main__":
        main = sys.modules["__main__"]
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        module = spec.name if spec is not None else Path(file).stem if file else module
    return f"{module}.{fn.__qualname__.replace('<locals>.', '')}"


_PREDECORATED = ErrorCode.TASK_PREDECORATED_NOT_SUPPORTED


def _function_problems(fn: Any) -> Iterator[tuple[str, ErrorCode]]:
    if isinstance(fn, TaskFunction):
        yield f"{fn!r} is already a task; give each app its own function", _PREDECORATED
    elif hasattr(fn, "__wrapped__"):
        yield "@app.task must be directly above the function: another decorator has wrapped it", _PREDECORATED
    elif not inspect.isfunction(fn):
        yield f"a task must be a plain function, not {type(fn).__name__}", _PREDECORATED
    elif inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        yield "a task returns one TaskResult and cannot be a generator", ErrorCode.TASK_INVALID_RETURN_TYPE


def _name_problems(name: Any) -> Iterator[tuple[str, ErrorCode]]:
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME_LENGTH or not name.isprintable():
        text = f"a task name must have 1 to {MAX_NAME_LENGTH} printable characters: @app.task('name')"
        yield text, ErrorCode.TASK_INVALID_OPTIONS


def _names_around() -> dict[str, Any]:
    """Names that the annotations of a nested function may use: those of the scope that defines it."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("horsies.core."):
        frame = frame.f_back
    is_function_scope = frame.f_code.co_name != "<module>"
    return dict(frame.f_locals) if is_function_scope else {}
