"""What the screens show is also there for programs (M-63): the charts, the logs of a task, and every filter of the list
of tasks. Each answer is the one that the page is made of."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.producer.enqueue import new_task_id
from horsies.core.types.status import TaskStatus
from horsies.web import api
from tests.factories import given_task
from tests.web_support import Board, a_board

Db = AsyncConnection[Any]


async def found(board: Board, **asked: str) -> list[str]:
    answer = await board.get("/api/tasks", params=asked)
    assert answer.status_code == 200, answer.text
    return [task["task_id"] for task in answer.json()["items"]]


async def test_m46b_m63_tasks_are_found_by_age_prefix_and_key(database_url: str, db: Db) -> None:
    old = await given_task(db, id="0198c5de-0001-7000-8000-000000000001", sent_at="2025-08-20T10:00:00Z")
    keyed = await given_task(db, id=new_task_id(), idempotency_key="order 17")
    async with a_board(database_url) as board:
        assert await found(board) == [keyed, old]
        assert await found(board, sent_after="2025-08-20T10:00:00Z", sent_before="2025-08-20T10:00:01Z") == [old]
        assert await found(board, sent_before="2025-08-20T12:00:00+02:00") == []
        an_hour_ago = datetime.now(UTC) - timedelta(hours=1)
        assert await found(board, sent_after=an_hour_ago.isoformat()) == [keyed]
        assert await found(board, sent_before=an_hour_ago.isoformat(), statuses="PENDING") == [old]
        assert await found(board, id_prefix="0198c5de-0001") == [old]
        assert await found(board, idempotency_key="order 17") == [keyed]
        assert await found(board, idempotency_key="order") == []


async def given_lines(db: Db, task_id: str, attempt: int, first: int, *texts: str) -> None:
    lines = [[1_000.0 + number, "INFO", "shop", text] for number, text in enumerate(texts)]
    await db.execute(
        "INSERT INTO horsies_task_logs (task_id, claim_seq, attempt, first_line, last_line, lines)"
        " VALUES (%s, %s, %s, %s, %s, %s)",
        [task_id, attempt, attempt, first, first + len(texts) - 1, json.dumps(lines)],
    )


async def test_m63_p51a_what_a_task_has_logged_is_read_page_by_page(
    database_url: str, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "LOGGED_ROWS", 2)
    task = await given_task(db, status=TaskStatus.RUNNING, started_at="now")
    async with a_board(database_url) as board:
        path = f"/api/tasks/{task}/logs"
        assert (await board.get(path)).json() == {
            "task_name": "a_task", "lines": [], "next_cursor": None, "is_last": True, "is_hidden": False,
        }  # fmt: skip
        await given_lines(db, task, 1, 1, "one", "two")
        await given_lines(db, task, 1, 3, "three")
        await given_lines(db, task, 2, 1, "again <b>")
        page = (await board.get(path)).json()
        assert [(line["attempt"], line["number"], line["text"]) for line in page["lines"]] == [
            (1, 1, "one"), (1, 2, "two"), (1, 3, "three"),
        ]  # fmt: skip
        assert page["lines"][0].items() >= {"level": "INFO", "logger": "shop", "time": "1970-01-01T00:16:40Z"}.items()
        assert not page["is_last"]
        page = (await board.get(path, params={"after": page["next_cursor"]})).json()
        assert ([line["text"] for line in page["lines"]], page["is_last"]) == (["again <b>"], True)
        rest = (await board.get(path, params={"after": page["next_cursor"]})).json()
        assert (rest["lines"], rest["next_cursor"]) == ([], page["next_cursor"]), "it can be followed"
        await given_lines(db, task, 2, 2, "and more")
        rest = (await board.get(path, params={"after": page["next_cursor"]})).json()
        assert [line["text"] for line in rest["lines"]] == ["and more"]
    async with a_board(database_url, hide_payloads=True) as board:
        hidden = (await board.get(path)).json()
        assert (hidden["lines"], hidden["is_hidden"]) == ([], True)


async def test_m45b_m63_the_numbers_of_the_charts_are_there_for_programs(database_url: str, db: Db) -> None:
    statement = (
        "INSERT INTO horsies_rollup (span, start_at, queue_name, task_name, error_code, completed, failed)"
        " VALUES (%s, to_timestamp(floor(extract(epoch FROM now()) / %s) * %s), %s, %s, '', 5, 2)"
    )
    for span in (60, 600, 3_600):
        for queue, name in (("mail", "send"), ("video", "cut")):
            await db.execute(statement, [span, span, span, queue, name])

    async def series(board: Board, **asked: str) -> dict[str, Any]:
        answer = await board.get("/api/statistics", params=asked)
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return {**body, **{name: sum(one[name] for one in body["points"]) for name in ("completed", "failed")}}

    async with a_board(database_url) as board:
        hour = await series(board)
        assert (hour["step_seconds"], hour["completed"], hour["failed"], hour["is_complete"]) == (60, 10, 4, True)
        assert 60 <= len(hour["points"]) <= 61
        assert (await series(board, queues="mail"))["completed"] == 5
        assert (await series(board, task_names="cut", queues="mail"))["completed"] == 0
        week = (datetime.now(UTC) - timedelta(days=7)).isoformat()
        long = await series(board, since=week, step_seconds="3600")
        assert (long["step_seconds"], long["completed"]) == (3_600, 10) and len(long["points"]) in (168, 169)
        past = await series(board, since="2025-01-01T00:00:00Z", until="2025-01-01T01:00:00+00:00", step_seconds="600")
        assert (past["completed"], len(past["points"]), past["since"]) == (0, 6, "2025-01-01T00:00:00Z")


async def test_m45_m63_the_chart_of_a_worker_is_there_for_programs(board: Board) -> None:
    assert len((await board.get("/api/workers/w1/history")).json()) == 3
    spread = await board.get("/api/workers/w1/history", params={"window_seconds": "3600", "limit": "1"})
    assert (spread.status_code, len(spread.json())) == (200, 1)


async def test_m63_the_document_tells_of_them(board: Board) -> None:
    paths = (await board.get("/api/openapi.json")).json()["paths"]

    def named(path: str) -> set[str]:
        return {one["name"] for one in paths[path]["get"]["parameters"]}

    assert named("/api/tasks") >= {"sent_after", "sent_before", "id_prefix", "idempotency_key"}
    assert named("/api/tasks/{task_id}/logs") == {"task_id", "after"}
    assert named("/api/statistics") == {"since", "until", "step_seconds", "queues", "task_names"}
