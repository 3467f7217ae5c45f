"""The screen of schedules and its dialogs (M-91): what a schedule sends, who paused it, what becomes of missed runs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.app import Horsies
from horsies.core.models.app import AppConfig
from horsies.core.models.broker import PostgresConfig
from horsies.core.scheduler.payloads import schedule_of
from horsies.core.scheduler.plan import config_hash
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
        "INSERT INTO horsies_schedule_state (schedule_name, next_run_at, config_hash)"
        " VALUES (%s, now() + %s::interval, %s)",
        [name, next_run, config_hash(schedule_of(name, definition))],
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


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"pattern": {"type": "daily", "time": "09:00:00"}}, "It runs again, from its next time on: "),
        ({"enabled": False}, "It is disabled, too: it does not run until that is changed."),
        ({"pattern": {"type": "never"}}, "It runs again as it says."),
    ],
)
async def test_m91_s37_what_was_changed_meanwhile_counts(
    database_url: str, db: Db, change: dict[str, Any], said: str
) -> None:
    await given_schedule(db, "nightly", paused=True, next_run="-1 d")
    await db.execute("UPDATE horsies_schedules SET definition = definition || %s", [json.dumps(change)])
    async with a_board(database_url) as board:
        assert said in (await page_of(board, "/dialogs/resume-schedule?name=nightly")).text


@pytest.mark.parametrize("definition", ["[]", "5", '"x"', "{}", '{"task_name": 5, "pattern": 5}'])
@pytest.mark.parametrize("config", [{}, {"mask": ["password"]}])
async def test_m91_a_definition_of_any_json_stops_no_page(
    database_url: str, db: Db, definition: str, config: dict[str, Any]
) -> None:
    await db.execute("INSERT INTO horsies_schedules VALUES ('odd', %s, TRUE)", [definition])
    async with a_board(database_url, **config) as board:
        for path in ("/", "/schedules", "/dialogs/resume-schedule?name=odd", "/api/schedules"):
            assert (await board.get(path)).status_code == 200, path


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
