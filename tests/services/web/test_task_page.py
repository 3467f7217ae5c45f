"""What the page of one task offers and says (M-91): running it now, running it again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.types.status import TaskStatus
from horsies.web import ViewOnly
from tests.factories import given_attempt, given_task, given_workflow, task_row
from tests.services.web.test_pages import page_of
from tests.web_support import a_board, refusal

Db = AsyncConnection[Any]
LATER = datetime(2100, 1, 2, 3, 4, 5, tzinfo=UTC)
RETRY = {"enqueued_at": LATER, "next_retry_at": LATER, "retry_count": 1, "max_retries": 3}


def opener(task_id: str) -> str:
    return f"/dialogs/run-task-now?id={task_id}"


@pytest.mark.parametrize("waits", [{"enqueued_at": LATER}, RETRY], ids=["not due", "retry"])
async def test_m91_m49d_a_task_that_is_due_later_can_be_run_now(
    database_url: str, db: Db, waits: dict[str, Any]
) -> None:
    task = await given_task(db, **waits)
    async with a_board(database_url) as board:
        page = await page_of(board, f"/tasks/{task}")
        assert "Run now…" in page.text and opener(task) in page.values("hx-get")
        dialog = await page_of(board, opener(task))
        assert "is due at 2100-01-02 03:04:05 UTC. It becomes due at once" in dialog.text
        [action] = dialog.values("hx-post")
        assert action == f"/api/tasks/{task}/run-now"
        done = (await board.act(action)).json()
        assert done == {"task_id": task, "was_due_at": "2100-01-02T03:04:05Z"}
        assert refusal(await board.act(action)) == (409, "TASK_IS_DUE")
        assert opener(task) not in (await page_of(board, f"/tasks/{task}")).values("hx-get")
        assert "it is due already" in (await page_of(board, opener(task))).text
        audit = (await board.get("/api/audit", params={"target_id": task})).json()["items"]
        assert [(one["action"], one["outcome"]) for one in audit] == [
            ("task.run_now", "refused"),
            ("task.run_now", "done"),
        ]
    assert (await task_row(db, task))["retry_count"] == waits.get("retry_count", 0)


async def test_m91_x40_a_task_from_sql_says_which_role_has_sent_it(database_url: str, db: Db) -> None:
    from_sql, from_python = await given_task(db, sent_by="shop<b>"), await given_task(db)
    async with a_board(database_url) as board:
        said = (await board.get(f"/tasks/{from_sql}")).text
        assert "<dt>Sent from SQL by</dt><dd>shop&lt;b&gt;</dd>" in said
        assert "Sent from SQL" not in (await board.get(f"/tasks/{from_python}")).text


async def test_m91_m49d_a_task_that_does_not_wait_for_a_time_is_not_run_now(database_url: str, db: Db) -> None:
    flow = await given_workflow(db, status="PAUSED", started_at="now", paused_at="now")
    held = await given_task(db, workflow_id=flow, is_held=True, **RETRY)
    others = [await given_task(db), await given_task(db, status=TaskStatus.RUNNING, enqueued_at=LATER), held]
    async with a_board(database_url) as board:
        for task in others:
            assert opener(task) not in (await page_of(board, f"/tasks/{task}")).values("hx-get")
        assert refusal(await board.act(f"/api/tasks/{held}/run-now")) == (409, "TASK_IS_HELD")
        dialog = await page_of(board, opener(held))
        assert f"It would not run now: its workflow {flow} is paused" in dialog.text and not dialog.values("hx-post")
        assert refusal(await board.act("/api/tasks/nothing/run-now")) == (404, "TASK_NOT_FOUND")
        waits = await given_task(db, enqueued_at=LATER)
    async with a_board(database_url, ViewOnly()) as board:
        assert opener(waits) not in (await page_of(board, f"/tasks/{waits}")).values("hx-get")


@pytest.mark.parametrize(
    ("good_until", "said"),
    [
        (None, "It is due at once, and has no deadline, like this one."),
        (LATER, "It is due at once, and has the same deadline, 2100-01-02 03:04:05 UTC."),
        (LATER - timedelta(days=36525), "and has no deadline: that of this one has passed (2000-01-02 03:04:05 UTC)."),
    ],
)
async def test_m91_m49_the_dialog_says_when_the_new_task_is_due_and_its_deadline(
    database_url: str, db: Db, good_until: datetime | None, said: str
) -> None:
    task = await given_task(db, status=TaskStatus.EXPIRED, good_until=good_until)
    async with a_board(database_url) as board:
        assert said in (await page_of(board, f"/dialogs/rerun-task?id={task}")).text


async def test_m91_the_page_of_a_task_names_the_tasks_that_repeat_it(database_url: str, db: Db) -> None:
    """One that was sent from its page, and the one that was sent among others."""
    task, other = [await given_task(db, status=TaskStatus.FAILED, error_code="X") for _ in range(2)]
    async with a_board(database_url) as board:
        assert "Repeated as" not in (await page_of(board, f"/tasks/{task}")).text
        dialog = await page_of(board, f"/dialogs/rerun-task?id={task}")
        assert dialog.values("data-link") == ["/tasks/"] and "run again before" not in dialog.text
        [many] = (await board.act("/api/bulk/rerun", {"ids": [task]})).json()["new_ids"]
        new = (await board.act(f"/api/tasks/{task}/rerun")).json()["task_id"]
        await db.execute("UPDATE horsies_tasks SET status = 'COMPLETED', completed_at = now() WHERE id = %s", [new])
        page = await page_of(board, f"/tasks/{task}")
        assert "Repeated as" in page.text and {f"/tasks/{new}", f"/tasks/{many}"} <= set(page.values("href"))
        assert page.values("data-ids")[0].split() == [task, new, many]
        dialog = await page_of(board, f"/dialogs/rerun-task?id={task}")
        assert f"It was run again before, as {new} (COMPLETED), {many} (PENDING)." in dialog.text
        assert "Repeated as" not in (await page_of(board, f"/tasks/{other}")).text
        assert f"/tasks/{task}" in (await page_of(board, f"/tasks/{new}")).values("href"), "and the other way round"


async def test_m91_a_cancelled_task_says_who_cancelled_it_and_leads_to_others(database_url: str, db: Db) -> None:
    task = await given_task(db, enqueued_at=LATER)
    ended = {"status": TaskStatus.CANCELLED, "error_code": "TASK_CANCELLED"}
    nobody = await given_task(db, **ended, started_at="now", claimed_at="now")
    async with a_board(database_url) as board:
        assert (await board.act(f"/api/tasks/{task}/cancel")).status_code == 200
        page = await page_of(board, f"/tasks/{task}")
        assert "It was cancelled by anonymous at " in page.text and "Why it failed" not in page.text
        assert "it ended before" in page.text, "it was never due"
        assert "/tasks?code=TASK_CANCELLED" in page.values("href")
        assert f"/tasks/{task}" in (await page_of(board, "/tasks?code=TASK_CANCELLED")).values("href")
        assert "__builtin_task_code__" not in page.text.partition("Raw row")[0]
        page = await page_of(board, f"/tasks/{nobody}")
        assert "It was cancelled at " in page.text and ", while it ran." in page.text


async def test_m91_a_sentence_is_not_said_twice(database_url: str, db: Db) -> None:
    said = "the worker has died"
    result = '{"err": {"error_code": {"__builtin_task_code__": "WORKER_CRASHED"}, "message": "%s"}}'
    failed = {"status": TaskStatus.FAILED, "error_code": "WORKER_CRASHED", "result": result % said, "args": "[]"}
    task = await given_task(db, **failed, failed_reason=said)
    other = await given_task(db, **failed, failed_reason="signal 9")
    await given_attempt(db, task, error_message=said, failed_reason=said, outcome="WORKER_FAILURE")
    async with a_board(database_url) as board:
        before = (await page_of(board, f"/tasks/{task}")).text.partition("Raw row")[0]
        assert before.count(said) == 3, "on top, in the result, and of the attempt"
        assert "signal 9" in (await page_of(board, f"/tasks/{other}")).text.partition("Raw row")[0]


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (TaskStatus.PENDING, "(will be tried again)"),
        (TaskStatus.RUNNING, "(is being tried again)"),
        (TaskStatus.CANCELLED, "(was to be tried again)"),
    ],
)
async def test_m91_an_attempt_says_whether_its_retry_is_still_to_come(
    database_url: str, db: Db, status: TaskStatus, said: str
) -> None:
    task = await given_task(db, status=status, retry_count=2, max_retries=3)
    for number in (1, 2):
        await given_attempt(db, task, attempt=number, will_retry=True)
    async with a_board(database_url) as board:
        page = await page_of(board, f"/tasks/{task}")
        assert page.text.count("(was tried again)") == 1 and said in page.text


async def test_m91_the_error_of_a_workflow_is_shown_once(database_url: str, db: Db) -> None:
    error = '{"error_code": "BANK_DOWN", "message": "the bank is down"}'
    ended = {"status": "FAILED", "started_at": "now", "completed_at": "now", "error_code": "BANK_DOWN", "error": error}
    flow = await given_workflow(db, **ended, result=f'{{"err": {error}}}')
    other = await given_workflow(db, **ended, result='{"err": {"message": "another one"}}')
    async with a_board(database_url) as board:
        assert (await page_of(board, f"/workflows/{flow}")).text.count("the bank is down") == 1
        page = await page_of(board, f"/workflows/{other}")
        assert "another one" in page.text and "the bank is down" in page.text
