"""`horsies purge`: what it counts, deletes and cancels, and what it leaves alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from horsies.core.types.status import TASK_TERMINAL_STATES, TaskStatus
from tests.cli.support import Terminal
from tests.factories import given_attempt, given_workflow

COMPLETED, FAILED = TaskStatus.COMPLETED, TaskStatus.FAILED


def ago(**age: float) -> datetime:
    return datetime.now(UTC) - timedelta(**age)


def ended(terminal: Terminal, status: TaskStatus = COMPLETED, *, hours: float = 48, **columns: object) -> str:
    return terminal.given(status, completed_at=ago(hours=hours), **columns)


def test_without_yes_it_only_counts(terminal: Terminal) -> None:
    for _ in range(3):
        ended(terminal, FAILED, queue_name="mail", task_name="send")
    ended(terminal)
    dry = terminal.type("purge", "--older-than", "1d")
    assert dry.rows[:2] == [["FAILED", "mail", "send", "3"], ["COMPLETED", "default", "a_task", "1"]]
    assert dry.out.splitlines()[-1] == "dry run: 4 tasks would be deleted; --yes does it"
    told = terminal.type("purge", "--older-than", "1d", "--json").json
    assert {key: told[key] for key in ("action", "dry_run", "count", "complete")} == {
        "action": "delete", "dry_run": True, "count": 4, "complete": True
    }  # fmt: skip
    assert told["groups"][0] == {"status": "FAILED", "queue": "mail", "task_name": "send", "count": 3}
    assert len(terminal.rows()) == 4


def test_with_yes_old_ended_tasks_go_with_their_attempts_and_nothing_else(terminal: Terminal) -> None:
    gone = [ended(terminal, status) for status in TASK_TERMINAL_STATES]
    for task_id in gone:
        terminal.doing(lambda db, task_id=task_id: given_attempt(db, task_id))  # type: ignore[misc]
    kept = {ended(terminal, hours=23)}
    kept |= {
        terminal.given(status, created_at=ago(days=9), sent_at=ago(days=9), updated_at=ago(days=9))
        for status in TaskStatus
        if status not in TASK_TERMINAL_STATES
    }
    done = terminal.type("purge", "--older-than", "1d", "--yes")
    assert done.out == "deleted 4 tasks\n"
    assert set(terminal.rows()) == kept
    assert terminal.type("purge", "--older-than", "1d", "--yes").out == "no task matches\n"


def test_what_is_chosen_goes_and_what_is_counted_is_what_goes(terminal: Terminal) -> None:
    ended(terminal, FAILED, id="failed")
    ended(terminal, TaskStatus.EXPIRED, id="expired")
    ended(terminal, id="mail", queue_name="mail")
    ended(terminal, id="other", queue_name="other")
    ended(terminal, id="named", task_name="named")
    cases: list[tuple[list[str], set[str]]] = [
        (["--task", "named", "--status", "failed"], set()),
        (["--status", "Failed,expired"], {"failed", "expired"}),
        (["--queue", "mail", "--queue", "other", "--status", "completed"], {"mail", "other"}),
        (["--task", "named"], {"named"}),
    ]
    for options, gone in cases:
        there = set(terminal.rows())
        counted = terminal.type("purge", "--older-than", "1h", "--json", *options).json["count"]
        deleted = terminal.type("purge", "--older-than", "1h", "--json", "--yes", *options).json["count"]
        assert (counted, deleted, there - set(terminal.rows())) == (len(gone), len(gone), gone), options


def test_tasks_of_workflows_stay_however_old(terminal: Terminal) -> None:
    workflow_id = terminal.doing(lambda db: given_workflow(db, status="COMPLETED", completed_at=ago(days=9)))
    kept = ended(terminal, workflow_id=workflow_id)
    waits = terminal.given(workflow_id=workflow_id)
    assert terminal.type("purge", "--older-than", "0", "--yes").out == "no task matches\n"
    assert terminal.type("purge", "--waiting", "--queue", "default", "--yes").out == "no task matches\n"
    assert {id_: row["status"] for id_, row in terminal.rows().items()} == {kept: "COMPLETED", waits: "PENDING"}


def test_more_than_a_batch_is_deleted(terminal: Terminal) -> None:
    terminal.execute(
        "INSERT INTO horsies_tasks (id, task_name, status, completed_at)"
        " SELECT n::text, CASE WHEN n % 2 = 0 THEN 'even' ELSE 'odd' END, 'COMPLETED', now() - interval '2 h'"
        " FROM generate_series(1, 1300) AS n"
    )
    assert terminal.type("purge", "--older-than", "1h", "--task", "odd", "--yes").out == "deleted 650 tasks\n"
    assert {row["task_name"] for row in terminal.rows().values()} == {"even"}


def test_waiting_tasks_of_a_queue_are_cancelled(terminal: Terminal) -> None:
    terminal.execute(
        "INSERT INTO horsies_tasks (id, task_name, queue_name, priority, enqueued_at)"
        " SELECT n::text, 'send', 'mail', 1 + n % 7, now() + n % 3 * interval '1 h' FROM generate_series(1, 1100) AS n"
    )
    other = terminal.given(queue_name="other")
    runs = terminal.given(TaskStatus.RUNNING, queue_name="mail")
    dry = terminal.type("purge", "--waiting", "--queue", "mail")
    assert dry.rows[0] == ["PENDING", "mail", "send", "1100"]
    assert terminal.type("purge", "--waiting", "--queue", "mail", "--yes").out == "cancelled 1100 tasks\n"
    rows = terminal.rows()
    assert (rows[other]["status"], rows[runs]["status"]) == ("PENDING", "RUNNING")
    left = [row for id_, row in rows.items() if id_ not in (other, runs)]
    assert {(row["status"], row["error_code"]) for row in left} == {("CANCELLED", "TASK_CANCELLED")}
    assert "the queue was purged" in left[0]["result"]


def test_waiting_tasks_can_be_chosen_by_name_and_age(terminal: Terminal) -> None:
    old = terminal.given(task_name="send", created_at=ago(hours=3))
    terminal.given(task_name="send")
    terminal.given(task_name="other", created_at=ago(hours=3))
    options = ["--waiting", "--queue", "default", "--task", "send", "--older-than", "2h", "--yes", "--json"]
    told = terminal.type("purge", *options).json
    assert (told["action"], told["count"], told["dry_run"]) == ("cancel", 1, False)
    assert [id_ for id_, row in terminal.rows().items() if row["status"] == "CANCELLED"] == [old]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "--older-than is missing"),
        (["--older-than", "soon"], "is not a duration"),
        (["--older-than", "99999999d"], "longer than a century"),
        (["--older-than", "1h", "--status", "pending"], "'pending' is not one of CANCELLED, COMPLETED"),
        (["--waiting"], "--waiting needs --queue"),
        (["--waiting", "--queue", "mail", "--status", "failed"], "cannot be combined"),
        (["--older-than", "1h", "--queue", ","], "'--queue': no name was given"),
    ],
)
def test_m11_what_is_not_clear_is_refused(capsys: pytest.CaptureFixture[str], options: list[str], said: str) -> None:
    """Before any database is asked: there is none."""
    refused = Terminal("postgresql://nobody@127.0.0.1:1/none", capsys).type("purge", "--yes", *options, code=1)
    assert refused.err.startswith("error[HRS-206]: ") and said in refused.err
    assert refused.out == ""
