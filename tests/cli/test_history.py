"""`horsies failures`: groups of failed tasks; `horsies audit`: what people did (M-17)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from psycopg.types.json import Jsonb

from horsies.core.types.status import TaskStatus
from tests import hostile_support as hostile
from tests.cli.support import Terminal
from tests.factories import given_audit, given_rollup, given_task


def given(terminal: Terminal, **columns: object) -> None:
    terminal.doing(lambda db: given_audit(db, **columns))


def test_m17_the_audit_lists_what_people_did(terminal: Terminal) -> None:
    given(terminal, target_ids=["t1", "t2"], details=Jsonb({"reason": "late"}))
    given(terminal, actor="bob", action="worker.drain", target_kind="worker", target_ids=["w1"], outcome="refused")
    said = terminal.type("audit", "--wide").out
    assert "bob" in said.splitlines()[2] and "worker.drain" in said and "refused" in said
    assert "t1 and 1 more" in said and "reason: late" in said
    found = terminal.type("audit", "--json").json
    assert [one["actor"] for one in found["items"]] == ["bob", "ann"] and found["next_cursor"] is None
    assert found["items"][0]["at"].endswith("Z")


def test_m17_the_audit_can_be_filtered_and_continued(terminal: Terminal) -> None:
    for number in range(3):
        given(terminal, target_ids=[f"t{number}"], actor=f"p{number}", action=f"a{number}")
    for words in (["--task", "t1"], ["--actor", "p1"], ["--action", "a1"]):
        assert [one["target_ids"] for one in terminal.type("audit", *words, "--json").json["items"]] == [["t1"]]
    first = terminal.type("audit", "--limit", "2").out
    assert "shows what follows" in first
    cursor = first.splitlines()[-1].split()[1]
    assert "p0" in terminal.type("audit", "--limit", "2", "--after", cursor).out
    assert "nothing was written down" in terminal.type("audit", "--task", "none").out
    terminal.type("audit", "--after", "x", code=1)


def test_m12_m17_the_audit_shows_foreign_text_and_does_not_obey_it(terminal: Terminal) -> None:
    given(
        terminal,
        actor=hostile.SHORT,
        action=hostile.SHORT,
        target_ids=[hostile.LONG],
        details=Jsonb({"a": hostile.LONG}),
    )
    said = terminal.type("audit", "--wide").out
    assert hostile.obeyed(said) == set() and hostile.forged(said) == []


def given_failures(terminal: Terminal, ago: timedelta, number: int, **columns: object) -> None:
    for span in (60, 600, 3600):
        at = datetime.fromtimestamp((datetime.now(UTC) - ago).timestamp() // span * span, UTC)
        row = {"queue_name": "q", "task_name": "send", "error_code": "BAD", "failed": number} | columns
        terminal.doing(lambda db, row=row, at=at, span=span: given_rollup(db, span=span, start_at=at, **row))


def test_m17_failures_are_grouped(terminal: Terminal) -> None:
    assert "no task has failed since" in terminal.type("failures").out
    example = terminal.doing(lambda db: given_task(db, status=TaskStatus.FAILED, failed_at="now"))
    given_failures(terminal, timedelta(hours=3), 5, example_id=example)
    given_failures(terminal, timedelta(minutes=10), 2, task_name="sort", error_code="WORSE")
    first, second = terminal.type("failures", "--columns", "failed,name,error,example").rows
    assert (first, second) == (["5", "send", "BAD", example], ["2", "sort", "WORSE"])
    assert "█" in terminal.type("failures", "--wide").out
    found = terminal.type("failures", "--since", "1h", "--json").json
    assert [group["task_name"] for group in found["groups"]] == ["sort"] and sum(found["groups"][0]["trend"]) == 2
    assert len(terminal.type("failures", "--limit", "1", "--json").json["groups"]) == 1
