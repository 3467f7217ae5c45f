"""A task that kills its worker, beside others that do nothing wrong: it is stopped after the limit, and they all
complete. Nothing tells who killed a worker, so whoever has used up its recoveries runs alone (R-58)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.recovery.decide import is_last_chance
from horsies.core.worker import start
from horsies.core.worker.start import Turn, turn_of_suspect
from tests.e2e.killing import MORTAL, begun, lines, outcomes, send
from tests.support import eventually
from tests.worker_support import Rows, WorkerProcess, running_worker

pytestmark = pytest.mark.e2e

INNOCENTS = 5
PROCESSES = 4


@asynccontextmanager
async def kept_alive(url: str, workers: int) -> AsyncIterator[None]:
    """So many workers; whoever dies is replaced, as an init system would do it."""

    async def keep_one() -> None:
        while True:
            with WorkerProcess(url, "--processes", str(PROCESSES), locator=MORTAL) as worker:
                while worker.process.poll() is None:
                    await asyncio.sleep(0.1)

    keepers = [asyncio.create_task(keep_one()) for _ in range(workers)]
    try:
        yield
    finally:
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)


@pytest.mark.slow("crashes a worker in every step of a long story")
@pytest.mark.parametrize(("limit", "workers"), [(1, 1), (2, 2), (3, 1)])
async def test_r58_the_neighbours_of_a_task_that_kills_its_worker_are_not_failed_for_it(
    mortal: Any, rows: Rows, database_url: str, traces: Path, limit: int, workers: int
) -> None:
    module = mortal(MORTAL_LIMIT=str(limit))
    poison = await send(module.kill_worker, "poison", 0.5)
    innocents = [await send(module.hold, f"innocent{n}", 2.0) for n in range(INNOCENTS)]
    async with kept_alive(database_url, workers):
        for handle in innocents:
            row = await rows.until(handle.task_id, "COMPLETED", "FAILED", timeout=120)
            assert row["status"] == "COMPLETED", row["failed_reason"]
        row = await rows.until(poison.task_id, "FAILED", timeout=60)
    assert row["error_code"] == "WORKER_CRASHED"
    assert await outcomes(rows, poison.task_id) == [
        *[("WORKER_FAILURE", True)] * limit,
        ("WORKER_FAILURE", False),
    ]
    interrupted = [(await outcomes(rows, handle.task_id)).count(("WORKER_FAILURE", True)) for handle in innocents]
    assert max(interrupted) <= limit, "who has used up its recoveries has nobody beside it"
    assert interrupted.count(0) < INNOCENTS, "nobody was beside the poison, so this shows nothing"


INTERRUPTED = """
    WITH attempt AS (
        INSERT INTO horsies_task_attempts (task_id, attempt, outcome, will_retry, started_at, finished_at, error_code)
        VALUES (%s, 1, 'WORKER_FAILURE', TRUE, now(), now(), 'WORKER_CRASHED') RETURNING task_id
    )
    UPDATE horsies_tasks t SET claim_seq = 1, failed_reason = 'Job recovered after worker interruption'
    FROM attempt a WHERE t.id = a.task_id RETURNING t.id
"""
BESIDE = """
    SELECT o.task_id FROM horsies_task_attempts s JOIN horsies_task_attempts o ON o.task_id <> s.task_id
    WHERE s.task_id = %s AND s.outcome = 'COMPLETED' AND o.outcome = 'COMPLETED'
      AND o.started_at < s.finished_at AND s.started_at < o.finished_at
"""


@pytest.mark.slow("crashes a worker in every step of a long story")
async def test_r58_a_suspect_waits_until_the_others_have_ended_and_they_wait_for_its_end(
    mortal: Any, rows: Rows, traces: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two suspects in one worker: each runs alone, and the others run beside each other as ever."""
    module = mortal(MORTAL_LIMIT="1")
    early = [await send(module.hold, f"early{n}", 1.5) for n in range(2)]
    async with running_worker(module.app, app_locator=MORTAL, processes=PROCESSES):
        for n in range(2):
            await begun(traces, f"early{n}")
        suspects = [(await module.hold.schedule_async(1, f"suspect{n}", 1.0)).unwrap() for n in range(2)]
        for handle in suspects:
            assert await rows.all(INTERRUPTED, handle.task_id)
        await begun(traces, "suspect0")
        late = [await send(module.hold, f"late{n}", 0.5) for n in range(6)]
        for handle in (*early, *suspects, *late):
            await rows.until(handle.task_id, "COMPLETED", timeout=60)
    for handle in suspects:
        assert await rows.all(BESIDE, handle.task_id) == []
    beside = [await rows.all(BESIDE, handle.task_id) for handle in (*early, *late)]
    assert any(beside), "the others do not run at the same time either"
    assert caplog.text.count("it runs alone, after") == 2


@pytest.mark.slow("crashes a worker in every step of a long story")
async def test_r58_neither_a_suspect_nor_the_others_starve(
    mortal: Any, rows: Rows, traces: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A task that runs for long is in the way: the suspect goes back, the others have their turn, and then it again."""
    monkeypatch.setattr(start, "PATIENCE_S", 0.5)
    module = mortal(MORTAL_LIMIT="1")
    await send(module.hold, "long", 6.0)
    async with running_worker(module.app, app_locator=MORTAL, processes=2):
        await begun(traces, "long")
        suspect = (await module.hold.schedule_async(1, "suspect", 0.1)).unwrap()
        assert await rows.all(INTERRUPTED, suspect.task_id)
        await eventually(lambda: "did not become free" in caplog.text, what="the suspect goes back")
        other = await send(module.hold, "other", 0.1)
        await rows.until(other.task_id, "COMPLETED")
        assert lines(traces, "long") == ["begin"] and lines(traces, "suspect") == [], "the other one had to wait"
        await rows.until(suspect.task_id, "COMPLETED", timeout=60)
    assert await rows.all(BESIDE, suspect.task_id) == []


@pytest.mark.parametrize(
    ("others", "waited_s", "rest_s", "expected"),
    [
        (0, 0, -5, Turn.START),
        (0, 0, 5, Turn.START),  # there is nobody who could use the rest
        (0, 61, 0, Turn.START),
        (1, 0, 0, Turn.WAIT),
        (1, 60, -5, Turn.WAIT),
        (1, 61, -5, Turn.LATER),
        (1, 0, 5, Turn.LATER),
    ],
)
def test_r58_whose_turn_it_is(others: int, waited_s: float, rest_s: float, expected: Turn) -> None:
    assert turn_of_suspect(others, waited_s, 60, rest_s) is expected


@pytest.mark.slow("crashes a worker in every step of a long story")
def test_r58_who_has_used_up_its_recoveries_has_one_last_chance() -> None:
    assert [is_last_chance(count, 2) for count in range(4)] == [False, False, True, True]
    assert not is_last_chance(1000, None)


@pytest.mark.slow("crashes a worker in every step of a long story")
async def test_r58_a_suspect_whose_end_cannot_be_written_keeps_its_worker_from_nothing(
    mortal: Any, rows: Rows, traces: Path, database_url: str
) -> None:
    """Its code has ended, and somebody keeps its row locked: that holds up only this task."""
    module = mortal(MORTAL_LIMIT="1")
    suspect = (await module.hold.schedule_async(1, "suspect", 1.0)).unwrap()
    assert await rows.all(INTERRUPTED, suspect.task_id)
    async with running_worker(module.app, app_locator=MORTAL, processes=2):
        await begun(traces, "suspect")
        async with await AsyncConnection.connect(database_url) as somebody:
            await somebody.execute("SELECT id FROM horsies_tasks WHERE id = %s FOR UPDATE", [suspect.task_id])
            await eventually(lambda: lines(traces, "suspect")[1:], what="the end of its code")
            other = await send(module.hold, "other", 0.1)
            await rows.until(other.task_id, "COMPLETED", timeout=30)
            assert (await rows.task(suspect.task_id))["status"] == "RUNNING", "the lock did not hold it up"
        await rows.until(suspect.task_id, "COMPLETED", timeout=60)
