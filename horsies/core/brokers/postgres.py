"""The public face of the queue for those who send, wait and look. Thin: each method is written once, async, and runs on
the bridge's loop; its blocking twin is a line. Results are decoded in the caller's own thread,
because decoding runs validators of the user's types.

A program that only sends and waits does not load the code of the other methods: recovery, actions, statistics.
"""

from __future__ import annotations

import contextlib
import copy
import os
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, Self

from horsies.core.codec.shapes import ResultCodec
from horsies.core.db import Bridge, BridgeError, OperationRefused, as_broker_result, on_bridge
from horsies.core.models import broker
from horsies.core.models.recovery import RecoveryConfig, WorkerRecoveryConfig
from horsies.core.models.tasks import TaskInfo, TaskOptions, TaskSendPayload
from horsies.core.producer import envelope, waiter
from horsies.core.producer.enqueue import Mismatch, SendOutcome, new_task_id
from horsies.core.producer.hub import Hub, can_exist
from horsies.core.producer.reads import Reads
from horsies.core.store import notes, sends
from horsies.core.store.sends import Send
from horsies.core.types import Err, Ok, TaskStatus, run_sync

if TYPE_CHECKING:
    from horsies.core.brokers.actions import TaskActionResult
    from horsies.core.hooks import HookRegistry
    from horsies.core.models.app import AppConfig
    from horsies.core.models.notes import LogPlace
    from horsies.core.tasks.moves import InFlight

_DB = broker.BrokerErrorCode.DB_OPERATION_FAILED
LONGEST_THRESHOLD = timedelta(days=36_500)


class KnowsTasks(Protocol):
    """What the broker and its users need from an app: the codecs of its tasks, its settings and its hooks."""

    @property
    def tasks(self) -> Mapping[str, Any]: ...
    @property
    def config(self) -> AppConfig: ...
    @property
    def hooks(self) -> HookRegistry: ...
    @property
    def sends_suppressed(self) -> bool: ...


class PostgresBroker(Reads):
    """The queue in a PostgreSQL database. It works without an app; values are then plain JSON."""

    def __init__(self, config: broker.PostgresConfig, *, app: KnowsTasks | None = None) -> None:
        self.config = config
        self.app = app
        self._installs = True
        self.bridge: Bridge[Hub] = Bridge(
            lambda: Hub(self.config, installs=self._installs), dispose=Hub.close, name="horsies broker"
        )

    def _reads(self) -> PostgresBroker:
        return self

    def knowing(self, app: KnowsTasks) -> Self:
        """The same connections with an app: whoever closes one of the two closes the other."""
        same = copy.copy(self)
        same.app = app
        return same

    def only_look(self) -> None:
        """From now on, do not create or upgrade tables. This is for programs that only read."""
        self._installs = False

    @property
    def hub(self) -> Hub:
        """What this process keeps open. This is for code that runs on the bridge."""
        return self.bridge.here()

    def close(self) -> None:
        """Close every connection of this process. The next call opens them again."""
        self.bridge.close()

    async def close_async(self) -> None:
        """Close every connection of this process. The next call opens them again."""
        await self.bridge.close_async()

    @as_broker_result(broker.BrokerErrorCode.SCHEMA_INIT_FAILED)
    @on_bridge
    async def open_async(self) -> None:
        """Connect now instead of at the first call, and make sure that the tables are there."""
        async with self.hub.connection():
            pass

    open = run_sync(open_async)

    def stop_waiting(self) -> None:
        """Every call of this process that waits for a result ends now with `WAIT_INTERRUPTED`, and later ones after one
        look, until the connections are closed. The tasks go on. It can be called from any thread, and from a signal
        handler."""
        self.bridge.tell(Hub.interrupt_waits)

    @property
    def has_stopped_waiting(self) -> bool:
        hub = self.bridge.peek()
        return hub is not None and hub.is_interrupted

    @as_broker_result(broker.BrokerErrorCode.SCHEMA_INIT_FAILED)
    @on_bridge
    async def ensure_schema_initialized(self) -> None:
        """Create the tables, or bring them up to this version, unless that has been done."""
        await self.hub.ready()

    ensure_schema_initialized_sync = run_sync(ensure_schema_initialized)

    async def write(self, send: Send) -> SendOutcome:
        """Write a row; raise what goes wrong. This is for code that runs on the bridge."""
        return await self.hub.writer.write(send)

    async def write_all(self, sends: Sequence[Send]) -> list[str]:
        """Write many rows or none; raise what goes wrong; return their ids. This is for code that runs on the
        bridge."""
        return await self.hub.writer.write_all(sends)

    async def enqueue_async(
        self,
        task: str | TaskSendPayload,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        queue_name: str = "default",
        priority: int = 100,
        good_until: datetime | None = None,
        delay: int | None = None,
        options: TaskOptions | None = None,
        flags: Mapping[str, bool] | None = None,
        idempotency_key: str | None = None,
        task_id: str | None = None,
    ) -> broker.BrokerResult[str]:
        """Send a task by name, or an existing payload; `Ok` contains the id of its row."""
        if isinstance(task, TaskSendPayload):
            return await self._enqueue_payload(task, task_id)
        if problem := envelope.number_problem(priority, delay):
            return Err(broker.BrokerOperationError(broker.BrokerErrorCode.ENQUEUE_FAILED, problem))
        made = envelope.payload_for(
            task,
            args,
            kwargs,
            queue_name=queue_name,
            priority=priority,
            good_until=good_until,
            delay=delay,
            options=options,
            flags=flags,
            idempotency_key=idempotency_key,
        )
        if not isinstance(made, Ok):
            return Err(broker.BrokerOperationError(broker.BrokerErrorCode.INVALID_JSON_PAYLOAD, made.error.message))
        return await self._enqueue_payload(made.value, task_id)

    enqueue = run_sync(enqueue_async)

    @as_broker_result(broker.BrokerErrorCode.ENQUEUE_FAILED)
    @on_bridge
    async def _enqueue_payload(self, payload: TaskSendPayload, task_id: str | None) -> str:
        if not envelope.is_intact(payload):
            raise OperationRefused(broker.BrokerErrorCode.PAYLOAD_MISMATCH, "the payload does not fit its fingerprint")
        verdict = await self.write(Send(task_id or new_task_id(), payload))
        if isinstance(verdict, Mismatch):
            raise OperationRefused(broker.BrokerErrorCode.PAYLOAD_MISMATCH, verdict.reason)
        return verdict.task_id

    async def wait_async(self, task_id: str, timeout_ms: int | None = None) -> waiter.Ending:
        """How a task ends, according to the database; `read_ending` turns this into a result."""
        try:
            return await self._wait(task_id, waiter.patience_s(timeout_ms))
        except BridgeError as problem:
            return waiter.Unreachable(problem)

    wait = run_sync(wait_async)

    @on_bridge
    async def _wait(self, task_id: str, timeout: float | None) -> waiter.Ending:
        return await self.hub.wait_for(task_id, timeout)

    def read_ending(
        self, task_id: str, ending: waiter.Ending, codec: ResultCodec | None
    ) -> tuple[waiter.AnyResult, bool]:
        """The result of an ending, and whether it is final."""
        return waiter.result_of(task_id, ending, codec), waiter.is_final(ending)

    async def get_result_async(self, task_id: str, timeout_ms: int | None = None) -> waiter.AnyResult:
        """Wait for a task by its id (T-61). The value has its type if the task is registered here; otherwise it is
        JSON."""
        return self._read_any(task_id, await self.wait_async(task_id, timeout_ms))

    get_result = run_sync(get_result_async)

    async def get_typed_result_async(
        self, task_id: str, timeout_ms: int | None = None
    ) -> broker.BrokerResult[waiter.AnyResult]:
        """The same for callers that need the type: failures of the database and unknown types are `Err` (T-64)."""
        return waiter.typed_result_of(task_id, await self.wait_async(task_id, timeout_ms), self._codec_of)

    get_typed_result = run_sync(get_typed_result_async)

    def _read_any(self, task_id: str, ending: waiter.Ending) -> waiter.AnyResult:
        name = ending.task_name if isinstance(ending, sends.EndedTask) else None
        return waiter.result_of(task_id, ending, self._codec_of(name))

    def _codec_of(self, task_name: str | None) -> ResultCodec | None:
        task = self.app.tasks.get(task_name) if self.app is not None and task_name is not None else None
        return None if task is None else task.codec.result

    @as_broker_result(_DB)
    @on_bridge
    async def read_row(
        self, task_id: str, include_result: bool, include_failed_reason: bool, include_attempts: bool
    ) -> dict[str, Any] | None:
        """The row of a task, for `get_task_info`."""
        if not can_exist(task_id):
            return None
        from horsies.core.store import task_reads

        async with self.hub.connection() as conn:
            row = await task_reads.info(
                conn, task_id, include_result=include_result, include_failed_reason=include_failed_reason
            )
            if row is not None:
                row["attempts"] = await task_reads.attempts(conn, task_id) if include_attempts else None
                row["progress"] = (await notes.progress(conn, [task_id])).get(task_id)
            return row

    def info_of(self, row: dict[str, Any] | None) -> TaskInfo | None:
        """What a row of `read_row` says."""
        if row is None:
            return None
        if (text := row["result"]) is not None:
            ended = sends.EndedTask(row["task_id"], row["task_name"], row["status"], text, row["failed_reason"])
            row["result"] = self._read_any(row["task_id"], ended)
        return TaskInfo(**row)

    @as_broker_result(_DB)
    @on_bridge
    async def read_logs_async(self, task_id: str, after: LogPlace = notes.START, most: int | None = None) -> notes.Page:
        """What a task has logged since that place (P-51a)."""
        if not can_exist(task_id):
            return notes.Page([], after, is_last=True)
        async with self.hub.connection() as conn:
            return await notes.logs(conn, task_id, after, most)

    read_logs = run_sync(read_logs_async)

    async def cancel_task_async(self, task_id: str, *, include_running: bool = False) -> TaskActionResult:
        """Cancel a task that has not ended (M-48)."""
        from horsies.core.brokers.actions import Cancel, act_on_one

        return await act_on_one(self, Cancel(include_running), task_id)

    cancel_task = run_sync(cancel_task_async)

    @as_broker_result(_DB)
    @on_bridge
    async def get_worker_stats(self) -> list[dict[str, Any]]:
        """For each process that runs tasks: how many, since when, and its last sign of life."""
        from horsies.core.store import workers

        async with self.hub.connection() as conn:
            return await workers.stats(conn)

    @as_broker_result(_DB)
    @on_bridge
    async def get_stale_tasks(self, stale_threshold_minutes: float = 2) -> list[dict[str, Any]]:
        """The RUNNING tasks without a heartbeat for longer than the threshold (R-91)."""
        from horsies.core.recovery import apply

        recovery, sweeping = self._recovery
        return await apply.list_stale(self.hub, recovery, sweeping, _patience(minutes=stale_threshold_minutes))

    get_stale_tasks_sync = run_sync(get_stale_tasks)

    @as_broker_result(_DB)
    @on_bridge
    async def mark_stale_tasks_as_failed(self, stale_threshold_ms: int = 300_000) -> int:
        """Retry or fail these tasks, each by its own policy, as after a crash of its worker; return how many (R-91,
        R-20)."""
        return sum([len(step) async for step in self._recover(TaskStatus.RUNNING, stale_threshold_ms)])

    mark_stale_tasks_as_failed_sync = run_sync(mark_stale_tasks_as_failed)

    @as_broker_result(_DB)
    @on_bridge
    async def requeue_stale_claimed(self, stale_threshold_ms: int = 120_000) -> int:
        """Return CLAIMED tasks without a heartbeat for longer than the threshold to the queue; return how many (R-91,
        R-19)."""
        steps = self._recover(TaskStatus.CLAIMED, stale_threshold_ms)
        return sum([not task.is_overdue async for step in steps for task in step])

    requeue_stale_claimed_sync = run_sync(requeue_stale_claimed)

    @as_broker_result(_DB)
    @on_bridge
    async def get_expired_tasks(self) -> list[dict[str, Any]]:
        """The PENDING tasks whose deadline has passed (R-91); a worker will expire them soon."""
        from horsies.core.recovery import apply

        return await apply.list_overdue(self.hub)

    get_expired_tasks_sync = run_sync(get_expired_tasks)

    async def _recover(self, status: TaskStatus, threshold_ms: int) -> AsyncIterator[list[InFlight]]:
        from horsies.core.recovery import apply, reconcile
        from horsies.core.recovery.hooks import NoHooks

        recovery, sweeping = self._recovery
        me, threshold = f"broker:{socket.gethostname()}:{os.getpid()}", _patience(milliseconds=threshold_ms)
        steps = apply.recover_stale(self.hub, status, recovery, sweeping, NoHooks(), me=me, threshold=threshold)
        async for step in steps:
            await reconcile.advance_ended(self.hub, apply.of_workflows(step))
            yield step

    @property
    def _recovery(self) -> tuple[RecoveryConfig, WorkerRecoveryConfig]:
        if self.app is None:
            return RecoveryConfig(), WorkerRecoveryConfig()
        return self.app.config.recovery, self.app.config.worker_recovery


def _patience(**duration: float) -> timedelta:
    """`ValueError` for what PostgreSQL could not subtract from the time of day."""
    with contextlib.suppress(OverflowError):
        threshold = timedelta(**duration)
        if timedelta(0) <= threshold <= LONGEST_THRESHOLD:
            return threshold
    raise ValueError(f"a threshold must be a duration from zero to {LONGEST_THRESHOLD.days} days")
