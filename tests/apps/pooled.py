"""The app that the tests of poolers serve. The environment says which way it goes to its database."""

from __future__ import annotations

import os
import time

from horsies import AppConfig, Horsies, PostgresConfig, RetryPolicy, TaskError, TaskResult
from horsies.core.models.recovery import RecoveryConfig, WorkerResilienceConfig
from horsies.core.models.schedule import IntervalSchedule, ScheduleConfig, TaskSchedule

EVERY_SECOND = TaskSchedule(name="every second", task_name="add", args=(1, 2), pattern=IntervalSchedule(seconds=1))
AGAIN = RetryPolicy.fixed([1, 1], auto_retry_for=["WORKER_CRASHED"], jitter=False)


def make_app(broker: PostgresConfig) -> Horsies:
    app = Horsies(
        AppConfig(
            broker=broker,
            recovery=RecoveryConfig(
                check_interval_ms=1_000,
                runner_heartbeat_interval_ms=1_000,
                claimer_heartbeat_interval_ms=1_000,
                worker_state_snapshot_interval_ms=1_000,
            ),
            resilience=WorkerResilienceConfig(
                db_retry_initial_ms=100, db_retry_max_ms=500, notify_poll_interval_ms=1_000
            ),
            schedule=ScheduleConfig(schedules=[EVERY_SECOND]) if os.environ.get("WITH_SCHEDULE") else None,
        )
    )

    @app.task("add")
    def add(a: int, b: int) -> TaskResult[int, TaskError]:
        return TaskResult(ok=a + b)

    @app.task("more")
    def more(a: TaskResult[int, TaskError], b: int) -> TaskResult[int, TaskError]:
        return TaskResult(ok=a.unwrap() + b)

    @app.task("nap", retry_policy=AGAIN)
    def nap(seconds: float) -> TaskResult[int, TaskError]:
        time.sleep(seconds)
        return TaskResult(ok=os.getpid())

    return app


app = make_app(
    PostgresConfig(
        database_url=os.environ.get("DATABASE_URL", "postgresql://nobody@localhost:1/none"),
        session_database_url=os.environ.get("DIRECT_URL") or None,
        pgbouncer_transaction_mode=bool(os.environ.get("BEHIND_POOLER")),
    )
)
