"""Inline mode (X-11): no database. A send encodes its arguments, decodes them again and runs the task at once, in this
process; an attempt that would be retried is retried without waiting, and the handle has the result.

The sends of an app go through its `Sender`, and everything else through its broker. Inside an inline block both are
replaced: `InlineSender` runs what is sent, and `InlineBroker` answers questions about these tasks from memory. What
needs a database (workflows, schedules at run time, monitoring, sends by name) is refused, and says so.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from horsies.core.brokers.actions import Cancel, TaskActionError, TaskActionErrorCode, TaskActionResult
from horsies.core.brokers.postgres import KnowsTasks, PostgresBroker
from horsies.core.db import Bridge, OperationRefused
from horsies.core.models import broker, tasks
from horsies.core.producer import bulk, enqueue
from horsies.core.producer.hub import Hub
from horsies.core.producer.send import AnyTask, Sender, Written, failure, failure_of_many
from horsies.core.producer.waiter import Ending, TimedOut
from horsies.core.recovery.decide import expired
from horsies.core.store.many import TaskState
from horsies.core.store.sends import Drafts, EndedTask, Send
from horsies.core.tasks.context import packed
from horsies.core.tasks.moves import Claim, Fail, Retry, retry_or_fail
from horsies.core.types import Err, Ok, TaskStatus
from horsies.testing.running import Ways, run_here
from horsies.testing.sent import SentRow

if TYPE_CHECKING:
    from horsies.core.tasks.definition import CallerConnection

NO_DATABASE = (
    "there is no database inside app.testing.inline(); use app.testing.drain() on a database of the test "
    "(the fixture horsies_app) for workflows, schedules, monitoring and sends by name"
)


RELEASING = (TaskStatus.FAILED, TaskStatus.EXPIRED, TaskStatus.CANCELLED)  # with `reuse_after_failure`


@dataclass(slots=True)
class InlineTask:
    """A task that was sent inline, and how far it has come."""

    send: Send
    sent: SentRow
    status: TaskStatus = TaskStatus.PENDING
    result: str | None = None
    error_code: str | None = None
    retry_count: int = 0
    max_retries: int = 0
    started_at: datetime | None = None
    ended_at: datetime | None = None


class InlineSender(Sender):
    """Runs what is sent. A `connection=` is not used: nothing is written that could be rolled back."""

    def __init__(self, inline_broker: InlineBroker, ways: Ways) -> None:
        super().__init__(inline_broker)
        self._ways = ways
        self._sent = inline_broker.tasks

    def stream(self, sent_at: datetime) -> bulk.Stream:
        return _NoStream()

    async def _send(self, send: Send, task: AnyTask, connection: CallerConnection | None) -> Written:
        try:
            return Ok([await self._take(send, task)])
        except enqueue.SendMismatchError as problem:
            return Err(failure(send, problem))

    async def _send_all(
        self, sends: Sequence[Send], task: AnyTask, connection: CallerConnection | None, stream: bulk.Stream | None
    ) -> Written:
        try:
            for place, send in enumerate(sends):  # all or none: nothing runs if one of them is refused
                self._known(send, place)
        except enqueue.SendMismatchError as problem:
            return Err(failure_of_many(sends, problem))
        return Ok([await self._take(send, task) for send in sends])

    def _known(self, send: Send, place: int = 0) -> InlineTask | None:
        """The task that was sent with the same idempotency key; `SendMismatchError` if it has other arguments."""
        new = send.payload
        if new.idempotency_key is None:
            return None
        for known in reversed(self._sent.values()):
            old = known.send.payload
            if (old.task_name, old.idempotency_key) != (new.task_name, new.idempotency_key):
                continue
            if new.reuse_after_failure and known.status in RELEASING:
                return None
            if (old.args_json, old.kwargs_json) != (new.args_json, new.kwargs_json):
                text = f"idempotency key {new.idempotency_key!r} belongs to a task with other arguments"
                raise enqueue.SendMismatchError(place, text)
            return known
        return None

    async def _take(self, send: Send, task: AnyTask) -> str:
        """Run it; the id of the task, which is that of an earlier one with the same key."""
        if (known := self._known(send)) is not None:
            return known.sent.task_id
        record = self._sent[send.task_id] = InlineTask(send, _row(send))
        await _run(record, task, self._ways)
        return send.task_id


class InlineBroker(PostgresBroker):
    """Knows the tasks of the block; everything else it refuses."""

    def __init__(self, config: broker.PostgresConfig, app: KnowsTasks) -> None:
        super().__init__(config, app=app)
        self.bridge = _NoBridge(_refuse, dispose=Hub.close)
        self.tasks: dict[str, InlineTask] = {}  # what was sent inside the block, in order

    def rows(self) -> list[SentRow]:
        return [task.sent for task in self.tasks.values()]

    def open(self) -> broker.BrokerResult[None]:
        """There is nothing to open, so a server whose lifespan does that starts without a database."""
        return Ok(None)

    async def open_async(self) -> broker.BrokerResult[None]:
        return self.open()

    async def wait_async(self, task_id: str, timeout_ms: int | None = None) -> Ending:
        found = self.tasks.get(task_id)
        if found is None:
            return EndedTask(task_id, None, None, None, None)
        if not found.status.is_terminal:
            return TimedOut()  # it runs at this moment, and whoever waits for it is called by it
        return EndedTask(task_id, found.sent.task_name, found.status, found.result, None)

    async def read_row(
        self, task_id: str, include_result: bool, include_failed_reason: bool, include_attempts: bool
    ) -> broker.BrokerResult[dict[str, Any] | None]:
        found = self.tasks.get(task_id)
        return Ok(None if found is None else _columns(found, include_result=include_result))

    async def cancel_task_async(self, task_id: str, *, include_running: bool = False) -> TaskActionResult:
        found = self.tasks.get(task_id)
        state = None if found is None else TaskState(found.status, None, found.sent.queue, found.sent.priority)
        running = TaskActionError(TaskActionErrorCode.TASK_NOT_CANCELLABLE, f"task {task_id} is running here", task_id)
        return Err(Cancel().refusal(task_id, state) or running)


async def _run(record: InlineTask, task: AnyTask, ways: Ways) -> None:
    """All attempts of a task, one after the other."""
    payload = record.send.payload
    options = tasks.TaskOptions.from_json(payload.task_options)
    record.max_retries = options.max_retries
    record.started_at = datetime.now(UTC)
    if payload.good_until is not None and payload.good_until <= record.started_at:
        record.result, record.status = expired(Claim(record.sent.task_id, 1), "inline").result, TaskStatus.EXPIRED
        return
    record.status = TaskStatus.RUNNING
    while True:
        claim = Claim(record.sent.task_id, record.retry_count + 1)
        due = record.sent.due_at.timestamp()
        facts = packed(*claim, record.retry_count + 1, payload.queue_name, due, options.timeout_ms)
        report = (await run_here(task, payload.args_json, payload.kwargs_json, facts, ways)).report
        fail = Fail(claim, report.result, report.error_code, report.error_message)
        move = None if report.ok else retry_or_fail(fail, options.retry_policy, record.retry_count, options.max_retries)
        if not isinstance(move, Retry):
            break
        record.retry_count += 1
    record.result, record.error_code, record.ended_at = report.result, report.error_code, datetime.now(UTC)
    record.status = TaskStatus.COMPLETED if report.ok else TaskStatus.FAILED


def _row(send: Send) -> SentRow:
    payload = send.payload
    due = payload.sent_at + timedelta(seconds=payload.enqueue_delay_seconds or 0.0)
    return SentRow(
        send.task_id, payload.task_name, payload.queue_name, payload.priority, payload.args_json, payload.kwargs_json,
        payload.sent_at, due, payload.good_until, payload.idempotency_key, None,
    )  # fmt: skip


def _columns(task: InlineTask, *, include_result: bool) -> dict[str, Any]:
    """What the row of the task would contain."""
    sent, flags = task.sent, task.send.payload.flags_json
    known = {
        "task_id": sent.task_id,
        "task_name": sent.task_name,
        "status": task.status,
        "queue_name": sent.queue,
        "priority": sent.priority,
        "retry_count": task.retry_count,
        "max_retries": task.max_retries,
        "sent_at": sent.sent_at,
        "enqueued_at": sent.due_at,
        "claimed_at": task.started_at,
        "started_at": task.started_at,
        "completed_at": task.ended_at if task.status is TaskStatus.COMPLETED else None,
        "failed_at": task.ended_at if task.status is TaskStatus.FAILED else None,
        "error_code": task.error_code,
        "good_until": sent.good_until,
        "flags": json.loads(flags) if flags else {},
        "result": task.result if include_result else None,
    }
    return dict.fromkeys(column.name for column in fields(tasks.TaskInfo)) | known


class _NoStream(bulk.Stream):
    """Nothing is written while a `send_many` encodes."""

    def __init__(self) -> None:
        pass

    def put(self, part: Drafts | None) -> None:
        pass

    async def end(self) -> None:
        pass

    def drop(self) -> None:
        pass


class _NoBridge(Bridge[Hub]):
    """There is no loop that talks to a database; a call that needs one learns why."""

    def _running(self) -> NoReturn:
        _refuse()


def _refuse() -> NoReturn:
    raise OperationRefused(broker.BrokerErrorCode.DB_OPERATION_FAILED, NO_DATABASE)
