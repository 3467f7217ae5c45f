"""SIGKILL of a supervisor and its children, with another worker on the host: the evidence is certain, and nobody waits
for the default thresholds of 120 and 300 seconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.killing import MORTAL, begun, journal_of, kill_all, lines, outcomes, send, worker_of
from tests.support import eventually
from tests.worker_support import Rows, WorkerProcess, running_worker

pytestmark = pytest.mark.e2e


async def test_r100_what_a_killed_worker_held_is_recovered_without_waiting(
    mortal: Any, rows: Rows, database_url: str, traces: Path
) -> None:
    module = mortal(MORTAL_PREFETCH="2", MORTAL_LEASE_MS="120000")
    assert module.app.config.recovery.running_stale_threshold_ms == 300_000
    assert module.app.config.recovery.claimed_stale_threshold_ms == 120_000
    running, again = await send(module.hold, "running"), await send(module.hold_once, "again")
    with WorkerProcess(database_url, "--processes", "2", locator=MORTAL) as victim:
        await begun(traces, "running")
        await begun(traces, "again")
        claimed = [await send(module.tick, f"claimed{n}") for n in range(2)]
        for handle in claimed:
            await rows.until(handle.task_id, "CLAIMED")
        dead = await worker_of(rows, victim)
        assert journal_of(dead["worker_id"]).exists()
        async with running_worker(module.app, app_locator=MORTAL) as judge:
            await eventually(lambda: rows.all("SELECT 1 FROM horsies_workers WHERE worker_id = %s", judge.worker_id))
            kill_all(victim)
            row = await rows.until(running.task_id, "FAILED")
            assert (await again.get_async(timeout_ms=30_000)).unwrap() == 2
            for handle in claimed:
                assert (await handle.get_async(timeout_ms=30_000)).is_ok()

            async def buried() -> bool:
                left = await rows.all("SELECT worker_id FROM horsies_workers")
                return [one["worker_id"] for one in left] == [judge.worker_id]

            await eventually(buried, what="the dead worker's row is deleted")
    assert row["error_code"] == "WORKER_CRASHED" and dead["worker_id"] in row["failed_reason"]
    assert "process is gone" in row["failed_reason"]
    assert await outcomes(rows, running.task_id) == [("WORKER_FAILURE", False)]
    assert await outcomes(rows, again.task_id) == [("WORKER_FAILURE", True), ("COMPLETED", False)]
    for handle in claimed:
        assert await outcomes(rows, handle.task_id) == [("COMPLETED", False)]
        assert (await rows.task(handle.task_id))["claim_seq"] == 2
    assert [lines(traces, name) for name in ("running", "again")] == [["begin"], ["begin", "begin"]]
    assert sorted((traces / "ticks").read_text().split()) == ["claimed0", "claimed1"]
    assert not journal_of(dead["worker_id"]).exists()
