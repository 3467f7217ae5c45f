"""What a worker leaves in the registry and on the tasks it claims, with worker recovery and without."""

from __future__ import annotations

from typing import Any

import pytest

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
    assert running["recovery_enrolled"] is takes_part
    assert done["claimed_by_worker_id"] == worker.worker_id
    assert await rows.all("SELECT * FROM horsies_workers") == []
