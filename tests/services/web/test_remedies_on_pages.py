"""What a page says can be done about a task that is not running, and what its dialogs know of queues (M-91)."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from horsies.core.types.status import TaskStatus
from tests.factories import given_attempt, given_task, given_worker
from tests.services.web.test_pages import page_of
from tests.web_support import a_board

Db = AsyncConnection[Any]


async def test_m91_a_page_says_what_can_be_done(database_url: str, db: Db) -> None:
    task = await given_task(db, queue_name="archive", task_name="invoice.remind")
    await given_worker(db, "w1", queues=["mail"], metadata=Jsonb({"task_names": ["invoice.remind"]}))
    async with a_board(database_url) as board:
        page = await page_of(board, f"/tasks/{task}")
        assert "What you can do" in page.text and "horsies worker MODULE --queues archive" in page.text
        assert "a queue whose workers know invoice.remind: mail." in page.text
        told = (await board.get(f"/api/explain/{task}")).json()
        assert told["remedies"] and all(sentence in page.text for sentence in told["remedies"])


async def test_m91_what_holds_the_places_is_named_with_its_time(database_url: str, db: Db) -> None:
    known = Jsonb({"task_names": ["a_task"], "prefetch_buffer": 0, "queue_max_concurrency": {"mail": 1}})
    await given_worker(db, "w1", queues=["mail"], metadata=known)
    holder = await given_task(
        db, queue_name="mail", task_name="letter.stuck", status=TaskStatus.RUNNING, started_at="2020-01-01T00:00:00Z"
    )
    waiting = await given_task(db, queue_name="mail")
    async with a_board(database_url) as board:
        page = await page_of(board, f"/tasks/{waiting}")
        assert "QUEUE_AT_LIMIT" in page.text and "letter.stuck" in page.text and "running for" in page.text
        assert f"/tasks/{holder}" in page.values("href")


async def test_m93_the_last_error_of_a_retry_is_shown_as_far_as_its_task_may_be(database_url: str, db: Db) -> None:
    later = "2999-01-01T00:00:00Z"
    task = await given_task(db, enqueued_at=later, next_retry_at=later, kwargs='{"card": "4000-1234"}')
    await given_attempt(db, task, error_code="BANK_DOWN", error_message="no answer for 4000-1234", will_retry=True)
    async with a_board(database_url) as board:
        page = await page_of(board, f"/tasks/{task}")
        assert "failed with BANK_DOWN" in page.text and "Its last error: no answer for 4000-1234" in page.text
    async with a_board(database_url, mask=["card"]) as board:
        page = await page_of(board, f"/tasks/{task}")
        assert "Its last error: no answer for ***" in page.text and "4000-1234" not in page.text
