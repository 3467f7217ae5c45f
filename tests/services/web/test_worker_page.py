"""The page of a worker that is gone: links to it stay alive (M-91)."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection

from tests.web_support import a_board

SNAPSHOT = """
    INSERT INTO horsies_worker_states (worker_id, snapshot_at, tasks_running)
    VALUES ('gone', now() - interval '3 days', 4)
"""


async def test_m91_a_worker_that_is_gone_still_has_its_page(database_url: str, db: AsyncConnection[Any]) -> None:
    await db.execute(SNAPSHOT)
    async with a_board(database_url) as board:
        lately, then = await board.get("/workers/gone"), await board.get("/workers/gone?window=7d")
        assert lately.status_code == then.status_code == 200
        assert lately.text.count("no data") > then.text.count("no data"), "its charts show what was then"
        assert (await board.get("/workers/never")).status_code == 404
