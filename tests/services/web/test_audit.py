"""Every action through the dashboard is written down, with who acted, and shown where it matters (M-94)."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection

from horsies.core.types.status import TaskStatus
from horsies.web import TrustedHeader
from tests.factories import given_task, given_worker, given_workflow
from tests.web_support import Board, a_board

ADA = {"X-Forwarded-User": "ada"}


async def entries(board: Board, **asked: str) -> list[tuple[str, str, list[str], str]]:
    """Who did what on which ids, and what came of it, the newest first."""
    page = (await board.get("/api/audit", params=asked, headers=ADA)).json()
    return [(one["actor"], one["action"], one["target_ids"], one["outcome"]) for one in page["items"]]


async def test_m94_what_somebody_did_is_written_down_with_the_name_of_the_proxy(
    database_url: str, db: AsyncConnection[Any]
) -> None:
    task, other = await given_task(db), await given_task(db)
    async with a_board(database_url, TrustedHeader(allow_actions=True)) as board:
        assert (await board.act(f"/api/tasks/{task}/cancel", headers=ADA)).status_code == 200
        assert (await board.act(f"/api/tasks/{task}/cancel", headers=ADA)).status_code == 409
        assert (await board.act(f"/api/tasks/{other}/cancel")).status_code == 403, "nobody has said who it is"
        assert await entries(board) == [
            ("ada", "task.cancel", [task], "refused"),
            ("ada", "task.cancel", [task], "done"),
        ]
        assert await entries(board, actor="grace") == []
        for path in (f"/tasks/{task}", "/audit", f"/audit?target={task}"):
            shown = (await board.get(path, headers=ADA)).text
            assert "task.cancel" in shown and ">ada<" in shown and "refused" in shown
        assert "task.cancel" not in (await board.get(f"/tasks/{other}", headers=ADA)).text


async def test_m94_nobody_is_named_where_nobody_is_known(database_url: str, db: AsyncConnection[Any]) -> None:
    workflow = await given_workflow(db, status="RUNNING")
    async with a_board(database_url) as board:
        assert (await board.act(f"/api/workflows/{workflow}/pause")).status_code == 200
        assert await entries(board, target_id=workflow) == [("anonymous", "workflow.pause", [workflow], "done")]
        assert "workflow.pause" in (await board.get(f"/workflows/{workflow}")).text


async def last_entry(board: Board) -> tuple[str, str, set[str], dict[str, Any]]:
    """What was done last, what came of it, on which ids, and the details."""
    [entry, *_] = (await board.get("/api/audit")).json()["items"]
    return entry["action"], entry["outcome"], set(entry["target_ids"]), entry["details"]


async def test_m94_of_many_tasks_those_are_written_down_that_were_changed(
    database_url: str, db: AsyncConnection[Any]
) -> None:
    waiting = [await given_task(db) for _ in range(3)]
    failed = [await given_task(db, status=TaskStatus.FAILED, error_code="X", failed_at="now") for _ in range(2)]
    ended = await given_task(db, status=TaskStatus.COMPLETED)
    async with a_board(database_url) as board:
        await board.act("/api/bulk/move", {"ids": [*waiting, ended], "queue": "other"})
        details: dict[str, Any] = {"queue": "other", "changed": 3, "skipped": {"TASK_NOT_WAITING": 1}}
        assert await last_entry(board) == ("task.move", "done", set(waiting), details)
        await board.act("/api/bulk/rerun", {"error_codes": ["X"]})
        details = {"error_codes": ["X"], "changed": 2}
        assert await last_entry(board) == ("task.rerun", "done", set(failed), details)
        await board.act("/api/bulk/cancel", {"ids": [*waiting, ended]})
        details = {"changed": 3, "skipped": {"TASK_NOT_CANCELLABLE": 1}}
        assert await last_entry(board) == ("task.cancel", "done", set(waiting), details)
        await board.act("/api/bulk/cancel", {"ids": [ended, "nobody"]})
        details = {"changed": 0, "skipped": {"TASK_NOT_CANCELLABLE": 1, "TASK_NOT_FOUND": 1}}
        assert await last_entry(board) == ("task.cancel", "done", set(), details)
        assert await entries(board, target_id=ended) == [], "nothing was done to it"
        assert "task.cancel" not in (await board.get(f"/tasks/{ended}")).text
        assert "TASK_NOT_FOUND" in (await board.get("/audit")).text


async def test_m94_the_new_task_of_a_rerun_is_written_down(database_url: str, db: AsyncConnection[Any]) -> None:
    failed = await given_task(db, status=TaskStatus.FAILED)
    async with a_board(database_url) as board:
        new = (await board.act(f"/api/tasks/{failed}/rerun")).json()["task_id"]
        assert await last_entry(board) == ("task.rerun", "done", {failed}, {"new_task_id": new})


async def test_m94_the_workers_that_a_sweep_found_dead_are_written_down(
    database_url: str, db: AsyncConnection[Any]
) -> None:
    await given_worker(db, "dead", last_heartbeat_at="2020-01-01", sweeping=True)
    await given_task(
        db,
        status=TaskStatus.RUNNING,
        claimed=True,
        claimed_by_worker_id="dead",
        claimed_at="2020-01-01",
        started_at="2020-01-01",
    )
    async with a_board(database_url) as board:
        await board.act("/api/recovery/sweep", {"sweep_threshold_seconds": 60, "recovery_delay_seconds": 0})
        assert await last_entry(board) == ("worker.sweep", "done", {"dead"}, {"recovered": 1})
