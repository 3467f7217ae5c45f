"""What is wrong is seen first (M-91): the overview says it in words with links, and says that nothing is wrong only if
the query API finds nothing (M-45d). A queue says why its oldest task waits."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import pytest
from psycopg import AsyncConnection

from horsies.core.types.status import TaskStatus
from tests.factories import given_task, given_worker, given_worker_state, given_workflow
from tests.services.web.test_pages import page_of
from tests.web_support import a_board

ALL_WELL = "Nothing: what is due is served"


async def test_m91_the_overview_says_that_nothing_is_wrong(database_url: str, db: AsyncConnection[Any]) -> None:
    await given_worker(db, "w1", queues=["default"])
    await given_worker_state(db, "w1", processes=1, tasks_running=1)
    async with a_board(database_url) as board:
        page = await page_of(board, "/")
        assert (await board.get("/api/alerts")).json() == []
    assert ALL_WELL in page.text
    assert "1 task running in 1 process" in page.text


def timeless(text: str) -> str:
    """The page and the answer were made one after the other: their durations may differ by seconds."""
    return re.sub(r"\b\d+ s\b", "N s", text)


async def test_m91_the_overview_and_the_api_say_the_same(database_url: str, db: AsyncConnection[Any]) -> None:
    slow = {"task_name": "letter", "started_at": "now"}
    task = await given_task(db, status=TaskStatus.RUNNING, **slow)
    await db.execute("UPDATE horsies_tasks SET started_at = now() - interval '14 min 20 s' WHERE id = %s", [task])
    await given_worker(db, "w1", queues=["default"])
    await given_task(db, status=TaskStatus.FAILED, failed_at="now", error_code="X")
    flow = await given_workflow(db, name="order", status="PAUSED", on_error="PAUSE", error="{}", paused_at="now")
    async with a_board(database_url) as board:
        page = await page_of(board, "/")
        told = (await board.get("/api/alerts")).json()
        for href in (f"/workflows/{flow}", f"/tasks/{task}", "/failures?window=1h"):
            assert href in page.values("href")
            assert (await board.get(href)).status_code == 200
    assert ALL_WELL not in page.text
    assert [one["kind"] for one in told] == ["stopped workflow", "failed", "long run"]
    assert all(timeless(one["message"]) in timeless(page.text) for one in told)
    classes = [attrs.get("class") for tag, attrs in page.elements if tag == "li" and attrs.get("class")]
    assert classes[-3:] == ["bad", "warn", "warn"]


@pytest.mark.parametrize("known", [["mail.send"], ["mail.send", "invoice.remind"]])
async def test_m91_a_queue_says_why_its_oldest_task_waits(
    database_url: str, db: AsyncConnection[Any], known: list[str]
) -> None:
    await db.execute("INSERT INTO horsies_known_names (names_hash, names) VALUES ('h', %s)", [known])
    await given_worker(db, "w1", queues=["mail"], names_hash="h")
    task = await given_task(db, task_name="invoice.remind", queue_name="mail", enqueued_at="now")
    await db.execute("UPDATE horsies_tasks SET enqueued_at = now() - interval '102 s' WHERE id = %s", [task])
    async with a_board(database_url) as board:
        overview, page = await page_of(board, "/"), await page_of(board, "/queues/mail")
    is_known = "invoice.remind" in known
    assert ("no live worker of the queue knows invoice.remind" in overview.text) is not is_known
    assert ("knows a task named" in page.text) is not is_known
    assert ("it is next in its queue" in page.text) is is_known
    for shown in (overview, page):
        assert f"/tasks/{task}" in shown.values("href")


async def test_m91_a_queue_without_workers_is_red_as_long_as_something_waits(
    database_url: str, db: AsyncConnection[Any]
) -> None:
    await given_task(db, queue_name="archive", enqueued_at="tomorrow")
    await given_task(db, queue_name="left", status=TaskStatus.CANCELLED)
    async with a_board(database_url) as board:
        for address in ("/queues", "/"):
            rows = (await board.get(address)).text.split("<tr")
            [archive], [left] = ([row for row in rows if f">{name}<" in row] for name in ("archive", "left"))
            assert '<span class="bad-text">none</span>' in archive, address
            assert '<span class="warn-text">none</span>' in left, address
        assert '<span class="bad-text">none</span>' in (await board.get("/queues/archive")).text


async def test_m91_no_link_of_an_alert_is_dead_whatever_names_are(database_url: str, db: AsyncConnection[Any]) -> None:
    name = "a/b <i>?#%2F"
    await given_worker(db, name, queues=[name])
    slow = await given_task(
        db, id="of/us", task_name=name, status=TaskStatus.RUNNING, started_at="2020-01-01Z", claimed_by_worker_id=name
    )
    oldest = await given_task(db, task_name=name, queue_name=name, enqueued_at="2020-01-01Z")
    await given_worker(db, f"{name} gone", queues=[name], last_heartbeat_at="2020-01-01Z")
    await given_task(db, status=TaskStatus.CLAIMED, claimed_by_worker_id=f"{name} gone")
    async with a_board(database_url) as board:
        page = await page_of(board, "/")
        links = {href for href in page.values("href") if "%2F" in href or oldest in href}
        assert len(links) >= 4, links
        for href in links:
            assert (await board.get(href)).status_code == 200, href
        assert f"/tasks/{quote(slow, safe='')}" in links
