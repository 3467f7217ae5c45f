"""The code in docs/recovery.md does what the page says: its Python blocks are run in order, its SQL on real rows."""

from __future__ import annotations

import ast
import inspect
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.recovery.decide import crashed, not_charged
from horsies.core.store import tasks
from horsies.core.tasks.moves import Claim, Move, Requeue
from horsies.core.types.status import TaskStatus
from tests.factories import given_heartbeat, given_task, given_worker, task_row

PAGE = (Path(__file__).parents[2] / "docs/recovery.md").read_text()
OWNER = "web-1:4242:9f3a11c0"  # the worker that the page frees by name

Db = AsyncConnection[Any]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


async def ago(db: Db, **age: float) -> datetime:
    row = await (await db.execute("SELECT now() - %s", [timedelta(**age)])).fetchone()
    assert row is not None
    return row[0]  # type: ignore[no-any-return]


async def run_python(names: dict[str, Any]) -> None:
    """As in a notebook: one namespace, `await` allowed."""
    for number, block in enumerate(blocks("python")):
        code = compile(block, f"<block {number} of recovery.md>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        outcome = eval(code, names)
        if inspect.isawaitable(outcome):
            await outcome


async def test_the_python_blocks_run_and_recover_what_they_say(
    database_url: str, db: Db, capsys: pytest.CaptureFixture[str]
) -> None:
    long_ago, before = await ago(db, hours=1), await ago(db, minutes=3)
    silent = await given_task(db, status=TaskStatus.RUNNING, claimed_at=long_ago, started_at=long_ago, worker_pid=77)
    claimed = await given_task(db, status=TaskStatus.CLAIMED, claimed_at=before, claimed_by_worker_id="gone")
    overdue = await given_task(db, good_until=before)
    await given_worker(db, "silent", last_heartbeat_at=before, sweeping=True)
    held = {"claimed_by_worker_id": "silent", "recovery_enrolled": True, "claimed_at": before, "started_at": before}
    swept = await given_task(db, status=TaskStatus.RUNNING, **held)
    await given_worker(db, OWNER)
    mine = {"claimed_by_worker_id": OWNER, "claimed_at": await ago(db), "started_at": await ago(db)}
    freed = await given_task(db, status=TaskStatus.RUNNING, **mine)

    names: dict[str, Any] = {"database_url": database_url}
    try:
        await run_python(names)
    finally:
        await names["app"].get_broker().close_async()

    said = capsys.readouterr().out
    assert f"{silent} a_task None 77 None\n" in said
    assert "1 handled, 1 requeued, 1 past their deadline\n" in said
    assert "silent None None heard of\n" in said, "not for five minutes yet"
    assert "would sweep: ['silent']\n" in said, "but for the two that the app of the page allows"
    assert "1 tasks recovered\n" in said
    assert "1 tasks of that worker are in the queue again\n" in said
    assert (await task_row(db, silent))["error_code"] == "WORKER_CRASHED"
    states = [(await task_row(db, task_id))["status"] for task_id in (silent, claimed, overdue, swept, freed)]
    assert states == ["FAILED", "PENDING", "PENDING", "PENDING", "PENDING"]
    assert "1 tasks of ['silent'] recovered by" in said, "the hooks of the page are called, in this process"


def test_r98_the_recommended_settings_are_valid() -> None:
    settings = [block for block in blocks("python") if "RecoveryConfig(runner" in block or "quick = " in block]
    assert len(settings) == 2
    for values in ((60_000, 600_000), (10_000, 30_000)):
        assert all(f"{value:_}" in "".join(settings) for value in values)


async def run_sql(db: Db, containing: str, task_id: str) -> list[tuple[Any, ...]]:
    """The one block with these words, as `psql -v id=…` runs it; the rows of its last query."""
    [block] = [block for block in blocks("sql") if containing in block]
    cursor = await db.execute(block.replace(":'id'", f"'{task_id}'").encode())
    return await cursor.fetchall() if cursor.description else []


async def compared(db: Db, task_id: str) -> dict[str, Any]:
    """The columns of a task that a repair by hand must leave as ours does."""
    row = await task_row(db, task_id)
    return {
        name: value for name, value in row.items() if name not in ("id", "enqueued_at", "updated_at", "failed_reason")
    }


async def twins(db: Db, status: TaskStatus, move: Any) -> tuple[str, str]:
    """Two tasks alike; the second is moved by us."""
    since = await ago(db, minutes=10)
    held = {"claimed_at": since, "claim_expires_at": since, "recovery_enrolled": True, "retry_count": 1}
    held |= {"sent_at": since, "created_at": since, "max_retries": 3}
    if status is TaskStatus.RUNNING:
        held |= {"started_at": since, "finalizing_at": since}
        held |= {"worker_pid": 5, "worker_hostname": "h", "worker_process_name": "p"}
    one, two = [await given_task(db, status=status, **held) for _ in range(2)]
    moves: list[Move] = [move(Claim(two, 1))]
    assert await tasks.apply(db, "w1", moves) == {two}
    return one, two


async def test_r93_the_sql_that_looks_for_stale_tasks_finds_the_most_silent_first(db: Db) -> None:
    beating, silent = [
        await given_task(db, status=TaskStatus.RUNNING, started_at=await ago(db, hours=2)) for _ in range(2)
    ]
    waiting = await given_task(db, status=TaskStatus.CLAIMED, claimed_at=await ago(db, hours=1))
    await given_heartbeat(db, beating, "runner")
    await given_task(db)
    rows = await run_sql(db, "AS silence", "")
    assert [row[0] for row in rows] == [silent, waiting, beating]


async def test_r93_the_sql_that_gives_a_claim_back_does_what_we_do(db: Db) -> None:
    by_hand, by_us = await twins(db, TaskStatus.CLAIMED, Requeue)
    await run_sql(db, "status = 'CLAIMED'", by_hand)
    assert await compared(db, by_hand) == await compared(db, by_us)
    assert (await task_row(db, by_hand))["status"] == "PENDING"


async def test_r93_the_sql_that_runs_a_task_again_does_what_we_do(db: Db) -> None:
    by_hand, by_us = await twins(
        db, TaskStatus.RUNNING, lambda claim: not_charged(crashed(claim, "gone", "w1", "h", 5), 0.0)
    )
    await run_sql(db, "BEGIN;", by_hand)
    assert await compared(db, by_hand) == await compared(db, by_us)
    assert (await task_row(db, by_hand))["status"] == "PENDING"
    [one, two] = [await attempt(db, task_id) for task_id in (by_hand, by_us)]
    assert one == two == (2, "WORKER_FAILURE", True, "WORKER_CRASHED", "w1", "h", 5, "p")


async def attempt(db: Db, task_id: str) -> Any:
    columns = "attempt, outcome, will_retry, error_code, worker_id, worker_hostname, worker_pid, worker_process_name"
    query = f"SELECT {columns} FROM horsies_task_attempts WHERE task_id = %s"  # noqa: S608
    return await (await db.execute(query, [task_id])).fetchone()


async def test_r93_heartbeats_may_be_deleted_by_age(db: Db) -> None:
    task = await given_task(db, status=TaskStatus.RUNNING)
    await given_heartbeat(db, task, "runner")
    await given_heartbeat(db, task, "runner", sent_at=await ago(db, hours=25))
    await run_sql(db, "DELETE FROM horsies_heartbeats", "")
    left = await (await db.execute("SELECT now() - sent_at < interval '1 minute' FROM horsies_heartbeats")).fetchall()
    assert left == [(True,)]
