"""What both versions of the app in these tests have in common; `old.py` and `new.py` define its tasks."""

from __future__ import annotations

import os
import time

from horsies import AppConfig, Horsies, PostgresConfig
from horsies.core.models.recovery import RecoveryConfig, WorkerResilienceConfig


def make_app() -> Horsies:
    return Horsies(
        AppConfig(
            broker=PostgresConfig(database_url=os.environ.get("DATABASE_URL", "postgresql://nobody@localhost:1/none")),
            cluster_wide_cap=int(os.environ["CLUSTER_CAP"]) if "CLUSTER_CAP" in os.environ else None,
            recovery=RecoveryConfig(
                check_interval_ms=1_000,
                runner_heartbeat_interval_ms=1_000,
                claimer_heartbeat_interval_ms=1_000,
                unknown_task_grace_ms=int(os.environ.get("GRACE_MS", "600000")),
            ),
            resilience=WorkerResilienceConfig(
                db_retry_initial_ms=100,
                db_retry_max_ms=500,
                notify_poll_interval_ms=int(os.environ.get("POLL_MS", "5000")),
            ),
        )
    )


def work(seconds: float) -> None:
    time.sleep(seconds)
