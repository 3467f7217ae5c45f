"""The public interface of the queue for programs that send, wait and read.

It is thin: each method is written once, async, and runs on the bridge's loop; its blocking and awaiting twins are one
line each. Results are decoded in the caller's own thread, because decoding runs validators of the user's types.
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Protocol

from horsies.core.brokers import endings, pings
from horsies.core.brokers.endings import AnyResult
from horsies.core.brokers.hub import Hub, can_exist
from horsies.core.brokers.results import as_broker_result, broker_error, failure
from horsies.core.brokers.waiter import Ending, Unreachable
from horsies.core.codec.fingerprint import is_intact
from horsies.core.codec.results import ResultCodec
from horsies.core.hooks import HookRegistry
from horsies.core.lifecycle.recovery import InFlight
from horsies.core.models.app import AppConfig
from horsies.core.models.broker import (
    BrokerErrorCode,
    BrokerOperationError,
    BrokerResult,
    DatabasePing,
    PostgresConfig,
    WorkerPong,
    WorkerStateSnapshot,
)
from horsies.core.models.recovery import RecoveryConfig, WorkerRecoveryConfig
from horsies.core.models.tasks import TaskInfo, TaskOptions, TaskSendPayload
from horsies.core.monitoring.actions import TaskActionResult, action_failed, cancel, why_not_cancelled
from horsies.core.producer.enqueue import Mismatch, Verdict
from horsies.core.producer.ids import new_task_id
from horsies.core.producer.plain import payload_for
from horsies.core.recovery import stale
from horsies.core.recovery.asking import NoHooks
from horsies.core.recovery.ended import of_workflows
from horsies.core.recovery.reconcile import advance_ended
from horsies.core.store import results, worker_states
from horsies.core.store.sends import Send
from horsies.core.sync import Bridge, BridgeError, on_bridge, run_sync
from horsies.core.types.result import Err, Ok
from horsies.core.types.status import TaskStatus
from horsies.core.types.texts import can_be_stored

_DB = BrokerErrorCode.DB_OPERATION_FAILED


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


def _loop_failed(error: BridgeError) -> Err[BrokerOperationError]:
    return Err(broker_error(BrokerErrorCode.LOOP_RUNNER_FAILED, error))


class PostgresBroker:
    """The queue in a PostgreSQL database. It works without an app; values are then plain JSON."""

    def __init__(self, config: PostgresConfig, *, app: KnowsTasks | None = None) -> None:
        self.config = config
        self.app = app
        self._installs = True
        self.bridge: Bridge[Hub] = Bridge(self._make_hub, dispose=Hub.close, name="horsies broker")

    def _make_hub(self) -> Hub:
        return Hub(self.config, installs=self._installs)

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

    @as_broker_result(BrokerErrorCode.SCHEMA_INIT_FAILED)
    async def _ensure_schema(self) -> None:
        await self.hub.ready()

    ensure_schema_initialized = on_bridge(_ensure_schema, failed=_loop_failed)
    ensure_schema_initialized_sync = run_sync(_ensure_schema, failed=_loop_failed)

    async def write(self, send: Send) -> Verdict:
        """Write a row; raise what goes wrong. This is for code that runs on the bridge."""
        return await self.hub.writer.write(send)

    async def write_all(self, sends: Sequence[Send]) -> list[str]:
        """Write many rows or none; raise what goes wrong; return their ids. This is for code that runs on the
        bridge."""
        return await self.hub.writer.write_all(sends)

    async def _enqueue(
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
    ) -> BrokerResult[str]:
        """Send a task by name, or an existing payload; `Ok` contains the id of its row."""
        if isinstance(task, TaskSendPayload):
            return await self._enqueue_payload(task, task_id)
        made = payload_for(
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
            return Err(BrokerOperationError(BrokerErrorCode.INVALID_JSON_PAYLOAD, made.error.message))
        return await self._enqueue_payload(made.value, task_id)

    enqueue = run_sync(_enqueue, failed=_loop_failed)
    enqueue_async = on_bridge(_enqueue, failed=_loop_failed)

    async def _enqueue_payload(self, payload: TaskSendPayload, task_id: str | None) -> BrokerResult[str]:
        if not is_intact(payload):
            return Err(
                BrokerOperationError(BrokerErrorCode.PAYLOAD_MISMATCH, "the payload does not fit its fingerprint")
            )
        try:
            verdict = await self.write(Send(task_id or new_task_id(), payload))
        except Exception as problem:
            return Err(failure(BrokerErrorCode.ENQUEUE_FAILED, problem))
        if isinstance(verdict, Mismatch):
            return Err(BrokerOperationError(BrokerErrorCode.PAYLOAD_MISMATCH, verdict.reason))
        return Ok(verdict.task_id)

    async def _wait(self, task_id: str, timeout_ms: int | None = None) -> Ending:
        """How a task ends, according to the database; `read_ending` turns this into a result."""
        return await self.hub.wait_for(task_id, None if timeout_ms is None else max(0.0, timeout_ms / 1000))

    wait = run_sync(_wait, failed=Unreachable)
    wait_async = on_bridge(_wait, failed=Unreachable)

    def read_ending(self, task_id: str, ending: Ending, codec: ResultCodec | None) -> tuple[AnyResult, bool]:
        """The result of an ending, and whether it is final."""
        return endings.result_of(task_id, ending, codec), endings.is_final(ending)

    def get_result(self, task_id: str, timeout_ms: int | None = None) -> AnyResult:
        """Wait for a task by its id (T-61). The value has its type if the task is registered here; otherwise it is
        JSON."""
        return self._read_any(task_id, self.wait(task_id, timeout_ms))

    async def get_result_async(self, task_id: str, timeout_ms: int | None = None) -> AnyResult:
        """Wait for a task by its id (T-61). The value has its type if the task is registered here; otherwise it is
        JSON."""
        return self._read_any(task_id, await self.wait_async(task_id, timeout_ms))

    def get_typed_result(self, task_id: str, timeout_ms: int | None = None) -> BrokerResult[AnyResult]:
        """The same for callers that need the type: failures of the database and unknown types are `Err` (T-64)."""
        return self._read_typed(task_id, self.wait(task_id, timeout_ms))

    async def get_typed_result_async(self, task_id: str, timeout_ms: int | None = None) -> BrokerResult[AnyResult]:
        """The same for callers that need the type: failures of the database and unknown types are `Err` (T-64)."""
        return self._read_typed(task_id, await self.wait_async(task_id, timeout_ms))

    def _read_any(self, task_id: str, ending: Ending) -> AnyResult:
        name = ending.task_name if isinstance(ending, results.Ended) else None
        return endings.result_of(task_id, ending, self._codec_of(name))

    def _read_typed(self, task_id: str, ending: Ending) -> BrokerResult[AnyResult]:
        return endings.typed_result_of(task_id, ending, self._codec_of)

    def _codec_of(self, task_name: str | None) -> ResultCodec | None:
        task = self.app.tasks.get(task_name) if self.app is not None and task_name is not None else None
        return None if task is None else task.codec.result

    @as_broker_result(_DB)
    async def _info(
        self, task_id: str, include_result: bool, include_failed_reason: bool, include_attempts: bool
    ) -> dict[str, Any] | None:
        if not can_exist(task_id):
            return None
        async with self.hub.connection() as conn:
            row = await results.info(
                conn, task_id, include_result=include_result, include_failed_reason=include_failed_reason
            )
            if row is not None:
                row["attempts"] = await results.attempts(conn, task_id) if include_attempts else None
            return row

    _info_now = run_sync(_info, failed=_loop_failed)
    _info_soon = on_bridge(_info, failed=_loop_failed)

    def get_task_info(
        self,
        task_id: str,
        *,
        include_result: bool = False,
        include_failed_reason: bool = False,
        include_attempts: bool = False,
    ) -> BrokerResult[TaskInfo | None]:
        """The state of a task (T-63); `Ok(None)` if there is no such row."""
        return self._info_now(task_id, include_result, include_failed_reason, include_attempts).map(self._read_info)

    async def get_task_info_async(
        self,
        task_id: str,
        *,
        include_result: bool = False,
        include_failed_reason: bool = False,
        include_attempts: bool = False,
    ) -> BrokerResult[TaskInfo | None]:
        """The state of a task (T-63); `Ok(None)` if there is no such row."""
        row = await self._info_soon(task_id, include_result, include_failed_reason, include_attempts)
        return row.map(self._read_info)

    def _read_info(self, row: dict[str, Any] | None) -> TaskInfo | None:
        if row is None:
            return None
        if (text := row["result"]) is not None:
            ended = results.Ended(row["task_id"], row["task_name"], row["status"], text, row["failed_reason"])
            row["result"] = self._read_any(row["task_id"], ended)
        return TaskInfo(**row)

    async def _cancel_task(self, task_id: str, *, include_running: bool = False) -> TaskActionResult:
        """Cancel a task that has not ended (M-48)."""
        if not can_exist(task_id):
            return Err(why_not_cancelled(task_id, None))
        try:
            async with self.hub.connection() as conn:
                return await cancel(conn, task_id, include_running=include_running)
        except Exception as problem:
            return action_failed(task_id, problem, self.config)

    def cancel_task(self, task_id: str, *, include_running: bool = False) -> TaskActionResult:
        """Cancel a task that has not ended (M-48)."""
        try:
            return self.bridge.run(partial(self._cancel_task, task_id, include_running=include_running))
        except BridgeError as problem:
            return action_failed(task_id, problem, self.config)

    async def cancel_task_async(self, task_id: str, *, include_running: bool = False) -> TaskActionResult:
        """Cancel a task that has not ended (M-48)."""
        try:
            return await self.bridge.call(partial(self._cancel_task, task_id, include_running=include_running))
        except BridgeError as problem:
            return action_failed(task_id, problem, self.config)

    @as_broker_result(_DB)
    async def _ping_database(self) -> DatabasePing:
        return await pings.ping_database(self.hub)

    ping_database = run_sync(_ping_database, failed=_loop_failed)
    ping_database_async = on_bridge(_ping_database, failed=_loop_failed)

    @as_broker_result(_DB)
    async def _ping_workers(
        self, target_worker_id: str | None = None, timeout_seconds: float = 2.0, min_responses: int | None = None
    ) -> list[WorkerPong]:
        return await pings.ping_workers(self.hub, target_worker_id, timeout_seconds, min_responses)

    ping_workers = run_sync(_ping_workers, failed=_loop_failed)
    ping_workers_async = on_bridge(_ping_workers, failed=_loop_failed)

    @as_broker_result(_DB)
    async def _list_worker_states(self) -> list[WorkerStateSnapshot]:
        async with self.hub.connection() as conn:
            return await worker_states.newest(conn)

    list_worker_states = run_sync(_list_worker_states, failed=_loop_failed)
    list_worker_states_async = on_bridge(_list_worker_states, failed=_loop_failed)

    @as_broker_result(_DB)
    async def _get_worker_state(self, worker_id: str) -> WorkerStateSnapshot | None:
        if not can_be_stored(worker_id):
            return None
        async with self.hub.connection() as conn:
            return next(iter(await worker_states.history(conn, worker_id, limit=1)), None)

    get_worker_state = run_sync(_get_worker_state, failed=_loop_failed)
    get_worker_state_async = on_bridge(_get_worker_state, failed=_loop_failed)

    @as_broker_result(_DB)
    async def _get_worker_state_history(self, worker_id: str, limit: int | None = None) -> list[WorkerStateSnapshot]:
        if not can_be_stored(worker_id) or (limit is not None and limit < 1):
            return []
        async with self.hub.connection() as conn:
            return await worker_states.history(conn, worker_id, limit=limit)

    get_worker_state_history = run_sync(_get_worker_state_history, failed=_loop_failed)
    get_worker_state_history_async = on_bridge(_get_worker_state_history, failed=_loop_failed)

    @as_broker_result(_DB)
    async def _get_worker_stats(self) -> list[dict[str, Any]]:
        async with self.hub.connection() as conn:
            return await worker_states.stats(conn)

    get_worker_stats = on_bridge(_get_worker_stats, failed=_loop_failed)

    @as_broker_result(_DB)
    async def _get_stale_tasks(self, stale_threshold_minutes: float = 2) -> list[dict[str, Any]]:
        """The RUNNING tasks without a heartbeat for longer than the threshold (R-91)."""
        recovery, sweeping = self._recovery
        return await stale.list_stale(self.hub, recovery, sweeping, _patience(minutes=stale_threshold_minutes))

    get_stale_tasks = on_bridge(_get_stale_tasks, failed=_loop_failed)
    get_stale_tasks_sync = run_sync(_get_stale_tasks, failed=_loop_failed)

    @as_broker_result(_DB)
    async def _mark_stale_tasks_as_failed(self, stale_threshold_ms: int = 300_000) -> int:
        """Retry or fail these tasks, each by its own policy, as after a crash of its worker; return how many (R-91,
        R-20)."""
        return sum([len(step) async for step in self._recover(TaskStatus.RUNNING, stale_threshold_ms)])

    mark_stale_tasks_as_failed = on_bridge(_mark_stale_tasks_as_failed, failed=_loop_failed)
    mark_stale_tasks_as_failed_sync = run_sync(_mark_stale_tasks_as_failed, failed=_loop_failed)

    @as_broker_result(_DB)
    async def _requeue_stale_claimed(self, stale_threshold_ms: int = 120_000) -> int:
        """Return CLAIMED tasks without a heartbeat for longer than the threshold to the queue; return how many (R-91,
        R-19)."""
        steps = self._recover(TaskStatus.CLAIMED, stale_threshold_ms)
        return sum([not task.is_overdue async for step in steps for task in step])

    requeue_stale_claimed = on_bridge(_requeue_stale_claimed, failed=_loop_failed)
    requeue_stale_claimed_sync = run_sync(_requeue_stale_claimed, failed=_loop_failed)

    @as_broker_result(_DB)
    async def _get_expired_tasks(self) -> list[dict[str, Any]]:
        """The PENDING tasks whose deadline has passed (R-91); a worker will expire them soon."""
        return await stale.list_overdue(self.hub)

    get_expired_tasks = on_bridge(_get_expired_tasks, failed=_loop_failed)
    get_expired_tasks_sync = run_sync(_get_expired_tasks, failed=_loop_failed)

    async def _recover(self, status: TaskStatus, threshold_ms: int) -> AsyncIterator[list[InFlight]]:
        recovery, sweeping = self._recovery
        me, threshold = f"broker:{socket.gethostname()}:{os.getpid()}", _patience(milliseconds=threshold_ms)
        steps = stale.recover_stale(self.hub, status, recovery, sweeping, NoHooks(), me=me, threshold=threshold)
        async for step in steps:
            await advance_ended(self.hub, of_workflows(step))
            yield step

    @property
    def _recovery(self) -> tuple[RecoveryConfig, WorkerRecoveryConfig]:
        if self.app is None:
            return RecoveryConfig(), WorkerRecoveryConfig()
        return self.app.config.recovery, self.app.config.worker_recovery


def _patience(**duration: float) -> timedelta:
    threshold = timedelta(**duration)
    if threshold < timedelta(0):
        raise ValueError("a threshold must be a duration of zero or more")
    return threshold
