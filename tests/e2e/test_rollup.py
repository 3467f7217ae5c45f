"""The statistics that real workers write (D-59)."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from psycopg import AsyncConnection

from tests.e2e.test_worker_runs_tasks import outcome, send
from tests.factories import given_task
from tests.support import eventually
from tests.worker_support import Rows, WorkerProcess, running_worker

pytestmark = pytest.mark.e2e

COUNTED = """
    SELECT task_name, error_code, sum(completed)::int AS completed, sum(failed)::int AS failed,
           sum(retried)::int AS retried, sum(expired)::int AS expired, max(example_id) AS example,
           sum((SELECT sum(n) FROM unnest(wait_counts) AS n))::int AS waits,
           sum((SELECT sum(n) FROM unnest(run_counts) AS n))::int AS runs,
           sum(wait_seconds) AS waited, sum(run_seconds) AS ran
    FROM horsies_rollup WHERE span = 60 AND task_name <> '' GROUP BY 1, 2 ORDER BY 1, 2
"""


async def test_d59_a_worker_counts_what_became_of_its_tasks(basic: Any, rows: Rows, tmp_path: Path) -> None:
    async with running_worker(basic.app):
        for _ in range(5):
            (await outcome(basic.add, 1, 2)).unwrap()
        failed = await send(basic.fail, "CARD_DECLINED")
        (await outcome(basic.flaky, str(tmp_path / "flaky"), 1)).unwrap()
        (await outcome(basic.nap, 0.3)).unwrap()
        await rows.until(failed.task_id, "FAILED")
    added, declined, flaky, busy, napped = await rows.all(COUNTED)
    assert (added["task_name"], added["completed"], added["waits"], added["runs"]) == ("add", 5, 5, 5)
    assert (declined["error_code"], declined["failed"], declined["example"]) == ("CARD_DECLINED", 1, failed.task_id)
    assert (flaky["completed"], busy["error_code"], busy["retried"], busy["failed"]) == (1, "FLAKY", 1, 0)
    assert napped["ran"] >= 0.3 and 0 <= added["waited"] < 60
    [gauge] = await rows.all("SELECT waiting, running FROM horsies_rollup WHERE span = 60 AND queue_name = '*' LIMIT 1")
    assert gauge["waiting"] >= 0, "the first tick of a worker looks"


async def test_d59_a_worker_that_is_killed_loses_numbers_and_no_task(
    database_url: str, rows: Rows, db: AsyncConnection[Any]
) -> None:
    with WorkerProcess(database_url) as first:
        done = [await given_task(db, task_name="noop") for _ in range(10)]
        for task_id in done:
            await rows.until(task_id, "COMPLETED")
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
    before = sum(row["completed"] for row in await rows.all(COUNTED))
    assert before <= len(done), "none, unless a minute was over just then"
    with WorkerProcess(database_url) as second:
        later = await given_task(db, task_name="noop")
        await rows.until(later, "COMPLETED")
        code, said = second.stop()
    assert code == 0, said
    [counted] = await rows.all(COUNTED)
    assert (counted["task_name"], counted["completed"]) == ("noop", before + 1)


async def test_d59_a_full_minute_is_written_while_the_worker_goes_on(
    basic: Any, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horsies.core.worker.statistics.MINUTE_S", 1.0)
    monkeypatch.setattr("horsies.core.worker.statistics.MOST_LATE_S", 0.1)
    async with running_worker(basic.app):
        (await outcome(basic.add, 1, 2)).unwrap()
        await eventually(lambda: rows.all(COUNTED), 30, what="it is written before the worker ends")
        (await outcome(basic.add, 1, 2)).unwrap()
    [counted] = await rows.all(COUNTED)
    assert counted["completed"] == 2
