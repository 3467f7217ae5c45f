"""What a worker leaves in the registry and on the tasks it claims, with worker recovery and without."""

from __future__ import annotations

from typing import Any

import pytest

from horsies.core.brokers.postgres import PostgresBroker
from horsies.monitoring import Explanation, Why, explain_task, list_workers, take_snapshot
from tests.worker_support import Rows, running_worker

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("settings", [{"heartbeat_interval": 1}, {}])
async def test_r40_r41_r42_a_worker_registers_enrolls_its_claims_and_leaves(
    basic: Any, rows: Rows, settings: dict[str, Any]
) -> None:
    """Without worker recovery it registers too, but does not take part in sweeping, and neither do its tasks."""
    takes_part = bool(settings)
    handle = (await basic.nap.send_async(1.0)).unwrap()
    async with running_worker(basic.app, **settings) as worker:
        running = await rows.until(handle.task_id, "RUNNING")
        (row,) = await rows.all("SELECT * FROM horsies_workers")
        done = await rows.until(handle.task_id, "COMPLETED")
    assert (row["worker_id"], row["sweeping"]) == (worker.worker_id, takes_part)
    assert row["started_at"] <= row["last_heartbeat_at"] and row["started_at"] <= running["claimed_at"]
    own = row["recovery"]["worker_recovery"]
    assert (own["enabled"], own["heartbeat_interval"]) == (takes_part, 1_000 if takes_part else 30_000)
    told = {
        "prefetch_buffer": 0,
        "concurrency": 1,
        "queue_priorities": {"default": 100},
        "queue_max_concurrency": {"default": None},
    }
    assert {name: row["metadata"][name] for name in told} == told, "for explain_task (M-45) and monitoring (M-40)"
    assert set(row["metadata"]) - set(told) <= {"team", "reaped_at"}, "for the turns of the reaper (R-15)"
    [names] = await rows.all("SELECT names FROM horsies_known_names WHERE names_hash = %s", row["names_hash"])
    assert names["names"] == sorted(basic.app.tasks), "O-31"
    assert running["recovery_enrolled"] is takes_part
    assert done["claimed_by_worker_id"] == worker.worker_id
    assert await rows.all("SELECT * FROM horsies_workers") == []


async def explained(broker: PostgresBroker, task_id: str) -> Explanation:
    found = (await explain_task(broker, task_id)).unwrap()
    assert found is not None
    return found


async def test_m45_what_a_worker_says_of_itself_explains_its_tasks(basic: Any, rows: Rows) -> None:
    broker = basic.app.get_broker()
    later = (await basic.nap.schedule_async(3600, 1.0)).unwrap()
    running = (await basic.nap.send_async(1.0)).unwrap()
    unserved = (await broker.enqueue_async("nap", [1.0], queue_name="elsewhere")).unwrap()
    assert (await explained(broker, later.task_id)).why is Why.NOT_DUE
    assert (await explained(broker, running.task_id)).why is Why.NO_WORKER
    async with running_worker(basic.app) as worker:
        await rows.until(running.task_id, "RUNNING")
        told = await explained(broker, running.task_id)
        assert (told.why, told.worker_id) == (Why.RUNNING, worker.worker_id)
        assert (await explained(broker, unserved)).why is Why.NO_WORKER_SERVES_QUEUE
        [listed] = (await list_workers(broker)).unwrap()
        assert listed.is_live and listed.task_names == tuple(sorted(basic.app.tasks)) and listed.queues == ("default",)
        snapshot = (await take_snapshot(broker)).unwrap()
        [queue] = [queue for queue in snapshot.queues if queue.name == "default"]
        assert (queue.running, queue.scheduled, queue.live_workers) == (1, 1, 1)
        assert snapshot.database.listeners == 1
    assert (await explained(broker, running.task_id)).why is Why.ENDED
