"""What a dialog asks before something is changed (M-91): it is about the very tasks that its form then names."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection

from horsies.core.types.status import TaskStatus
from tests.factories import given_task
from tests.services.web.test_pages import Page, page_of
from tests.web_support import a_board

Db = AsyncConnection[Any]


async def given_failures(db: Db, code: str, number: int = 3, task_name: str = "mail.send") -> None:
    """Tasks that failed with this code, as the statistics know them."""
    ids = [
        await given_task(db, status=TaskStatus.FAILED, task_name=task_name, error_code=code or None, failed_at="now")
        for _ in range(number)
    ]
    await db.execute(
        "INSERT INTO horsies_rollup (span, start_at, queue_name, task_name, error_code, failed, example_id)"
        " VALUES (60, date_trunc('minute', now()), 'default', %s, %s, %s, %s)",
        [task_name, code, number, ids[0]],
    )


def groups(page: Page) -> list[str]:
    """The dialogs that the page offers."""
    return [path for path in page.values("hx-get") if "rerun-group" in path]


async def test_m91_a_group_of_failures_without_a_code_leads_to_no_other_tasks(database_url: str, db: Db) -> None:
    await given_failures(db, "")
    await given_failures(db, "CARD_DECLINED", 2)
    async with a_board(database_url) as board:
        page = await page_of(board, "/failures?window=1h")
        assert "without a code" in page.text
        assert groups(page) == ["/dialogs/rerun-group?name=mail.send&code=CARD_DECLINED"]
        lists = [path for path in page.values("href") if path.startswith("/tasks?")]
        assert lists == ["/tasks?status=FAILED&name=mail.send&code=CARD_DECLINED"]
        for query in ("name=mail.send", "name=mail.send&code=", "code=CARD_DECLINED", ""):
            await page_of(board, f"/dialogs/rerun-group?{query}", 422)
        said = "At most 2 of the tasks would be changed: those that were run again before are left alone."
        assert said in (await page_of(board, groups(page)[0])).text


async def test_m91_tasks_of_any_priority_can_be_moved(database_url: str, db: Db) -> None:
    first, last = await given_task(db, priority=1), await given_task(db, priority=100)
    running = await given_task(db, priority=1, status=TaskStatus.RUNNING)
    async with a_board(database_url) as board:
        page = await page_of(board, f"/dialogs/move-tasks?ids={first}&ids={last}&ids={running}")
        assert "2 of the tasks would be changed." in page.text
        assert "1 would be left alone: they do not wait any more" in page.text
        assert page.values("hx-post") == ["/api/bulk/move"]
        alone = await page_of(board, f"/dialogs/move-tasks?ids={first}")
        assert "1 of the tasks would be changed." in alone.text and alone.values("hx-post")


async def test_m91_the_dialog_of_a_rerun_knows_what_was_run_again_before(database_url: str, db: Db) -> None:
    task = await given_task(db, status=TaskStatus.FAILED)
    async with a_board(database_url) as board:
        page = await page_of(board, f"/dialogs/rerun-tasks?ids={task}")
        assert "1 of the tasks would be changed." in page.text and page.values("hx-post")
        assert (await board.act("/api/bulk/rerun", {"ids": [task]})).json()["changed"] == 1
        page = await page_of(board, f"/dialogs/rerun-tasks?ids={task}")
        assert "0 of the tasks would be changed." in page.text and not page.values("hx-post")
        assert "1 would be left alone: they were run again before." in page.text
