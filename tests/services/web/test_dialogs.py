"""What a dialog asks before something is changed (M-91): it is about the very tasks that its form then names."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from psycopg import AsyncConnection

from horsies.core.types.status import TaskStatus
from horsies.web.pages.frame import query
from tests.factories import given_node, given_task, given_workflow
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


def body_of(page: Page) -> dict[str, Any]:
    """What the form of a dialog sends, of its hidden fields."""
    hidden = [attrs for tag, attrs in page.elements if tag == "input" and attrs.get("type") == "hidden"]
    return {str(one["name"]): json.loads(str(one["value"])) for one in hidden}


async def test_m91_a_group_of_failures_without_a_code_leads_to_no_other_tasks(database_url: str, db: Db) -> None:
    await given_failures(db, "")
    await given_failures(db, "CARD_DECLINED", 2)
    async with a_board(database_url) as board:
        page = await page_of(board, "/failures?window=1h")
        assert "without a code" in page.text
        assert groups(page) == ["/dialogs/rerun-group?name=mail.send&code=CARD_DECLINED"]
        lists = [path for path in page.values("href") if path.startswith("/tasks?")]
        of_no_code = "/tasks?status=FAILED&name=mail.send&uncoded=1"
        assert sorted(lists) == ["/tasks?status=FAILED&name=mail.send&code=CARD_DECLINED", of_no_code]
        for asked in ("name=mail.send", "name=mail.send&code=", "code=CARD_DECLINED", ""):
            await page_of(board, f"/dialogs/rerun-group?{asked}", 422)
        assert "2 of the tasks would be changed." in (await page_of(board, groups(page)[0])).text


async def test_m91_what_was_run_again_is_marked_and_not_offered_again(database_url: str, db: Db) -> None:
    await given_failures(db, "BANK_DOWN", 3)
    [[mended]] = await (await db.execute("SELECT min(id) FROM horsies_tasks")).fetchall()
    async with a_board(database_url) as board:
        assert (await board.act(f"/api/tasks/{mended}/rerun")).status_code == 200
        page = await page_of(board, "/failures?window=1h")
        dialog = await page_of(board, groups(page)[0])
    assert "3 1 run again" in page.text and f"/tasks/{mended}" not in page.values("href")
    assert "2 of the tasks would be changed." in dialog.text and mended not in dialog.text
    assert "1 would be left alone: they were run again before." in dialog.text


async def test_m91_times_of_failures_are_those_of_the_tasks(database_url: str, db: Db) -> None:
    """The example is one that exists, also if the statistics name none."""
    await given_failures(db, "BANK_DOWN", 2)
    await db.execute("UPDATE horsies_rollup SET example_id = NULL")
    async with a_board(database_url) as board:
        exact = await page_of(board, "/failures?window=1h")
        await db.execute("UPDATE horsies_rollup SET failed = 5")  # the others were deleted
        part = await page_of(board, "/failures?window=1h")
        await db.execute("DELETE FROM horsies_tasks")
        none = await page_of(board, "/failures?window=1h")
    assert [page.text.count("about ") for page in (exact, part, none)] == [0, 1, 2]
    assert [len([one for one in page.values("href") if one.startswith("/tasks/")]) for page in (exact, none)] == [1, 0]


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


ODD = ("A\nB", "A\r\nB", " A", "A ", '["A"]', "A,B", "A&code=B", "\u202eA", "x" * 255)


@pytest.mark.parametrize("code", ODD)
async def test_m91_a_dialog_acts_on_the_very_group_that_it_shows(database_url: str, db: Db, code: str) -> None:
    failed = {"status": TaskStatus.FAILED, "failed_at": "now"}
    task = await given_task(db, **failed, error_code=code)
    for other in ("A", "B", "x" * 254):
        await given_task(db, **failed, error_code=other)
    async with a_board(database_url) as board:
        dialog = await page_of(board, f"/dialogs/rerun-group?name=a_task&code={quote(code, safe='')}")
        assert "1 of the tasks would be changed." in dialog.text and task in dialog.text
        body = body_of(dialog)
        assert body == {"task_names": ["a_task"], "error_codes": [code]}
        [action] = dialog.values("hx-post")
        assert (await board.act(action, body)).json()["changed_ids"] == [task]


@pytest.mark.parametrize("name", ["cancel-tasks", "move-tasks"])
async def test_m91_a_dialog_acts_on_the_very_tasks_that_it_shows(database_url: str, db: Db, name: str) -> None:
    ids = [await given_task(db, id=task_id) for task_id in ("a,b", " a", "a ", "[")]
    for other in ("a", "b"):
        await given_task(db, id=other)
    async with a_board(database_url) as board:
        dialog = await page_of(board, f"/dialogs/{name}{query(ids=[*ids, *ids])}")
        assert "4 of the tasks would be changed." in dialog.text
        assert {**body_of(dialog), "include_running": True} == {"ids": ids, "include_running": True}


async def test_m91_a_dialog_about_one_node_retries_that_node(database_url: str, db: Db) -> None:
    flow = await given_workflow(db, status="FAILED", started_at="now", completed_at="now")
    for index, node_id in enumerate(("a", "b", "a\nb", " a")):
        await given_node(db, flow, task_index=index, node_id=node_id, status="FAILED", error_code="X")
    async with a_board(database_url) as board:
        for node_id in ("a\nb", " a"):
            dialog = await page_of(board, f"/dialogs/retry-workflow?id={flow}&node={quote(node_id, safe='')}")
            assert "Retry 1 failed node" in dialog.text and body_of(dialog) == {"node_ids": [node_id]}


async def test_m64_a_dialog_about_one_thing_is_told_which(database_url: str) -> None:
    async with a_board(database_url) as board:
        for address in (
            "cancel-task",
            "cancel-task?id=",
            "cancel-task?id=a&id=b",
            "pause-schedule",
            "rerun-tasks?ids=",
        ):
            await page_of(board, f"/dialogs/{address}", 422)


@pytest.mark.parametrize("name", ["a/b", " lead", "trail ", "x/pause", "/", "a\nb", "a?b#c%2F", "Ω 漢", "nightly"])
async def test_m63_m91_a_schedule_of_any_name_is_paused_through_its_dialog(
    database_url: str, db: Db, name: str
) -> None:
    definition = '{"task_name": "mail.send", "pattern": {"type": "daily"}}'
    for one in {name, "lead", "trail", "b", "a"}:
        await db.execute("INSERT INTO horsies_schedules (name, definition) VALUES (%s, %s)", [one, definition])
    async with a_board(database_url) as board:
        page = await page_of(board, "/schedules")
        [opener] = [one for one in page.values("hx-get") if one == f"/dialogs/pause-schedule{query(name=name)}"]
        [action] = (await page_of(board, opener)).values("hx-post")
        for _ in range(2):
            done = await board.act(action)
            assert (done.status_code, done.json()["name"]) == (200, name)
        assert (await board.get(action)).status_code == 405
    cursor = await db.execute("SELECT name FROM horsies_schedules WHERE paused")
    assert await cursor.fetchall() == [(name,)]


async def test_m91_a_dialog_about_one_task_speaks_of_one(database_url: str, db: Db) -> None:
    waits, failed = await given_task(db), await given_task(db, status=TaskStatus.FAILED)
    async with a_board(database_url) as board:
        assert "Cancel 1 task?" in (await page_of(board, f"/dialogs/cancel-tasks?ids={waits}")).text
        assert "Run 1 task again?" in (await page_of(board, f"/dialogs/rerun-tasks?ids={failed}")).text
