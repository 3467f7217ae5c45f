"""`WorkerUtils`: what an operator can ask about workers and do about dead ones (R-43, R-90, R-94 to R-96).

Each method is written once, async, and runs on the broker's bridge; its blocking twin ends in `_sync`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from horsies.core.db import Bridge, as_broker_result, on_bridge
from horsies.core.errors import ConfigurationError, ErrorCode
from horsies.core.hooks import HookRegistry
from horsies.core.models import recovery
from horsies.core.models.broker import BrokerErrorCode
from horsies.core.recovery import apply, reconcile, sweep
from horsies.core.recovery.hooks import HookCaller, InProcess, NoHooks
from horsies.core.store import workers
from horsies.core.types import run_sync

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker


_DB = BrokerErrorCode.DB_OPERATION_FAILED


class WorkerUtils:
    """Manual recovery of workers. Settings and hooks are those of the broker's app, if it has one."""

    def __init__(self, broker: PostgresBroker, *, hooks: HookRegistry | None = None) -> None:
        self._broker = broker
        self._hooks = hooks

    def with_hooks(self, hooks: HookRegistry) -> WorkerUtils:
        """The same object with these hooks instead of the app's."""
        return WorkerUtils(self._broker, hooks=hooks)

    @property
    def worker_id(self) -> str:
        """The name of the recovering worker for hooks."""
        return f"utils:{socket.gethostname()}:{os.getpid()}"

    @property
    def bridge(self) -> Bridge[Any]:
        return self._broker.bridge

    @as_broker_result(_DB)
    @on_bridge
    async def list_active_workers(self, threshold: timedelta | float) -> list[recovery.ActiveWorker]:
        """Every registered worker, oldest first; a worker is stale if its last heartbeat is older than the
        threshold."""
        async with self._broker.hub.connection() as conn:
            return await workers.active(conn, _duration(threshold))

    list_active_workers_sync = run_sync(list_active_workers)

    @as_broker_result(_DB)
    @on_bridge
    async def list_silences(self) -> list[recovery.WorkerSilence]:
        """How long each registered worker has been silent, and whether a sweep applies to it."""
        async with self._broker.hub.connection() as conn:
            return await workers.silences(conn)

    list_silences_sync = run_sync(list_silences)

    @as_broker_result(_DB)
    @on_bridge
    async def known_workers(self, worker_ids: Sequence[str]) -> set[str]:
        """Those of these workers that are registered, or hold a task."""
        async with self._broker.hub.connection() as conn:
            return await workers.known(conn, worker_ids)

    known_workers_sync = run_sync(known_workers)

    @as_broker_result(_DB)
    @on_bridge
    async def sweep_stale_workers(
        self, options: recovery.SweepStaleWorkersOptions | None = None
    ) -> recovery.SweepStaleWorkersResult:
        """One sweep now, whether or not worker recovery is enabled here. Options that are not set are taken from the
        app's recovery configuration."""
        options = options or recovery.SweepStaleWorkersOptions()
        return await self._sweep(self._config, options, options.sweep_threshold)

    sweep_stale_workers_sync = run_sync(sweep_stale_workers)

    @as_broker_result(_DB)
    @on_bridge
    async def sweep_stale_workers_with_config(
        self, config: recovery.WorkerRecoveryConfig, options: recovery.SweepStaleWorkersOptions | None = None
    ) -> recovery.SweepStaleWorkersResult:
        """The same with another recovery configuration. Its threshold, if set, is used unchanged; the options override
        it."""
        options = options or recovery.SweepStaleWorkersOptions()
        named = config.sweep_threshold if "sweep_threshold" in config.model_fields_set else None
        return await self._sweep(config, options, options.sweep_threshold or named)

    sweep_stale_workers_with_config_sync = run_sync(sweep_stale_workers_with_config)

    @as_broker_result(_DB)
    @on_bridge
    async def force_unlock_workers(self, worker_ids: Sequence[str]) -> int:
        """Take every task from exactly these workers, whatever their heartbeats say, and delete their rows, without
        hooks and without delay. Return the number of tasks."""
        if isinstance(worker_ids, str):
            raise _mistake("force_unlock_workers takes a list of worker ids, not one")
        hub, ended = self._broker.hub, list[apply.EndedNode]()
        count = await sweep.force_unlock(hub, worker_ids, self._config, me=self.worker_id, on_ended=ended.extend)
        await reconcile.advance_ended(hub, ended)
        return count

    force_unlock_workers_sync = run_sync(force_unlock_workers)

    async def _sweep(
        self,
        config: recovery.WorkerRecoveryConfig,
        options: recovery.SweepStaleWorkersOptions,
        threshold: timedelta | None,
    ) -> recovery.SweepStaleWorkersResult:
        app, hub, ended = self._broker.app, self._broker.hub, list[apply.EndedNode]()
        result = await sweep.sweep(
            hub,
            config,
            recovery.RecoveryConfig() if app is None else app.config.recovery,
            self._hook_caller,
            me=self.worker_id,
            threshold=threshold,
            delay=options.recovery_delay,
            dry_run=options.dry_run,
            on_ended=ended.extend,
        )
        await reconcile.advance_ended(hub, ended)
        return result

    @property
    def _config(self) -> recovery.WorkerRecoveryConfig:
        app = self._broker.app
        return recovery.WorkerRecoveryConfig() if app is None else app.config.worker_recovery

    @property
    def _hook_caller(self) -> HookCaller:
        hooks = self._hooks
        if hooks is None and self._broker.app is not None:
            hooks = self._broker.app.hooks
        return NoHooks() if hooks is None else InProcess(hooks)


def _duration(value: timedelta | float) -> timedelta:
    try:
        found = value if isinstance(value, timedelta) else timedelta(seconds=value)
    except (TypeError, ValueError, OverflowError):
        raise _mistake(f"a threshold must be a timedelta or a number of seconds, not {value!r}") from None
    if found < timedelta(0):
        raise _mistake("a threshold must not be negative")
    return found


def _mistake(message: str) -> ConfigurationError:
    return ConfigurationError(message, code=ErrorCode.CONFIG_INVALID_RECOVERY)
