"""SIGKILL of a worker that runs ahead of its children: what had ended stays ended; with the start journal exactly the
started tasks count as interrupted and the others run as if nothing had happened; without it all count as started.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.killing import MORTAL, journal_of, outcomes
from tests.support import eventually
from tests.worker_support import Rows, WorkerProcess

pytestmark = pytest.mark.e2e

WARM, BEFORE, BEHIND = 200, 10, 40


async def insert(rows: Rows, *tasks: tuple[str, str, int]) -> None:
    """Tasks (id, name, priority) that all become visible at the same moment."""
    ids, names, priorities = zip(*tasks, strict=True)
    await rows.all(
        "INSERT INTO horsies_tasks (id, task_name, priority, kwargs)"
        " SELECT id, name, priority, jsonb_build_object('name', id) FROM unnest(%s::text[], %s::text[], %s::int[])"
        " AS w(id, name, priority) RETURNING id",
        list(ids), list(names), list(priorities),
    )  # fmt: skip


async def ended(rows: Rows) -> bool:
    return not await rows.all("SELECT 1 FROM horsies_tasks WHERE status IN ('PENDING', 'CLAIMED', 'RUNNING') LIMIT 1")


@pytest.mark.parametrize("is_kept", [True, False], ids=["with its journal", "without"])
async def test_r103_w25a_only_what_was_started_counts_as_interrupted(
    mortal: Any, rows: Rows, database_url: str, traces: Path, is_kept: bool
) -> None:
    before = [(f"before{n}", "tick", 1) for n in range(BEFORE)]
    behind = [(f"behind{n}", "tick", 3) for n in range(BEHIND)]
    with WorkerProcess(database_url, "--run-ahead-ms", "200", locator=MORTAL) as victim:
        await insert(rows, *((f"warm killer {n}", "kill_worker", 1) for n in range(WARM // 10)))
        await insert(rows, *((f"warm{n}", "tick", 1) for n in range(WARM)))
        await eventually(lambda: ended(rows), 30)
        await insert(rows, *before, ("killer", "kill_worker", 2), *behind)
        victim.wait()
    left = await rows.all(
        "SELECT id, status, claimed_by_worker_id AS owner FROM horsies_tasks WHERE status = 'RUNNING'"
    )
    running = {row["id"] for row in left}
    assert "killer" in running and len(running & {task_id for task_id, *_ in behind}) > 5, "it did not run ahead"
    (dead,) = {row["owner"] for row in left}
    assert journal_of(dead).exists()
    if not is_kept:
        journal_of(dead).unlink()
    with WorkerProcess(database_url, locator=MORTAL) as judge:
        await eventually(lambda: ended(rows), 30, what="nothing stays behind")
        await eventually(lambda: not journal_of(dead).exists(), what="the journal is removed")
        judge.stop()
    ticks = Counter((traces / "ticks").read_text().split())
    states = {row["id"]: row["status"] for row in await rows.all("SELECT id, status FROM horsies_tasks")}
    assert states["killer"] == "FAILED" and await outcomes(rows, "killer") == [("WORKER_FAILURE", False)]
    for task_id in (f"warm{n}" for n in range(WARM)):
        assert (states[task_id], ticks[task_id]) == ("COMPLETED", 1)
    for task_id, *_ in before:  # it had ended, though perhaps nobody had written that
        assert ticks[task_id] == 1
        assert states[task_id] == ("FAILED" if task_id in running else "COMPLETED")
    for task_id, *_ in behind:
        is_taken_for_started = task_id in running and not is_kept
        assert states[task_id] == ("FAILED" if is_taken_for_started else "COMPLETED")
        assert ticks[task_id] == (0 if is_taken_for_started else 1)
        assert len(await rows.attempts(task_id)) == 1
