"""The screen of schedules and its dialogs (M-91): what a schedule sends, who paused it, what becomes of missed runs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.app import Horsies
from horsies.core.models.app import AppConfig
from horsies.core.models.broker import PostgresConfig
from tests.factories import given_audit
from tests.services.web.test_pages import page_of
from tests.web_support import a_board

Db = AsyncConnection[Any]


async def given_schedule(db: Db, name: str, *, paused: bool = False, next_run: str = "1 h", **more: Any) -> None:
    definition = {"task_name": "mail.send", "pattern": {"type": "daily", "time": "08:00:00"}, **more}
    await db.execute(
        "INSERT INTO horsies_schedules (name, definition, paused) VALUES (%s, %s, %s)",
        [name, json.dumps(definition), paused],
    )
    await db.execute(
        "INSERT INTO horsies_schedule_state (schedule_name, next_run_at) VALUES (%s, now() + %s::interval)",
        [name, next_run],
    )


async def given_deed(db: Db, actor: str, action: str, name: str, outcome: str = "done") -> None:
    await given_audit(db, actor=actor, action=action, target_kind="schedule", target_ids=[name], outcome=outcome)


async def test_m91_a_schedule_shows_what_it_sends_and_who_paused_it(database_url: str, db: Db) -> None:
    await given_schedule(db, "nightly", paused=True)
    await given_deed(db, "grace", "schedule.pause", "nightly")
    await given_deed(db, "ada", "schedule.pause", "nightly")
    await given_deed(db, "mallory", "schedule.pause", "nightly", "refused")
    async with a_board(database_url) as board:
        page = await page_of(board, "/schedules")
        assert "by ada" in page.text and "grace" not in page.text and "mallory" not in page.text
        assert "/tasks?name=mail.send" in page.values("href")
        await given_deed(db, "ada", "schedule.resume", "nightly")
        assert "by ada" not in (await page_of(board, "/schedules")).text, "whoever paused it since did not say so"


@pytest.mark.parametrize(
    ("next_run", "catches_up", "said"),
    [
        ("1 h", False, "It has missed no run: the next one is at"),
        ("-1 d", False, "it runs once at once, not once for each of them."),
        ("-1 d", True, "each of them is made up for at once."),
    ],
)
async def test_m91_whoever_resumes_a_schedule_is_told_of_missed_runs(
    database_url: str, db: Db, next_run: str, catches_up: bool, said: str
) -> None:
    await given_schedule(db, "nightly", paused=True, next_run=next_run, catch_up_missed=catches_up)
    async with a_board(database_url) as board:
        assert said in (await page_of(board, "/dialogs/resume-schedule?name=nightly")).text


async def test_m91_the_dialogs_of_a_schedule_say_its_task_and_its_state(database_url: str, db: Db) -> None:
    app = Horsies(AppConfig(broker=PostgresConfig(database_url=database_url)))
    await given_schedule(db, "nightly", paused=True, queue_name="letters")
    await given_schedule(db, "hourly")
    async with a_board(app) as board:
        page = await page_of(board, "/dialogs/trigger-schedule?name=nightly")
        assert "The task mail.send is sent now to the queue letters" in page.text
        paused = await page_of(board, "/dialogs/edit-schedule?name=nightly")
        assert "It is paused" in paused.text and "enabled" not in paused.values("name")
        assert "enabled" in (await page_of(board, "/dialogs/edit-schedule?name=hourly")).values("name")
