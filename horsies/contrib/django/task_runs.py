"""Tasks of Django's own framework (`django.tasks`, or the package `django_tasks`) as tasks of ours: each is a task of
its own, named after its function (`shop.mail.welcome`), and its row has the arguments as Django normalised them. A row
never makes anybody import anything: a worker runs what was registered when Django's `@task` was applied, in the modules
that it has loaded anyway (X-20).

This module is about both frameworks alike: `Framework` has what they name differently.
"""

from __future__ import annotations

import os
import socket
from asyncio import CancelledError
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from inspect import iscoroutinefunction
from types import ModuleType
from typing import TYPE_CHECKING, Any

from django.utils import timezone

from horsies.core.codec.serde import loads_json, task_result_from_json
from horsies.core.models.tasks import TaskError, TaskResult
from horsies.core.tasks.context import AsyncTaskContext, StopTask, TaskContext
from horsies.core.tasks.execute import error_of_exception, now
from horsies.core.types import Ok, TaskStatus

if TYPE_CHECKING:
    from horsies.contrib.django.models import Task as Row
    from horsies.contrib.django.project import DjangoHorsies

EXCEPTION_CLASS = "exception_class"
NO_EXCEPTION = "horsies.TaskFailed"  # what ended without an exception: a crash, a timeout, a cancellation
ARGUMENTS = ("args", "kwargs", "using")
USING = ("priority", "backend", "run_after")
LOWEST, HIGHEST = -100, 100  # Django's priorities; 100 is first. Ours go from 100 to 1, and 1 is first.


@dataclass(frozen=True, slots=True)
class Framework:
    """`django.tasks` or `django_tasks`."""

    base: ModuleType
    signals: ModuleType
    invalid_task: type[Exception]
    no_such_result: type[Exception]
    normalize: Any


def our_priority(theirs: int) -> int:
    """-100 to 100 as 100 to 1: two neighbours share a place."""
    return max(1, (HIGHEST - theirs) // 2)


def using_of(defined: Any, task: Any) -> dict[str, Any]:
    """What this copy of a task has of its own (`using`), so that its result can tell. The row has the queue."""
    found: dict[str, Any] = {}
    if task.priority != defined.priority:
        found["priority"] = task.priority
    if task.backend != defined.backend:
        found["backend"] = task.backend
    if task.run_after is not None:
        found["run_after"] = task.run_after.isoformat()
    return found


def as_sent(task: Any, row: Row) -> Any:
    """The copy of the task that was sent."""
    found = _stored(row).get("using")
    return copy_of(task, row.queue_name, found if isinstance(found, Mapping) else {})


def copy_of(task: Any, queue_name: str, found: Mapping[str, Any]) -> Any:
    """The task as `using` has made it. Not by `using`, which would judge it again: the queues and backends of a project
    change, and what was sent stays what it was."""
    made = copy(task)
    using = {name: found[name] for name in USING if name in found} | {"queue_name": queue_name}
    if "run_after" in using:
        using["run_after"] = datetime.fromisoformat(using["run_after"])
    for name, value in using.items():
        object.__setattr__(made, name, value)
    return made


def status_of(row: Row) -> str:
    """The status that Django has for a state of ours."""
    if row.status in (TaskStatus.PENDING, TaskStatus.CLAIMED):
        return "READY"
    return {TaskStatus.RUNNING.value: "RUNNING", TaskStatus.COMPLETED.value: "SUCCESSFUL"}.get(row.status, "FAILED")


def call_of(row: Row) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of the function."""
    stored = _stored(row)
    return list(stored.get("args", ())), dict(stored.get("kwargs", {}))


def _stored(row: Row) -> Mapping[str, Any]:
    """The arguments of our task, by name."""
    by_name, by_place = loads_json(row.kwargs), loads_json(row.args)
    named = by_name.ok_value if isinstance(by_name, Ok) and isinstance(by_name.ok_value, Mapping) else {}
    placed = by_place.ok_value if isinstance(by_place, Ok) and isinstance(by_place.ok_value, list) else []
    return {**dict(zip(ARGUMENTS, placed, strict=False)), **named}


def result_from_row(framework: Framework, task: Any, row: Row, attempts: list[Any]) -> Any:
    """A row, and its attempts that have ended, as Django's `TaskResult`."""
    args, kwargs = call_of(row)
    status = status_of(row)
    workers = [str(attempt.worker_id) for attempt in attempts if attempt.worker_id]
    if status == "RUNNING" and row.claimed_by_worker_id:
        workers.append(row.claimed_by_worker_id)
    begun = [attempt.started_at for attempt in attempts if attempt.started_at]
    result = framework.base.TaskResult(
        task=task,
        id=row.id,
        status=framework.base.TaskResultStatus[status],
        enqueued_at=row.sent_at,
        started_at=begun[0] if begun else row.started_at,
        last_attempted_at=row.started_at or (begun[-1] if begun else None),
        finished_at=row.ended_at if status in ("SUCCESSFUL", "FAILED") else None,
        args=args,
        kwargs=kwargs,
        backend=task.backend,
        errors=list(_errors(framework, row, attempts, status)),
        worker_ids=workers,
    )
    if status == "SUCCESSFUL":
        read = task_result_from_json(row.result or "")
        object.__setattr__(result, "_return_value", read.ok_value.ok if isinstance(read, Ok) else None)
    return result


def _errors(framework: Framework, row: Row, attempts: list[Any], status: str) -> Any:
    """One for each attempt that failed; of the last one, everything is known."""
    failed = [attempt for attempt in attempts if attempt.error_code or attempt.error_message]
    earlier = failed[:-1] if status == "FAILED" else failed
    for attempt in earlier:
        text = attempt.error_message or attempt.error_code or ""
        yield framework.base.TaskError(exception_class_path=NO_EXCEPTION, traceback=text)
    if status == "FAILED":
        path, text = _last_error(row)
        yield framework.base.TaskError(exception_class_path=path, traceback=text)


def _last_error(row: Row) -> tuple[str, str]:
    read = task_result_from_json(row.result) if row.result else None
    error = read.ok_value.err if isinstance(read, Ok) else None
    if not isinstance(error, TaskError):
        return NO_EXCEPTION, row.failed_reason or row.error_code or row.status
    path = error.data.get(EXCEPTION_CLASS) if isinstance(error.data, Mapping) else None
    described = error.exception if isinstance(error.exception, Mapping) else {}
    return str(path or NO_EXCEPTION), str(described.get("traceback") or error.message or row.error_code or row.status)


class TaskRun:
    """One run of a function, with the signals of the framework around it."""

    def __init__(
        self, backend: Any, task: Any, ctx: TaskContext | AsyncTaskContext, args: list[Any], kwargs: dict[str, Any]
    ) -> None:
        self._backend = backend
        self._framework: Framework = backend.framework
        self._ours = ctx
        self._args, self._kwargs = args, kwargs
        self.task = task
        now = timezone.now()
        self.result = self._framework.base.TaskResult(
            task=task,
            id=ctx.task_id,
            status=self._framework.base.TaskResultStatus.RUNNING,
            enqueued_at=ctx.enqueued_at,
            started_at=now,
            last_attempted_at=now,
            finished_at=None,
            args=args,
            kwargs=kwargs,
            backend=task.backend,
            errors=[],
            worker_ids=[f"{socket.gethostname()}:{os.getpid()}"] * ctx.attempt,
        )

    @property
    def given(self) -> list[Any]:
        """What the function is called with."""
        context = [self._framework.base.TaskContext(task_result=self.result)] if self.task.takes_context else []
        return [*context, *self._args]

    def returned(self, value: Any) -> TaskResult[Any, TaskError]:
        normal = self._framework.normalize(value)
        self._end("SUCCESSFUL")
        object.__setattr__(self.result, "_return_value", normal)
        return TaskResult(ok=normal)

    def raised(self, app: DjangoHorsies, problem: BaseException) -> TaskResult[Any, TaskError]:
        error = error_of_exception(app.tasks[self._ours.task_name], problem)
        kind = type(problem)
        path = f"{kind.__module__}.{kind.__qualname__}"
        text = (error.exception or {}).get("traceback", "") if isinstance(error.exception, Mapping) else ""
        self._end("FAILED")
        self.result.errors.append(self._framework.base.TaskError(exception_class_path=path, traceback=text))
        return TaskResult(err=error.model_copy(update={"data": {EXCEPTION_CLASS: path}}))

    def _end(self, status: str) -> None:
        object.__setattr__(self.result, "finished_at", timezone.now())
        object.__setattr__(self.result, "status", self._framework.base.TaskResultStatus[status])

    async def tell(self, name: str) -> None:
        signal = getattr(self._framework.signals, name)
        if isinstance(self._ours, AsyncTaskContext):
            await signal.asend_robust(type(self._backend), task_result=self.result)
        else:
            signal.send_robust(type(self._backend), task_result=self.result)


def register(app: DjangoHorsies, backend: Any, task: Any) -> None:
    """Let workers run this task. Its copies (`using`) are the same one."""
    name = task.module_path
    known = app.django_tasks.get(name)
    app.django_tasks[name] = task if known is None or known.func is not task.func else known
    if name in app.tasks:
        return

    def run(
        ctx: TaskContext, args: list[Any], kwargs: dict[str, Any], using: dict[str, Any] | None = None
    ) -> TaskResult[Any, TaskError]:
        return now(_run(app, backend, ctx, args, kwargs, using))

    async def run_async(
        ctx: AsyncTaskContext, args: list[Any], kwargs: dict[str, Any], using: dict[str, Any] | None = None
    ) -> TaskResult[Any, TaskError]:
        return await _run(app, backend, ctx, args, kwargs, using)

    queue = None
    if app.task_queue_problem(None):  # every task must name its queue; each send names another one
        queue = task.queue_name if app.queue_problem(task.queue_name) is None else min(app.queue_names)
    app.task(name, queue_name=queue, **backend.task_options)(run_async if iscoroutinefunction(task.func) else run)


async def _run(
    app: DjangoHorsies,
    backend: Any,
    ctx: TaskContext | AsyncTaskContext,
    args: list[Any],
    kwargs: dict[str, Any],
    using: dict[str, Any] | None,
) -> TaskResult[Any, TaskError]:
    """Run the function. One that is a `def` waits for nothing in here."""
    this = TaskRun(backend, copy_of(app.django_tasks[ctx.task_name], ctx.queue, using or {}), ctx, args, kwargs)
    is_async = isinstance(ctx, AsyncTaskContext)
    if app.is_inline and ctx.attempt == 1:
        await this.tell("task_enqueued")
    await this.tell("task_started")
    try:
        value = this.task.func(*this.given, **kwargs)
        ended = this.returned(await value if is_async else value)
    except (StopTask, KeyboardInterrupt):
        raise
    except BaseException as problem:
        if is_async and isinstance(problem, CancelledError):
            raise
        ended = this.raised(app, problem)
        await this.tell("task_finished")  # in here, so that what logs it finds the exception
    else:
        await this.tell("task_finished")
    return ended
