"""Every action through the dashboard is written down, with who acted, and shown where it matters (M-94)."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection

from horsies.web import TrustedHeader
from tests.factories import given_task, given_workflow
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
