"""What is masked is on no page and in no answer (M-93), wherever a row repeats it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from starlette.requests import Request

from horsies.web.pages import SCREENS
from horsies.web.pages.frame import viewer_of
from tests.conftest import fresh_database
from tests.services.web.conftest import FILLED, THERE
from tests.web_support import ANSWERING, Board, a_board, path_of, scope_of

SECRET = "hunter2-and-more"
REPEATED = """
    UPDATE horsies_tasks SET args = '[]', kwargs = '{"password": "SECRET"}', failed_reason = 'why: SECRET',
        idempotency_key = id || ' with SECRET', task_options = '{"note": "SECRET"}',
        result = '{"err": {"message": "bad SECRET", "exception": {"traceback": "in SECRET"}}}';
    UPDATE horsies_task_attempts SET error_message = 'em SECRET', failed_reason = 'fr SECRET';
    UPDATE horsies_task_progress SET message = 'trying SECRET';
    UPDATE horsies_workflows SET error = '{"message": "bad SECRET"}', result = '{"err": {"message": "bad SECRET"}}';
    UPDATE horsies_workflow_tasks SET task_kwargs = '{}', args_from = '{"password": 0}',
        result = '{"err": {"message": "bad SECRET"}}';
    UPDATE horsies_schedules
        SET definition = definition || '{"kwargs": {"password": "SECRET"}, "args": ["SECRET"], "key": "SECRET"}';
    INSERT INTO horsies_task_logs (task_id, claim_seq, first_line, last_line, attempt, lines)
    VALUES ('t-failed', 1, 2, 3, 1,
        '[[1767225600.5, "INFO", "shop", "it begins"], [1767225600.6, "ERROR", "shop", "not with SECRET"]]');
""".replace("SECRET", SECRET)
PATHS = {**THERE, "name": "mail"}
MASKS: dict[str, dict[str, Any]] = {
    "names": {"mask": ["password"]},
    "a function": {"mask": lambda _task, _field, _value: "(not shown)"},
    "everything": {"hide_payloads": True},
    "nothing": {},
}


@pytest.fixture(scope="module")
def repeating_url(server_url: str, template: str) -> Iterator[str]:
    with fresh_database(server_url, template) as url:
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute((FILLED + REPEATED).encode())
        yield url


def addresses() -> Iterator[str]:
    """Every page and every answer, for each task and workflow."""
    paths = [screen.path for screen in SCREENS if not screen.path.startswith("/dialogs/")]
    for there in (PATHS, {**PATHS, "task_id": "t-running", "id": "t-failed", "workflow_id": "f-failed"}):
        for path in paths:
            for name, value in there.items():
                path = path.replace(f"{{{name}}}", value)
            yield path
        yield from (path_of(one, **there) for one in ANSWERING if one.path not in ("tasks/breakdown", "workers/ping"))
    for dialog in ("rerun-task?id=t-failed", "cancel-task?id=t-running", "retry-workflow?id=f-failed"):
        yield f"/dialogs/{dialog}"
    yield "/dialogs/edit-schedule?name=nightly"


async def where_it_is(board: Board) -> list[str]:
    found = []
    for address in dict.fromkeys(addresses()):
        answer = await board.get(address, follow_redirects=True)
        assert answer.status_code == 200, (address, answer.text[:300])
        text = answer.text if "json" not in answer.headers["content-type"] else json.dumps(answer.json())
        found += [address] if SECRET in text else []
    return found


@pytest.mark.parametrize("mask", [name for name in MASKS if name != "nothing"])
async def test_m93_a_masked_value_is_on_no_page_and_in_no_answer(repeating_url: str, mask: str) -> None:
    async with a_board(repeating_url, **MASKS[mask]) as board:
        assert await where_it_is(board) == []


async def test_m93_logs_are_shown_without_what_is_masked(repeating_url: str) -> None:
    shown = {}
    for name, mask in MASKS.items():
        async with a_board(repeating_url, **mask) as board:
            page = (await board.get("/tasks/t-failed")).text
        shown[name] = ("it begins" in page, "not with ***" in page, f"not with {SECRET}" in page)
    assert shown == {
        "names": (True, True, False),
        "a function": (False, False, False),
        "everything": (False, False, False),
        "nothing": (True, False, True),
    }


async def test_m93_a_mask_is_told_whose_logs_they_are(repeating_url: str) -> None:
    told: set[tuple[str | None, str]] = set()

    def mask(task: str | None, field: str, value: Any) -> Any:
        told.add((task, field))
        return value

    async with a_board(repeating_url, mask=mask) as board:
        answer = (await board.get("/api/tasks/t-failed/logs")).json()
    assert told == {(answer["task_name"], "logs")} and answer["task_name"]


def is_on_a_loop() -> bool:
    try:
        return asyncio.get_running_loop() is not None
    except RuntimeError:
        return False


async def test_m95_nobody_waits_while_a_page_is_masked_and_drawn(repeating_url: str) -> None:
    """Large payloads and workflows take a while, so no loop that serves others does that."""
    was_on_a_loop: list[bool] = []

    def mask(_task: str | None, _field: str, value: Any) -> Any:
        was_on_a_loop.append(is_on_a_loop())
        return value

    async with a_board(repeating_url, mask=mask) as board:
        for path in ("/tasks/t-failed", "/workflows/f-failed", "/workflows/f-failed/nodes/0", "/tasks"):
            assert (await board.get(path)).status_code == 200
        viewer = await viewer_of(Request({**scope_of("/workers/ping"), "app": board.app}))
        drawn = {"report": None, "problem": "nobody answers"}
        page = await viewer.show("ping.html", "Workers", drawn=lambda: was_on_a_loop.append(is_on_a_loop()) or drawn)
    assert b"nobody answers" in page.body
    assert len(was_on_a_loop) > 10 and not any(was_on_a_loop)


async def test_m93_without_a_mask_it_is_on_many(repeating_url: str) -> None:
    async with a_board(repeating_url) as board:
        found = await where_it_is(board)
    assert {"/tasks", "/tasks/t-failed", "/workers/w1", "/workflows/f-failed", "/workflows/f-failed/nodes/0"} <= {
        *found
    }
    assert {"/api/tasks", "/api/tasks/t-failed", "/api/workflows/f-failed/nodes/0", "/api/schedules"} <= {*found}
