"""What the backends for `django.tasks` and for `django_tasks` have in common. An `enqueue()` inside
`transaction.atomic()` is part of the transaction, and its task is run after the commit; outside, it is committed at
once. So there is nothing like `ENQUEUE_ON_COMMIT` to choose.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

from django.conf import settings
from django.core import checks
from django.db import connections
from django.utils import timezone

from horsies.contrib.django.models import Task as Row
from horsies.contrib.django.models import TaskAttempt
from horsies.contrib.django.project import project_app
from horsies.contrib.django.task_runs import Framework, as_sent, our_priority, register, result_from_row, using_of
from horsies.core.models.queues import QueueMode
from horsies.core.models.sending import TaskSendFailed
from horsies.core.producer.envelope import build, suppressed
from horsies.core.producer.failed_sends import watched
from horsies.core.task_decorator import TaskFunction
from horsies.core.tasks.definition import SendOptions
from horsies.core.types import Err, run_sync

if TYPE_CHECKING:
    from horsies.testing.inline import InlineTask

T = TypeVar("T")
AnyTaskFunction: TypeAlias = TaskFunction[Any, Any]
OPTIONS = ("retry_policy", "timeout_ms")


class RunsOnHorsies:
    """A backend, together with `BaseTaskBackend` of the framework."""

    framework: ClassVar[Framework]
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    # Of `BaseTaskBackend`.
    alias: str
    queues: set[str]
    options: dict[str, Any]

    @property
    def task_options(self) -> dict[str, Any]:
        """For all tasks of this backend: Django's tasks have no such options of their own."""
        return {name.lower(): value for name, value in self.options.items() if name.lower() in OPTIONS}

    def validate_task(self, task: Any) -> None:
        """Every task of Django's comes by here when it is defined, so here it is registered."""
        super().validate_task(task)  # type: ignore[misc]
        register(project_app(), self, task)

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        self.validate_task(task)
        app = project_app()
        if problem := app.queue_problem(task.queue_name):
            raise self.framework.invalid_task(f"Queue '{task.queue_name}' is not valid for backend: {problem}.")
        given = self.framework.normalize(list(args)), self.framework.normalize(dict(kwargs))
        due = task.run_after
        if due is not None and timezone.is_naive(due):
            due = timezone.make_aware(due)
        options: dict[str, Any] = {"priority": our_priority(task.priority), "eta": due}
        if app.config.queue_mode is QueueMode.CUSTOM:
            options["queue"] = task.queue_name
        defined = app.django_tasks[task.module_path]
        if task.backend != defined.backend:  # the task was registered with the options of the other one
            options |= self.task_options
        now = datetime.now(UTC)
        ours = app.tasks[task.module_path]
        task_id = _send(ours, SendOptions(**options), now, given, using_of(defined, task))
        if app.is_inline:
            return self.get_result(task_id)
        result = self.framework.base.TaskResult(
            task=task,
            id=task_id,
            status=self.framework.base.TaskResultStatus.READY,
            enqueued_at=now,
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=given[0],
            kwargs=given[1],
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        self.framework.signals.task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """From the row. It is read over Django's connection: what this transaction has sent is there."""
        app = project_app()
        inline = app.inline_tasks.get(result_id)
        row, attempts = (_row_of(inline), []) if inline is not None else _where_it_may_block(lambda: _read(result_id))
        if row is None:
            raise self.framework.no_such_result(result_id)
        if row.task_name not in app.django_tasks:
            app.know_all_tasks()
        task = app.django_tasks.get(row.task_name)
        if task is None:  # a task of ours, or one that this code does not have
            raise self.framework.no_such_result(result_id)
        result = result_from_row(self.framework, as_sent(task, row), row, attempts)
        if inline is not None:
            result.worker_ids.extend(["inline"] * (row.retry_count + 1))
        return result

    def check(self, **_: Any) -> list[checks.CheckMessage]:
        return [checks.Error(text, id="horsies.E004") for text in self._problems()]

    def _problems(self) -> Iterator[str]:
        if not any(entry.startswith("horsies.contrib.django") for entry in settings.INSTALLED_APPS):
            yield f"TASKS[{self.alias!r}] needs 'horsies.contrib.django' in INSTALLED_APPS"
        for name in self.options:
            if name.lower() not in OPTIONS:
                yield f"TASKS[{self.alias!r}]['OPTIONS'] has no option {name!r}; known are {', '.join(OPTIONS)}"


@run_sync
async def _send(ours: AnyTaskFunction, options: SendOptions, now: datetime, given: Any, using: Any) -> str:
    """Like `send_or_raise`, at a time that the caller knows: the result that he gets is equal to one that is read."""
    if ours.app.sends_suppressed:
        raise TaskSendFailed(suppressed(ours).err_value)
    payload = build(ours, (*given, using) if using else given, {}, options, now)
    sent = payload if isinstance(payload, Err) else await ours.app.sender.send(payload.value, ours)
    if isinstance(sent, Err):
        watched(ours.task_name, sent)
        raise TaskSendFailed(sent.error)
    return sent.value.task_id


def _read(result_id: str) -> tuple[Row | None, list[Any]]:
    # PostgreSQL takes no NUL; an id may come out of a URL.
    row = None if "\0" in result_id else Row.objects.filter(pk=result_id).first()
    return row, [] if row is None else list(TaskAttempt.objects.filter(task_id=row.id).order_by("attempt"))


def _where_it_may_block(read: Callable[[], T]) -> T:
    """Here; or, where a loop is running and Django's ORM refuses to block, in a thread that blocks for it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return read()

    def aside() -> T:
        try:
            return read()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1, "horsies result") as thread:
        return thread.submit(aside).result()


def _row_of(task: InlineTask) -> Row:
    """A task that ran inline, as its row would be."""
    sent, payload = task.sent, task.send.payload
    return Row(
        id=sent.task_id,
        task_name=sent.task_name,
        queue_name=sent.queue,
        status=task.status.value,
        kwargs=payload.kwargs_json,
        args=payload.args_json,
        result=task.result,
        error_code=task.error_code,
        retry_count=task.retry_count,
        sent_at=sent.sent_at,
        enqueued_at=sent.due_at,
        started_at=task.started_at,
        ended_at=task.ended_at,
    )
