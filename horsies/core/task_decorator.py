"""`@app.task` and what it makes of a function: a `TaskFunction` that can be called, sent and scheduled.

The decorator checks everything that can be known at definition time and reports all mistakes at once.
`tasks/execute.py` runs tasks; `producer/many.py` has the ways of sending them, and `node_factory.py` makes nodes of
workflows.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeAlias, TypedDict, TypeVar, overload

from horsies.core.codec import arguments
from horsies.core.codec.serde import TaskCodec
from horsies.core.errors import ConfigurationError, ErrorCode, SourceLocation, TaskDefinitionError, ValidationReport
from horsies.core.exception_mapper import default_code_problems, mapper_problems
from horsies.core.models import queues, tasks
from horsies.core.models.failures import Refused
from horsies.core.node_factory import MakesNodes, NodeFactory
from horsies.core.producer import envelope
from horsies.core.producer.failed_sends import watched
from horsies.core.producer.many import Sends
from horsies.core.producer.send import TaskHandle
from horsies.core.store.sends import Send
from horsies.core.tasks import definition, execute
from horsies.core.tasks.context import AsyncTaskContext, TaskContext
from horsies.core.text import OF_TASKS, about_unknown
from horsies.core.types import Err, run_sync

if TYPE_CHECKING:
    from horsies.core.app import Horsies

P = ParamSpec("P")
T = TypeVar("T")
AnyResult: TypeAlias = tasks.TaskResult[T, tasks.TaskError]
__all__ = ["AsyncTaskFunction", "NodeFactory", "TaskDecorator", "TaskFunction"]
MAX_NAME_LENGTH = 255
_OF_MAPPERS = (ErrorCode.CONFIG_INVALID_EXCEPTION_MAPPER, ErrorCode.CHECK_RESERVED_CODE_COLLISION)


class TaskFunction(definition.TaskDefinition[P, T], Sends[P, T], MakesNodes[P, T]):
    """A task: call it to run it in this process, send it to run it in a worker."""

    _send_options = definition.NO_OPTIONS

    def __init__(self, app: Horsies, fn: Callable[..., Any], **facts: Any) -> None:
        super().__init__(fn=fn, **facts)
        self.app = app
        self._task = self
        functools.update_wrapper(self, fn)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> tasks.TaskResult[T, tasks.TaskError]:
        """Run the function in this process, as a worker would, without a row, a retry or a queue."""
        return execute.now(execute.call(self, args, kwargs))

    async def retry_send_async(self, error: tasks.TaskSendError) -> tasks.TaskSendResult[TaskHandle[T]]:
        """Repeat a `send` or a `send_many` that failed with ENQUEUE_FAILED: same ids, same payloads. The handle is that
        of the task, or of the first of many; `error.batch` has the ids of all."""
        return watched(self.task_name, await self._replay(error, scheduled=False))

    retry_send = run_sync(retry_send_async)

    async def retry_schedule_async(self, error: tasks.TaskSendError) -> tasks.TaskSendResult[TaskHandle[T]]:
        """Repeat a `schedule` that failed with ENQUEUE_FAILED: same id, same payload, same due time."""
        return watched(self.task_name, await self._replay(error, scheduled=True))

    retry_schedule = run_sync(retry_schedule_async)

    async def _replay(self, error: tasks.TaskSendError, *, scheduled: bool) -> tasks.TaskSendResult[TaskHandle[T]]:
        if self.app.sends_suppressed:
            return envelope.suppressed(self)
        try:
            again = envelope.replay(self, error, scheduled=scheduled)
        except Refused as refusal:
            return Err(refusal.error)
        if error.batch:
            sends = [Send(task_id, payload) for task_id, payload in again]
            return (await self.app.sender.send_many(sends, self)).map(lambda handles: handles[0])
        [(task_id, payload)] = again
        return await self.app.sender.send(payload, self, task_id=task_id)

    def __repr__(self) -> str:
        return f"<task {self.task_name!r} on queue {self.queue_name!r}>"


class AsyncTaskFunction(TaskFunction[P, T]):
    """A task whose function is `async def`: calling it gives an awaitable."""

    def __call__(  # type: ignore[override]
        self, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, tasks.TaskResult[T, tasks.TaskError]]:
        return execute.call(self, args, kwargs)


class TaskOptionArgs(TypedDict, total=False):
    """The options of `@app.task(...)`. `accepts` are functions with older signatures of the task, which return the
    arguments of today; `on_undecodable="leave"` leaves a task whose arguments cannot be read to other workers for a
    while."""

    queue_name: str | None
    retry_policy: tasks.RetryPolicy | None
    exception_mapper: dict[type[BaseException], str] | None
    default_unhandled_error_code: str | None
    timeout_ms: int | None
    flags: definition.Flags | None
    accepts: Sequence[Callable[..., Any]]
    on_undecodable: Literal["fail", "leave"]


@dataclass(frozen=True, slots=True)
class TaskDecorator:
    """`@app.task(...)` before it is applied to its function."""

    app: Horsies
    task_name: Any
    options: Mapping[str, Any]  # `TaskOptionArgs`, until they are checked

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
            kind = ConfigurationError if code in _OF_MAPPERS else TaskDefinitionError
            location = SourceLocation.from_function(fn) or SourceLocation.of_caller()
            report.add(kind(message, code=code, location=location))
        names = arguments.names_around()
        codec = None
        if inspect.isfunction(fn):
            try:
                accepts = self.options.get("accepts", ())
                accepts = () if definition.accepts_problem(accepts) else accepts
                codec = definition.build_codec(fn, names, accepts)
            except NameError:
                pass  # it is built at the first use
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
        config, given = self.app.config, self.options.get
        queue = given("queue_name") or queues.DEFAULT_QUEUE
        leaves = given("on_undecodable") == "leave"
        return kind(
            self.app,
            fn,
            task_name=self.task_name,
            queue_name=queue,
            priority=config.priority_of(queue),
            options=tasks.TaskOptions(given("retry_policy"), given("timeout_ms")),
            flags=definition.flags_of(given("flags")),
            exception_mapper=dict(given("exception_mapper") or {}),
            app_exception_mapper=config.exception_mapper,
            default_unhandled_error_code=given("default_unhandled_error_code"),
            app_default_unhandled_error_code=config.default_unhandled_error_code,
            sizes=self.app.sizes,
            hooks=self.app.task_hooks,
            known_queues={name: config.priority_of(name) for name in self.app.queue_names},
            ready_codec=codec,
            local_names=names,
            accepts=tuple(given("accepts", ())),
            leave_undecodable_ms=config.recovery.unknown_task_grace_ms if leaves else 0,
        )

    def _problems(self, fn: Any) -> Iterator[tuple[str, ErrorCode]]:
        yield from _function_problems(fn)
        name, given = self.task_name, self.options.get
        if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME_LENGTH or not name.isprintable():
            text = f"a task name must have 1 to {MAX_NAME_LENGTH} printable characters: @app.task('name')"
            yield text, ErrorCode.TASK_INVALID_OPTIONS
        known = {"task_name", *TaskOptionArgs.__optional_keys__}
        for option in [option for option in self.options if option not in known]:
            text = f"@app.task() has no option {option!r}{about_unknown(option, known, OF_TASKS)}"
            yield text, ErrorCode.TASK_INVALID_OPTIONS
        if problem := self.app.task_queue_problem(given("queue_name")):
            yield problem, ErrorCode.TASK_INVALID_QUEUE
        if not isinstance(given("retry_policy"), tasks.RetryPolicy | None):
            yield "retry_policy must be a RetryPolicy", ErrorCode.TASK_INVALID_OPTIONS
        if given("timeout_ms") is not None and not tasks.is_timeout(given("timeout_ms")):
            text = f"timeout_ms must be an integer from {tasks.MIN_TIMEOUT_MS} to {tasks.MAX_TIMEOUT_MS} (a year)"
            yield text, ErrorCode.TASK_INVALID_OPTIONS
        if problem := definition.accepts_problem(given("accepts", ())):
            yield problem, ErrorCode.TASK_INVALID_OPTIONS
        if given("on_undecodable", "fail") not in ("fail", "leave"):
            yield "on_undecodable must be 'fail' or 'leave'", ErrorCode.TASK_INVALID_OPTIONS
        try:
            definition.flags_of(given("flags"))
        except (ValueError, TypeError) as problem:
            yield str(problem), ErrorCode.TASK_INVALID_OPTIONS
        yield from mapper_problems(given("exception_mapper") or {})
        if given("default_unhandled_error_code") is not None:
            yield from default_code_problems(given("default_unhandled_error_code"))


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
