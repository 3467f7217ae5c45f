"""Tasks that are moved to the queue of a real worker, or taken from it (L-21a)."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.models.broker import PostgresConfig
from horsies.monitoring import move_tasks
from tests.factories import given_task
from tests.support import eventually
from tests.worker_support import Rows, WorkerProcess

pytestmark = pytest.mark.e2e


async def test_l21a_an_idle_worker_runs_what_is_moved_to_its_queue(
    database_url: str, rows: Rows, db: AsyncConnection[Any]
) -> None:
    waiting = [await given_task(db, task_name="noop", queue_name="nobody serves this") for _ in range(5)]
    broker = PostgresBroker(PostgresConfig(database_url=database_url))
    try:
        with WorkerProcess(database_url) as worker:
            idle = "SELECT FROM horsies_waiting WHERE topic = 'worker'"
            await eventually(lambda: rows.all(idle), 60, what="the worker sleeps")
            moved = (await move_tasks(broker, queues=["nobody serves this"], queue="default")).unwrap()
            assert set(moved.changed_ids) == set(waiting)
            for task_id in waiting:
                await rows.until(task_id, "COMPLETED")
            code, said = worker.stop()
    finally:
        await broker.close_async()
    assert code == 0, said
