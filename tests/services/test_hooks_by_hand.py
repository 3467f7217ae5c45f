"""Hooks of a manual sweep: they run in the caller's process and can use its app, in whichever way (R-74, R-90)."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection

from horsies import AppConfig, Horsies, JobRecovery, JobRecoveryResult, TaskError, TaskResult, TaskStatus
from tests.factories import given_task, task_row

Db = AsyncConnection[Any]


async def test_r74_r90_hooks_may_send_tasks_while_a_sweep_asks_them(db: Db, database_url: str) -> None:
    app = Horsies(AppConfig.for_database_url(database_url))
    sent: list[str] = []

    @app.task("alert")
    def alert(text: str) -> TaskResult[None, TaskError]:
        return TaskResult(ok=None)

    @app.hooks.on(JobRecovery)
    def plain(ctx: JobRecovery) -> None:
        sent.append(alert.send(ctx.job.id).unwrap().task_id)

    @app.hooks.on(JobRecovery)
    async def awaiting(ctx: JobRecovery) -> JobRecoveryResult:
        sent.append((await alert.send_async(ctx.job.id)).unwrap().task_id)
        sent.append(alert.send(ctx.job.id).unwrap().task_id)  # blocks only its own thread
        return JobRecoveryResult.Default

    orphan = await given_task(db, status=TaskStatus.RUNNING, recovery_enrolled=True, claimed_at="2026-01-01")
    try:
        swept = (await app.worker_utils().sweep_stale_workers()).unwrap()
        again = await given_task(db, status=TaskStatus.RUNNING, recovery_enrolled=True, claimed_at="2026-01-01")
        swept_again = app.worker_utils().sweep_stale_workers_sync().unwrap()
    finally:
        await app.get_broker().close_async()
    assert (swept.recovered_count, swept_again.recovered_count) == (1, 1)
    assert [(await task_row(db, task_id))["status"] for task_id in (orphan, again)] == ["PENDING"] * 2
    assert [(await task_row(db, task_id))["args"] for task_id in sent] == [f'["{orphan}"]'] * 3 + [f'["{again}"]'] * 3
