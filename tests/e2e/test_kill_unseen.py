"""The same death with the evidence switched off, or seen from where the pid cannot be seen: what runs is recovered
after its threshold, what is claimed after its lease or threshold, and not before.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.killing import MORTAL, begun, kill_all, outcomes, send, worker_of
from tests.worker_support import Rows, WorkerProcess, running_worker

pytestmark = pytest.mark.e2e

THRESHOLD = timedelta(seconds=3)
# Others that died with the same pid, as somebody elsewhere would see them.
ELSEWHERE = {
    "another-host": {"hostname": "another"},
    "another-boot": {"boot_id": "another"},
    "another-namespace": {"pid_namespace": "another"},
    "no-boot": {"boot_id": None},
    "no-namespace": {"pid_namespace": None},
}


async def last_sign(rows: Rows, task_id: str) -> Any:
    (row,) = await rows.all(
        "SELECT GREATEST(started_at, claimed_at, (SELECT max(sent_at) FROM horsies_heartbeats WHERE task_id = t.id))"
        " AS sign FROM horsies_tasks t WHERE id = %s",
        task_id,
    )
    return row["sign"]


async def test_r12_r69_r100_without_evidence_thresholds_and_leases_decide(
    mortal: Any, rows: Rows, database_url: str, traces: Path
) -> None:
    module = mortal(MORTAL_EVIDENCE="off", MORTAL_THRESHOLD_MS="3000", MORTAL_PREFETCH="1", MORTAL_LEASE_MS="2500")
    running = await send(module.hold, "running")
    with WorkerProcess(database_url, locator=MORTAL) as victim:
        await begun(traces, "running")
        claimed = await send(module.tick, "claimed")
        await rows.until(claimed.task_id, "CLAIMED")
        async with running_worker(module.app, app_locator=MORTAL):
            kill_all(victim)
            victim.wait()
            sign, before = await last_sign(rows, running.task_id), await rows.task(claimed.task_id)
            claim_sign = await last_sign(rows, claimed.task_id)
            row = await rows.until(running.task_id, "FAILED")
            taken = await rows.until(claimed.task_id, "COMPLETED")
    assert row["failed_at"] - sign > THRESHOLD
    assert taken["claimed_at"] > min(before["claim_expires_at"], claim_sign + THRESHOLD)
    assert await outcomes(rows, running.task_id) == [("WORKER_FAILURE", False)]
    assert await outcomes(rows, claimed.task_id) == [("COMPLETED", False)]
    assert (before["claim_seq"], taken["claim_seq"]) == (1, 2)


async def test_r100_a_pid_that_cannot_be_seen_is_not_dead(
    mortal: Any, rows: Rows, database_url: str, traces: Path
) -> None:
    module = mortal(MORTAL_THRESHOLD_MS="3000")
    seen = await send(module.hold, "seen")
    with WorkerProcess(database_url, locator=MORTAL) as victim:
        child = await begun(traces, "seen")
        dead = await worker_of(rows, victim)
        kill_all(victim)
        victim.wait()
        columns = ("hostname", "boot_id", "pid_namespace")
        for number, (worker_id, differs) in enumerate(ELSEWHERE.items()):
            await rows.all(
                "WITH worker AS (INSERT INTO horsies_workers (worker_id, pid, process_start, liveness_key, recovery,"
                "  hostname, boot_id, pid_namespace) SELECT %s, pid, process_start, %s, recovery, %s, %s, %s"
                "  FROM horsies_workers WHERE worker_id = %s)"
                " INSERT INTO horsies_tasks (id, task_name, status, claimed, claimed_by_worker_id, claimed_at,"
                "  started_at, claim_seq, worker_pid, worker_hostname) VALUES (%s, 'hold', 'RUNNING', TRUE, %s,"
                "  now(), now(), 1, %s, 'h') RETURNING id",
                worker_id, number, *({**dead, **differs}[column] for column in columns), dead["worker_id"],
                worker_id, worker_id, child,
            )  # fmt: skip
        async with running_worker(module.app, app_locator=MORTAL):
            row = await rows.until(seen.task_id, "FAILED")
            others = [await rows.until(worker_id, "FAILED") for worker_id in ELSEWHERE]
    assert "process is gone" in row["failed_reason"]
    for other in others:
        assert "no heartbeat" in other["failed_reason"]
        assert other["failed_at"] - other["started_at"] > THRESHOLD
        assert await outcomes(rows, other["id"]) == [("WORKER_FAILURE", False)]
