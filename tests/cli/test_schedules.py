"""`horsies schedules`: what is sent by the clock, for people and for programs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from tests.cli.support import Terminal

APP = """
from datetime import time
from horsies import *

app = Horsies(AppConfig.for_database_url("postgresql://nobody@localhost:1/none", schedule=ScheduleConfig(schedules=[
    TaskSchedule(name="daily report", task_name="t", pattern=DailySchedule(time=time(9)), timezone="Asia/Tokyo"),
    TaskSchedule(name="off", task_name="t", pattern=HourlySchedule(minute=5), enabled=False),
])))


@app.task("t")
def t() -> TaskResult[None, TaskError]:
    return TaskResult(ok=None)
"""


@pytest.fixture
def module(tmp_path: Path) -> str:
    (tmp_path / "shop.py").write_text(APP)
    return f"{tmp_path / 'shop.py'}:app"


def test_m03_it_lists_patterns_in_words_next_and_last_runs(terminal: Terminal, module: str) -> None:
    terminal.execute(
        "INSERT INTO horsies_schedule_state (schedule_name, last_run_at, last_task_id, run_count)"
        " VALUES ('daily report', '2026-01-02 00:00Z', 'task-1', 3)"
    )
    terminal.execute("INSERT INTO horsies_schedules (name, definition) VALUES ('junk', '{}')")
    shown = terminal.type("schedules", module).out
    (first,) = [line for line in shown.splitlines() if line.startswith("daily report")]
    assert "active" in first and "09:00" in first and "Asia/Tokyo" in first and "task-1" in first
    assert "2026-01-02 09:00:00+09:00" in first, "in the zone of the schedule"
    assert shown.count("09:00:00+09:00") == 6, "five next runs and the last one"
    assert "disabled" in shown and "unusable" in shown
    assert "daily report" in (active := terminal.type("schedules", module, "--active").out) and "junk" not in active


def test_m03_for_programs(terminal: Terminal, module: str) -> None:
    found = {one["name"]: one for one in terminal.type("schedules", module, "--json").json}
    daily, off = found["daily report"], found["off"]
    assert (daily["source"], daily["state"], daily["task_name"]) == ("code", "active", "t")
    assert daily["pattern"] == {"type": "daily", "time": "09:00:00"} and "09:00" in daily["in_words"]
    runs = [datetime.fromisoformat(at) for at in daily["next_runs"]]
    assert len(runs) == 5 and runs[0] > datetime.now(UTC) - timedelta(days=1)
    assert all(after - before == timedelta(days=1) for before, after in pairwise(runs))
    assert (off["state"], off["next_runs"]) == ("disabled", [])


def test_m03_m11_without_schedules_or_a_database(terminal: Terminal, tmp_path: Path) -> None:
    bare = 'from horsies import *\napp = Horsies(AppConfig.for_database_url("postgresql://nobody@127.0.0.1:1/none"))\n'
    for name in ("bare", "bald"):
        (tmp_path / f"{name}.py").write_text(bare)
    assert terminal.type("schedules", f"{tmp_path / 'bare.py'}:app").out == "there are no schedules\n"
    assert terminal.type("schedules", f"{tmp_path / 'bare.py'}:app", "--json").json == []
    url = "postgresql://u:sesame@127.0.0.1:1/none?connect_timeout=2"
    failed = terminal.type_plain("schedules", f"{tmp_path / 'bald.py'}:app", "--database-url", url, code=1)
    assert "did not answer" in failed.err and "sesame" not in failed.err


def test_m03_the_options_of_the_scheduler(terminal: Terminal) -> None:
    shown = terminal.type_plain("scheduler", "--help").out
    assert "--loglevel" in shown and "--database-url" in shown
    assert "LOUD" in terminal.type_plain("scheduler", "shop", "--loglevel", "LOUD", code=1).err


def test_d36_m03_a_row_that_cannot_be_read_is_listed_as_unusable(terminal: Terminal, module: str) -> None:
    terminal.execute("INSERT INTO horsies_schedules (name, definition) VALUES ('too large', '{\"x\": 1e5000}')")
    terminal.execute(
        "INSERT INTO horsies_schedule_state (schedule_name, next_run_at, last_run_at)"
        " VALUES ('daily report', 'infinity', '-infinity')"
    )
    listed = {one["name"]: one for one in terminal.type("schedules", module, "--json").json}
    assert listed["too large"]["state"] == "unusable" and "cannot be read" in listed["too large"]["problem"]
    assert "unusable" in terminal.type("schedules", module).out
    assert listed["daily report"]["next_run_at"].startswith("9999-12-01"), "what stands for infinity"
