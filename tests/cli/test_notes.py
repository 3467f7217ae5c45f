"""What tasks say while they run, on the command line: the bar of `horsies task`, the column of `horsies tasks`, and
`horsies logs`."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from horsies.cli import notes
from horsies.core.models.notes import TaskProgress
from horsies.core.types.status import TaskStatus
from tests.cli.support import Terminal

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
RUNNING = {"claimed": True, "claim_seq": 1, "claimed_by_worker_id": "w", "started_at": NOW}


def progress(
    terminal: Terminal, task_id: str, done: float, total: float | None = None, message: str | None = None
) -> None:
    terminal.execute(
        "INSERT INTO horsies_task_progress (task_id, claim_seq, attempt, done, total, message, first_done, first_at)"
        " VALUES (%s, 1, 1, %s, %s, %s, 0, now() - interval '10 s')",
        [task_id, done, total, message],
    )


def logged(terminal: Terminal, task_id: str, claim: int, first: int, *lines: tuple[str, str]) -> None:
    said = json.dumps([[NOW.timestamp(), level, "shop", text] for level, text in lines])
    terminal.execute(
        "INSERT INTO horsies_task_logs (task_id, claim_seq, attempt, first_line, last_line, lines)"
        " VALUES (%s, %s, %s, %s, %s, %s)",
        [task_id, claim, claim, first, first + len(lines) - 1, said],
    )


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ((400, 1000, None, 12.5), "████████░░░░░░░░░░░░  40%  400/1,000  12.5/s  48 s left"),
        ((0, 10, "begins", None), "░░░░░░░░░░░░░░░░░░░░  0%  0/10  begins"),
        ((999, 1000, None, None), "███████████████████░  99%  999/1,000"),
        ((12, 10, None, None), "████████████████████  100%  12/10"),
        ((1_500_000, None, "reads", 2500.4), "1,500,000  2,500/s  reads"),
        ((0.25, 1, None, 0.01), "█████░░░░░░░░░░░░░░░  25%  0.25/1  0.01/s  1 min 15 s left"),
    ],
)
def test_p50_a_bar(said: tuple[Any, ...], shown: str) -> None:
    done, total, message, rate = said
    assert notes.bar(TaskProgress(done, total, message, 1, NOW, rate)) == shown


def test_p50_the_progress_of_a_task_and_of_a_list(terminal: Terminal) -> None:
    terminal.given(TaskStatus.RUNNING, id="01-runs", **RUNNING)
    terminal.given(id="02-waits")
    assert "progress" not in terminal.type("tasks").out and "progress" not in terminal.type("task", "01-runs").out
    progress(terminal, "01-runs", 40, 100, "evil \x1b[31m\u202e")
    shown = terminal.type("task", "01-runs").out
    assert "progress" in shown and "████████░░░░░░░░░░░░  40%  40/100  4/s  15 s left  evil \\u001b[31m\\u202e" in shown
    table = terminal.type("tasks")
    assert [row[:3] for row in table.rows[:-1]] == [["02-waits", "PENDING", "a_task"], ["01-runs", "RUNNING", "40%"]]
    document = terminal.type("task", "01-runs", "--json").json
    assert (document["progress"]["done"], document["progress"]["total"]) == (40, 100)


@pytest.mark.parametrize("done", [1e308, float("inf"), float("-inf"), float("nan")])
def test_p50_m15_a_progress_beyond_all_numbers_is_shown_and_is_json(terminal: Terminal, done: float) -> None:
    """The rate of the first is infinite; the others can only be written by hand."""
    terminal.given(TaskStatus.RUNNING, id="01-runs", **RUNNING)
    progress(terminal, "01-runs", done, 1e308)
    terminal.execute("UPDATE horsies_task_progress SET first_at = updated_at - interval '1 microsecond'")
    document = terminal.type("task", "01-runs", "--json").json["progress"]
    assert document["rate"] is None and document["total"] == 1e308
    assert document["done"] in (1e308, "Infinity", "-Infinity", "NaN")
    assert [one["progress"]["done"] for one in terminal.type("tasks", "--json").json["items"]] == [document["done"]]
    assert "progress" in terminal.type("task", "01-runs").out and "01-runs" in terminal.type("tasks").out


def test_p51a_lines_are_shown_with_their_gaps_and_attempts(terminal: Terminal) -> None:
    terminal.given(TaskStatus.COMPLETED, id="01-done", claim_seq=2)
    logged(terminal, "01-done", 1, 1, ("INFO", "first"), ("ERROR", "wrong\nTraceback\n\tdeep \x1b[2J"))
    logged(terminal, "01-done", 1, 10, ("WARNING", "after a gap"))
    logged(terminal, "01-done", 2, 1, ("INFO", "again"))
    shown = terminal.type("logs", "01-done").out.splitlines()
    assert shown == [
        "2026-01-02 03:04:05.000Z INFO    shop  first",
        "2026-01-02 03:04:05.000Z ERROR   shop  wrong",
        "    Traceback",
        "            deep \\u001b[2J",
        "… 7 lines are missing here",
        "2026-01-02 03:04:05.000Z WARNING shop  after a gap",
        "attempt 2",
        "2026-01-02 03:04:05.000Z INFO    shop  again",
    ]
    document = terminal.type("logs", "01-done", "--json").json
    assert [(line["attempt"], line["number"], line["dropped"]) for line in document] == [
        (1, 1, 0), (1, 2, 0), (1, 10, 7), (2, 1, 0),
    ]  # fmt: skip


def test_p51a_following_ends_with_the_task(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal.given(TaskStatus.RUNNING, id="01-runs", **RUNNING)
    logged(terminal, "01-runs", 1, 1, ("INFO", "one"))
    acts = [
        lambda: logged(terminal, "01-runs", 1, 2, ("INFO", "two")),
        lambda: terminal.execute("UPDATE horsies_tasks SET status = 'COMPLETED', claimed = FALSE"),
        lambda: logged(terminal, "01-runs", 1, 3, ("INFO", "late")),
    ]
    monkeypatch.setattr(notes, "LATE_S", 0.2)
    monkeypatch.setattr(notes.time, "sleep", lambda seconds: acts.pop(0)() if acts else None)
    shown = terminal.type("logs", "01-runs", "--follow")
    assert [line.split()[-1] for line in shown.out.splitlines()] == ["one", "two", "late"]
    assert shown.code == 0 and acts == []


def test_p51a_no_lines_no_task_and_a_wrong_command_line(terminal: Terminal) -> None:
    terminal.given(id="01-waits")
    none = terminal.type("logs", "01-waits")
    assert (none.code, none.out) == (0, "") and "task_logs=TaskLogs()" in none.err
    assert terminal.type("logs", "01-waits", "--json").json == []
    nobody = terminal.type("logs", "02-nobody", code=1)
    assert nobody.code == 1 and "there is no task 02-nobody" in nobody.err
    both = terminal.type("logs", "01-waits", "--follow", "--json", code=1)
    assert both.code == 1 and "use only one of them" in both.err


def test_m13_tables_of_an_older_version(terminal: Terminal) -> None:
    terminal.given(TaskStatus.RUNNING, id="01-runs", **RUNNING)
    terminal.execute("DROP TABLE horsies_task_progress, horsies_task_logs")
    assert terminal.type("task", "01-runs").code == 0 and terminal.type("tasks").code == 0
    refused = terminal.type("logs", "01-runs", code=1)
    assert refused.code == 1 and "horsies init-db upgrades them" in refused.err


def test_p50_remaining_time_is_only_for_those_that_run() -> None:
    said = TaskProgress(5, 10, None, 1, NOW, 1.0)
    assert said.remaining == timedelta(seconds=5)
    assert "left" in notes.bar(said) and "left" not in notes.bar(said, is_running=False)
