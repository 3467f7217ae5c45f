"""A worker is killed, and nothing but its silence shows it: another one sweeps it after the threshold, not before, with
the app's hooks and the delay.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Configured, configurable
from tests.e2e.sweep_support import SWEEPING, lines, registered, sweeping_worker
from tests.support import eventually
from tests.worker_support import Rows

pytestmark = pytest.mark.e2e

THRESHOLD, DELAY = timedelta(seconds=3), timedelta(seconds=2)


@pytest.fixture
async def app(database_url: str, traces: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Configured]:
    """`tests/apps/sweeping.py`, to send from."""
    async with configurable(SWEEPING, database_url, monkeypatch) as configured:
        yield configured


async def last_word(rows: Rows, worker_id: str) -> datetime:
    """When the registry last heard of a worker, seen until its row is gone."""
    seen: list[datetime] = []

    async def is_gone() -> bool:
        found = await rows.all("SELECT last_heartbeat_at FROM horsies_workers WHERE worker_id = %s", worker_id)
        seen.extend(row["last_heartbeat_at"] for row in found)
        return not found

    await eventually(is_gone, 30, what=f"the row of {worker_id} is gone")
    return seen[-1]


async def test_r44_r50_r65_r75_a_killed_worker_is_swept_by_another_after_the_threshold(
    app: Configured, database_url: str, rows: Rows, traces: Path
) -> None:
    module = app()
    with sweeping_worker(database_url, "--processes", "3") as victim, sweeping_worker(database_url) as other:
        dead = await registered(rows, victim)
        await registered(rows, other)
        other.process.send_signal(signal.SIGSTOP)  # so that the first one gets all of them
        ids = {
            answer: (await module.work.send_async(name=answer, answer=answer)).unwrap().task_id
            for answer in ("default", "fail", "skip")
        }
        for task_id in ids.values():
            await rows.until(task_id, "RUNNING")
        await eventually(lambda: all((traces / name).exists() for name in ids), what="all have begun")
        other.process.send_signal(signal.SIGCONT)
        victim.process.kill()
        heard = await last_word(rows, dead)
        done = await rows.until(ids["default"], "COMPLETED", timeout=30)
        failed = await rows.until(ids["fail"], "FAILED")
        await eventually(lambda: len(lines(traces, "recovered")) >= 2, what="the next sweep has told its news")
        sweeper = await registered(rows, other)
        skipped = await rows.task(ids["skip"])
        assert other.stop()[0] == 0

    crash, run = await rows.attempts(ids["default"])
    assert (crash["outcome"], crash["will_retry"], crash["worker_id"]) == ("WORKER_FAILURE", True, dead)
    assert crash["failed_reason"] == "Job recovered after worker interruption"
    assert crash["finished_at"] - heard > THRESHOLD
    assert (run["attempt"], run["outcome"], run["worker_id"]) == (2, "COMPLETED", sweeper)
    assert run["started_at"] - crash["finished_at"] >= DELAY
    assert done["retry_count"] == 0
    assert failed["error_code"] == "WORKER_CRASHED" and dead in failed["failed_reason"]
    assert (skipped["status"], skipped["claimed_by_worker_id"]) == ("RUNNING", dead)
    assert [len(lines(traces, name)) for name in ids] == [2, 1, 1]  # how often each has run

    asked = [line[1:] for line in lines(traces, "asked")]
    assert sorted(task_id for task_id, _ in asked if task_id != ids["skip"]) == sorted([ids["default"], ids["fail"]])
    assert sum(task_id == ids["skip"] for task_id, _ in asked) >= 2  # once in each sweep
    assert {rest for _, rest in asked} == {f"{sweeper} {dead} 1"}
    told = [(task_id, owner) for _, task_id, owner in lines(traces, "interrupted")]
    assert sorted(told) == sorted([(ids["default"], dead), (ids["fail"], dead)])
    news = [f"{who} {what}" for _, who, what in lines(traces, "recovered")]
    assert news[:2] == [f"{sweeper} ['{dead}'] 2", f"{sweeper} ['{dead}'] 0"]


async def test_r69_a_lapsed_claim_of_a_dead_worker_is_taken_over_without_hook_and_delay(
    app: Configured, database_url: str, rows: Rows, traces: Path
) -> None:
    settings = {"PREFETCH": "1", "LEASE_MS": "2000", "SWEEP_THRESHOLD": "600"}
    module = app(**settings)
    options = ("--run-ahead-ms", "0")
    with sweeping_worker(database_url, *options) as victim:
        dead = await registered(rows, victim)
        busy = (await module.work.send_async(name="busy")).unwrap()
        await rows.until(busy.task_id, "RUNNING")
        waiting = (await module.quick.send_async(7)).unwrap()
        claimed = await rows.until(waiting.task_id, "CLAIMED")
        assert (claimed["claimed_by_worker_id"], claimed["recovery_enrolled"]) == (dead, True)
        victim.process.kill()
        victim.process.wait()
        with sweeping_worker(database_url, *options) as other:
            done: dict[str, Any] = await rows.until(waiting.task_id, "COMPLETED")
            held = await rows.task(busy.task_id)
            assert other.stop()[0] == 0
    assert (done["claim_seq"], done["failed_reason"]) == (2, None)
    assert done["enqueued_at"] == claimed["enqueued_at"]
    assert [row["outcome"] for row in await rows.attempts(waiting.task_id)] == ["COMPLETED"]
    assert lines(traces, "asked") == []
    assert (held["status"], held["claimed_by_worker_id"]) == ("RUNNING", dead)  # for the sweeper, when it is time
