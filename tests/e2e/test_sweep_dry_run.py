"""A dry run while a worker is busy: it tells who is dead, and changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from horsies import SweepStaleWorkersOptions, SweepStaleWorkersResult
from tests.e2e.conftest import Configured, configurable
from tests.e2e.sweep_support import SWEEPING, lines
from tests.worker_support import Rows, running_worker

pytestmark = pytest.mark.e2e

# Dead, but not for so long that a reaper would sweep them.
DEAD = """
    INSERT INTO horsies_workers (worker_id, sweeping, last_heartbeat_at)
    VALUES ('dead', TRUE, now() - interval '100 s');
    INSERT INTO horsies_tasks (id, task_name, status, claimed, claimed_by_worker_id, claim_seq, claimed_at, started_at,
                               recovery_enrolled)
    SELECT owner || n, 'quick', 'RUNNING', TRUE, owner, 1, now() - interval '100 s', now() - interval '100 s', TRUE
    FROM unnest('{dead,gone}'::text[]) AS owner, generate_series(1, 5) AS n
"""
TASKS = 200


@pytest.fixture
async def app(database_url: str, traces: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Configured]:
    async with configurable(SWEEPING, database_url, monkeypatch) as configured:
        yield configured


async def test_r48_a_dry_run_during_load_reports_and_changes_nothing(app: Configured, rows: Rows, traces: Path) -> None:
    module = app(SWEEP_INTERVAL="3600")  # nobody else sweeps
    for statement in DEAD.split(";"):
        await rows.all(f"{statement} RETURNING 1")
    before = await rows.all("SELECT * FROM horsies_tasks ORDER BY id")
    utils = module.app.worker_utils()
    dry = SweepStaleWorkersOptions(dry_run=True, sweep_threshold=60)
    told: list[SweepStaleWorkersResult] = []

    async def look_on() -> None:
        while True:
            told.append((await utils.sweep_stale_workers(dry)).unwrap())

    async with running_worker(module.app, app_locator=f"{SWEEPING}:app", processes=2) as worker:
        looking = asyncio.create_task(look_on())
        sent = [(await module.quick.send_async(n)).unwrap() for n in range(TASKS)]
        results = [(await handle.get_async(timeout_ms=60_000)).unwrap() for handle in sent]
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        (alive,) = await rows.all("SELECT worker_id FROM horsies_workers WHERE pid IS NOT NULL")
    assert alive["worker_id"] == worker.worker_id
    assert results == list(range(TASKS))
    assert len(told) >= 5
    assert {str(result) for result in told} == {str(SweepStaleWorkersResult(0, ["dead", "gone"], dry_run=True))}
    assert await rows.all("SELECT * FROM horsies_tasks WHERE claimed ORDER BY id") == before
    assert [row["worker_id"] for row in await rows.all("SELECT worker_id FROM horsies_workers")] == ["dead"]
    attempts = await rows.all("SELECT outcome, attempt FROM horsies_task_attempts")
    assert attempts == [{"outcome": "COMPLETED", "attempt": 1}] * TASKS
    assert lines(traces, "asked") + lines(traces, "recovered") == []
