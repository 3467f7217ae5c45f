"""The list of tasks and the search (M-91): what tasks were given and wait for, and what a part of an id leads to."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from psycopg import AsyncConnection

from horsies.core.app import Horsies
from horsies.core.models.app import AppConfig
from horsies.core.models.broker import PostgresConfig
from horsies.core.models.tasks import TaskError, TaskResult
from horsies.core.types.status import TaskStatus
from horsies.web.format import short_id
from tests.factories import given_task, given_worker, given_workflow
from tests.services.web.test_pages import Page, page_of
from tests.web_support import Board, a_board

NEWER, OLDER = "0192f3ab-1234-7abc-8000-0000000a7c21", "0192f3ab-1230-7abc-8000-0000000b7c21"


async def row_of(board: Board, task_id: str) -> str:
    """The text of its line."""
    rows = (await board.get("/tasks")).text.split("<tr")
    [row] = [row for row in rows if f'id="task-{task_id}"' in row]
    return Page(f"<tr{row}").text


async def test_m91_a_waiting_task_says_what_it_waits_for(database_url: str, db: AsyncConnection[Any]) -> None:
    await db.execute("INSERT INTO horsies_known_names (names_hash, names) VALUES ('h', ARRAY['a_task'])")
    await given_worker(db, "w1", queues=["default"], names_hash="h")
    later, ready, retried = await given_task(db), await given_task(db), await given_task(db, retry_count=1)
    lonely, unknown = await given_task(db, queue_name="archive"), await given_task(db, task_name="invoice.remind")
    await db.execute("UPDATE horsies_tasks SET enqueued_at = now() + interval '29 days 1 h' WHERE id = %s", [later])
    soon = (
        "UPDATE horsies_tasks SET enqueued_at = t.at, next_retry_at = t.at FROM (SELECT now() + interval '99 s') t(at)"
    )
    await db.execute(f"{soon} WHERE id = %s".encode(), [retried])
    async with a_board(database_url) as board:
        assert "due in 29 d" in await row_of(board, later)
        assert "next try in 1 min" in await row_of(board, retried)
        assert "no live worker serves the queue" in await row_of(board, lonely)
        assert "no live worker of the queue knows it" in await row_of(board, unknown)
        row = await row_of(board, ready)
        assert "no live worker" not in row and "due" not in row


@pytest.mark.parametrize(
    ("config", "shown", "hidden"),
    [
        ({}, 'mail "ann", 3, to="x@example.com"', "***"),
        ({"mask": ["to"]}, 'to="***"', "x@example.com"),
        ({"mask": lambda name, field, value: "(a letter)"}, "(a letter)", "x@example.com"),
        ({"hide_payloads": True}, "mail", "x@example.com"),
    ],
)
async def test_m91_m93_the_list_shows_arguments_masked(
    database_url: str, db: AsyncConnection[Any], config: dict[str, Any], shown: str, hidden: str
) -> None:
    task = await given_task(db, task_name="mail", args='["ann", 3]', kwargs='{"to": "x@example.com"}')
    async with a_board(database_url, **config) as board:
        row = await row_of(board, task)
    assert shown in row and hidden not in row


@pytest.mark.parametrize("config", [{}, {"mask": ["secret"]}])
async def test_m91_m93_long_arguments_are_cut_and_not_shown_where_a_part_is_masked(
    database_url: str, db: AsyncConnection[Any], config: dict[str, Any]
) -> None:
    given = json.dumps({"text": "x" * 3_000_000, "secret": "hunter22"})
    task = await given_task(db, kwargs=given)
    async with a_board(database_url, **config) as board:
        row = await row_of(board, task)
    assert len(row) < 600 and "hunter22" not in row
    assert ("xxxx" in row) is not bool(config) and ("***" in row) is bool(config)


async def test_m93_an_argument_beside_one_that_is_cut_may_repeat_what_is_masked(
    database_url: str, db: AsyncConnection[Any]
) -> None:
    app = Horsies(AppConfig(broker=PostgresConfig(database_url=database_url)))

    @app.task("login")
    def login(who: str, **more: str) -> TaskResult[None, TaskError]: ...

    task = await given_task(
        db, task_name="login", args='["hunter22"]', kwargs=json.dumps({"secret": "hunter22", "text": "x" * 2_000})
    )
    async with a_board(app, mask=["secret"]) as board:
        assert "hunter22" not in (await board.get("/tasks")).text
        assert "hunter22" not in (await board.get(f"/tasks/{task}")).text


async def test_m91_the_list_is_shown_also_to_who_cannot_read_workers(
    database_url: str, db: AsyncConnection[Any]
) -> None:
    task = await given_task(db)
    await db.execute("DROP TABLE horsies_workers CASCADE")
    async with a_board(database_url) as board:
        assert "a_task" in await row_of(board, task)


async def test_m91_tasks_without_a_code_can_be_chosen(database_url: str, db: AsyncConnection[Any]) -> None:
    coded = await given_task(db, status=TaskStatus.FAILED, failed_at="now", error_code="X")
    plain = await given_task(db, status=TaskStatus.FAILED, failed_at="now")
    async with a_board(database_url) as board:
        page = await page_of(board, "/tasks?status=FAILED&uncoded=1")
        listed = (await board.get("/api/tasks?uncoded_only=true&statuses=FAILED")).json()
    assert f"/tasks/{plain}" in page.values("href") and f"/tasks/{coded}" not in page.values("href")
    assert [one["task_id"] for one in listed["items"]] == [plain] and listed["total"] == 1


async def test_m91_a_search_takes_what_lists_show(database_url: str, db: AsyncConnection[Any]) -> None:
    for task_id in (NEWER, OLDER):
        await given_task(db, id=task_id, task_name="mail.send")
    flow = await given_workflow(db, id="0192f3ab-9999-7abc-8000-00000000beef")
    short = short_id(NEWER)
    assert (short, short_id("t-failed")) == ("0192f3ab-12…7c21", "t-failed")
    places = {
        "0192f3ab-1234": "/tasks?id=0192f3ab-1234",
        "0192f3ab-1234…7c21": f"/tasks/{NEWER}",
        "0192f3ab-1234...7c21": f"/tasks/{NEWER}",
        short: f"/tasks?id={quote(short)}",  # both were made in that moment
        "0a7c21": f"/tasks/{NEWER}",
        "7c21": f"/tasks?id={quote('…7c21')}",
        "mail.send": "/tasks?name=mail.send",
        "beef": f"/workflows/{flow}",
        short_id(flow): f"/workflows/{flow}",
        "nothing": "/tasks?id=nothing",
    }
    async with a_board(database_url) as board:
        found = {wanted: (await board.get("/find", params={"q": wanted})).headers["location"] for wanted in places}
        page = await page_of(board, places[short])
    assert found == places
    assert {f"/tasks/{NEWER}", f"/tasks/{OLDER}"} <= set(page.values("href"))
