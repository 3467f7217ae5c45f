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


async def given_queues(db: Db) -> str:
    """A task in a queue that nobody serves, and workers of other queues, of which one knows it."""
    await given_worker(db, "w1", queues=["mail", "fast"], metadata=Jsonb({"task_names": ["invoice.remind"]}))
    await given_worker(db, "w2", queues=["mail"], metadata=Jsonb({"task_names": ["other"]}))
    await given_worker(db, "w3", queues=["slow"], metadata=Jsonb({"task_names": ["other"]}))
    return await given_task(db, queue_name="archive", task_name="invoice.remind", status=TaskStatus.FAILED)


async def test_m91_the_dialog_of_a_move_offers_queues_and_says_who_serves_them(database_url: str, db: Db) -> None:
    await given_queues(db)
    waiting = await given_task(db, queue_name="archive", task_name="invoice.remind")
    async with a_board(database_url) as board:
        page = await page_of(board, f"/dialogs/move-tasks?ids={waiting}")
        offered = {attrs["value"]: attrs["label"] for tag, attrs in page.elements if tag == "option"}
        assert list(offered)[:2] == ["fast", "mail"] and offered == {
            "fast": "1 live worker, which knows invoice.remind",
            "mail": "2 live workers, 1 of them knows invoice.remind",
            "slow": "1 live worker, which does not know invoice.remind",
            "archive": "no live worker serves it",
        }
        assert "Move it" in page.text and "Move them" not in page.text
        two = await page_of(board, f"/dialogs/move-tasks?ids={waiting}&ids={await given_task(db)}")
        assert "Move them" in two.text and "2 live workers, none knows all of these tasks" in str(two.elements)


async def test_m91_whoever_runs_a_task_again_is_warned_of_a_queue_that_nobody_serves(database_url: str, db: Db) -> None:
    unserved = await given_queues(db)
    unknown = await given_task(db, queue_name="slow", task_name="invoice.remind", status=TaskStatus.EXPIRED)
    served = await given_task(db, queue_name="fast", task_name="invoice.remind", status=TaskStatus.FAILED)
    async with a_board(database_url) as board:
        page = await page_of(board, f"/dialogs/rerun-task?id={unserved}")
        assert "No live worker serves the queue archive: the new task would wait." in page.text
        assert "Move it then to a queue that is served: fast, mail." in page.text
        page = await page_of(board, f"/dialogs/rerun-task?id={unknown}")
        assert "No live worker of its queue knows this task" in page.text
        assert "No live worker" not in (await page_of(board, f"/dialogs/rerun-task?id={served}")).text
