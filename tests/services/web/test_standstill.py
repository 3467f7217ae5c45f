"""A workflow that a failed node has paused (M-91): the page says why it stands still and what can be done, and the
dialog of a resume says what it would do."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from tests.factories import given_audit, given_node, given_workflow
from tests.services.web.test_pages import page_of
from tests.web_support import Board, a_board

Db = AsyncConnection[Any]
PAUSED_AT = "2026-01-02T03:04:05Z"


async def given_paused_order(db: Db, failed_at: str = PAUSED_AT, **columns: Any) -> str:
    """An order whose node `check` has failed; `ship` waits for it."""
    given = {"status": "PAUSED", "on_error": "PAUSE", "started_at": "now", "paused_at": PAUSED_AT, "open_nodes": 1}
    flow = await given_workflow(db, name="order", error_code="BANK_DOWN", **{**given, **columns})
    failed = {"status": "FAILED", "error_code": "BANK_DOWN", "completed_at": failed_at}
    await given_node(db, flow, node_id="check", dependents=[1], **failed)
    waits = {"dependencies": [0], "deps_total": 1, "deps_failed": 1}
    await given_node(db, flow, task_index=1, node_id="ship", status="PENDING", **waits)
    return flow


async def main_button(board: Board, flow: str) -> list[str | None]:
    page = await page_of(board, f"/workflows/{flow}")
    return [one.get("hx-get") for tag, one in page.elements if tag == "button" and one.get("class") == "main"]


async def test_m91_the_page_says_why_a_workflow_stands_still(database_url: str, db: Db) -> None:
    flow = await given_paused_order(db)
    async with a_board(database_url) as board:
        page = await page_of(board, f"/workflows/{flow}")
        assert "Why it stands still" in page.text
        assert "Node check failed with BANK_DOWN, and on an error this workflow pauses" in page.text
        assert f"/workflows/{flow}/nodes/0" in page.values("href")
        assert await main_button(board, flow) == [f"/dialogs/retry-workflow?id={flow}"]


async def test_m91_who_paused_a_workflow_is_said_too(database_url: str, db: Db) -> None:
    flow = await given_paused_order(db, failed_at="2026-01-01T00:00:00Z")
    whole = await given_workflow(db, status="PAUSED", started_at="now", paused_at=PAUSED_AT, open_nodes=1)
    await given_node(db, whole, status="READY", ready_at="now")
    await given_audit(db, action="workflow.pause", target_kind="workflow", target_ids=[flow], at="2026-01-02T03:04:04Z")
    async with a_board(database_url) as board:
        page = await page_of(board, f"/workflows/{flow}")
        assert "It was paused by ann through a dashboard, not by a failure." in page.text
        assert "Failed: check with BANK_DOWN." in page.text
        page = await page_of(board, f"/workflows/{whole}")
        assert "It was paused by somebody or by a program, not by a failure." in page.text
        assert await main_button(board, whole) == [f"/dialogs/resume-workflow?id={whole}"]


async def test_m91_the_dialog_of_a_resume_says_what_it_would_do(database_url: str, db: Db) -> None:
    flow = await given_paused_order(db)
    async with a_board(database_url) as board:
        dialog = await page_of(board, f"/dialogs/resume-workflow?id={flow}")
        for said in (
            "with 1 open node.",
            "The failed node check stays failed.",
            "ship will be skipped.",
            "the workflow will FAIL.",
            "choose “Retry failed nodes…” instead",
        ):
            assert said in dialog.text
        [after] = dialog.values("data-said-by-status")
        done = (await board.act(f"/api/workflows/{flow}/resume")).json()
        assert done == {"workflow_id": flow, "action": "resume", "status": "FAILED"}
        assert json.loads(after)[done["status"]] == "The workflow was resumed, and has ended as FAILED."


@pytest.mark.parametrize("policy", [{"cases": 5}, {"cases": [5]}, {"cases": [[[]]]}, {"cases": None}, [], 5, "x", {}])
async def test_m91_a_policy_of_any_json_stops_no_page(database_url: str, db: Db, policy: Any) -> None:
    flow = await given_paused_order(db, success_policy=Jsonb(policy))
    async with a_board(database_url) as board:
        for path in (f"/workflows/{flow}", f"/dialogs/resume-workflow?id={flow}"):
            assert "check stays failed" in (await page_of(board, path)).text


async def test_m91_an_element_of_a_map_that_does_not_exist_stops_no_page(database_url: str, db: Db) -> None:
    """What comes of it would be told to that map."""
    flow = await given_paused_order(db)
    waits = {"dependencies": [0], "deps_total": 1, "deps_failed": 1, "status": "PENDING"}
    await given_node(db, flow, task_index=2, node_type="ELEMENT", map_index=77, **waits)
    async with a_board(database_url) as board:
        page = await asyncio.wait_for(page_of(board, f"/dialogs/resume-workflow?id={flow}"), 10)
    assert "Its next nodes start" in page.text


async def test_m91_a_dialog_about_one_node_speaks_of_one(database_url: str, db: Db) -> None:
    flow = await given_paused_order(db)
    async with a_board(database_url) as board:
        dialog = await page_of(board, f"/dialogs/retry-workflow?id={flow}")
        assert "It runs again, and then those that were skipped because of it." in dialog.text
        assert dialog.values("data-said") == ["The failed node runs again."]


async def test_m91_a_workflow_that_runs_has_no_such_card(database_url: str, db: Db) -> None:
    flow = await given_paused_order(db, status="RUNNING")
    async with a_board(database_url) as board:
        assert "Why it stands still" not in (await page_of(board, f"/workflows/{flow}")).text
