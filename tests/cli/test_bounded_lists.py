"""What `horsies tasks` and `horsies queues` say about a table that is larger than what they look at (M-45a, M-46a)."""

from __future__ import annotations

import re

import pytest

from horsies.core.monitoring import snapshot, windows
from horsies.core.types.status import TaskStatus
from tests.cli.support import Terminal

LOOK = 5
CURSOR = re.compile(r"--after (\S+) looks further")


@pytest.fixture
def large(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Twelve tasks are more than what is looked at."""
    for number in range(12):
        terminal.given(id=f"task-{number:02}", task_name="first" if number == 0 else "other")
    monkeypatch.setattr(windows, "LOOK", LOOK)
    return terminal


def test_m46_a_total_above_the_bound_is_shown_as_such(large: Terminal) -> None:
    told = large.type("tasks", "--sort", "id", "-n", "3").out
    assert "1 to 3 of 5+ tasks; --offset 3 shows what follows" in told
    document = large.type("tasks", "--sort", "id", "-n", "3", "--json").json
    assert (document["total"], document["total_is_exact"], document["is_partial"]) == (LOOK, False, False)
    follows = large.type("tasks", "--sort", "id", "-n", "3", "--after", document["next_cursor"], "--ids").out.split()
    assert follows == ["task-08", "task-07", "task-06"]
    assert "1 to 3 of 12 tasks" in large.type("tasks", "--sort", "id", "-n", "3", "--exact").out


def test_m46a_a_search_that_ended_early_says_how_to_go_on(large: Terminal) -> None:
    asked = ("tasks", "--sort", "id", "--task", "first")
    told, looks = large.type(*asked).out, 1
    while (cursor := CURSOR.search(told)) is not None and "task-00" not in told:
        assert told.startswith("no task matches among those that were looked at")
        told, looks = large.type(*asked, "--after", cursor[1]).out, looks + 1
    assert "task-00" in told and looks == 3
    assert "1 to 1 of 1 task\n" in large.type(*asked, "--exact").out
    assert large.type("tasks", "--sort", "id", "--task", "none", "--exact").out == "no task matches\n"


def test_m46a_a_wrong_cursor_is_an_error(large: Terminal) -> None:
    assert "next_cursor" in large.type("tasks", "--after", "nonsense", code=1).err


def test_m46a_ended_tasks_are_listed_by_their_end(large: Terminal) -> None:
    for number, moment in (("1", "2020-01-01T00:00:09Z"), ("2", "2020-01-01T00:00:08Z")):
        large.given(TaskStatus.COMPLETED, id=f"ended-{number}", completed_at=moment)
    assert large.type("tasks", "--status", "completed", "--ids").out.split() == ["ended-1", "ended-2"]


def test_m45a_the_length_of_a_long_queue_is_marked_as_an_estimate(
    large: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "MOST_COUNTED", LOOK)
    assert large.type("queues").rows[0][:4] == ["default", "~12", "~12", "~0"]
    assert large.type("queues", "--exact").rows[0][:4] == ["default", "12", "12", "0"]
    [queue] = large.type("queues", "--json").json["queues"]
    assert (queue["is_exact"], queue["waiting"]) == (False, 12)


def test_m45a_what_cannot_be_shown_is_an_error(large: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "PARTS_S", -1.0)
    refused = large.type("queues", code=1)
    assert "some of the numbers could not be read" in refused.err and "waiting: " in refused.err and refused.out == ""
