"""docs/state_machine.md, the moves and the SQL files tell the same story."""

from __future__ import annotations

import re
from typing import NamedTuple, get_args

from horsies.core.tasks import moves
from horsies.core.types.status import TASK_TERMINAL_STATES, TaskAttemptOutcome, TaskStatus
from tests.architecture.source import ROOT, statements

COMMENT = re.compile(r"--[^\n]*")


class Arrow(NamedTuple):
    rule: str
    source: str
    target: str
    statement: str
    move: str
    attempt: str


def arrows() -> list[Arrow]:
    text = (ROOT / "docs" / "state_machine.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip(" `") for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:3] == "| L"
    ]
    return [Arrow(*row[:6]) for row in rows]


def test_l04_to_l19_every_rule_has_its_row() -> None:
    expected = [f"L-{number:02}" for number in range(4, 20)]
    expected.insert(expected.index("L-05") + 1, "L-05a")
    expected.insert(expected.index("L-11") + 1, "L-11a")
    expected[expected.index("L-13") + 1 : expected.index("L-14")] = ["L-13a", "L-13b"]
    expected += ["L-19a"] * 3  # from each state that is not final
    assert [arrow.rule for arrow in arrows()] == expected


def test_l03_no_arrow_leaves_a_final_state() -> None:
    finals = {status.value for status in TASK_TERMINAL_STATES}
    assert [arrow for arrow in arrows() if arrow.source in finals] == []
    assert {arrow.target for arrow in arrows()} == {status.value for status in TaskStatus}
    assert {arrow.source for arrow in arrows()} - {"—"} == {status.value for status in TaskStatus} - finals


def test_every_statement_goes_where_its_arrows_go() -> None:
    """What it sets, and which statuses it expects. `insert` relies on the default, `claim_expired` sets none."""
    drawn: dict[str, tuple[set[str], set[str]]] = {}
    for arrow in arrows():
        sources, targets = drawn.setdefault(arrow.statement, (set(), set()))
        sources.add(arrow.source)
        targets.add(arrow.target)
    for statement, (sources, targets) in drawn.items():
        if statement == "insert":
            continue
        text = COMMENT.sub("", statements()[f"tasks/{statement}"])
        written = re.findall(r"\bSET\s+status = (CASE .*? END|'\w+')", text)
        changed = {status for value in written for status in re.findall(r"'(\w+)'", value)}
        assert changed == (set() if statement == "claim_expired" else targets), statement
        assert guards(text) == sources, statement


def guards(text: str) -> set[str]:
    """The statuses by which the rows that are locked, or updated without further ado, are chosen."""
    parts = re.split(r"\bAS (?:MATERIALIZED )?\(|CROSS JOIN LATERAL \(", text)
    if "FOR UPDATE" in text:
        chosen = next(part for part in parts if "FOR UPDATE" in part).split("FOR UPDATE")[0]
    else:
        chosen = text[text.index("UPDATE horsies_tasks") :].split("\nWHERE ")[-1].split("\n    WHERE ")[-1]
    chosen = re.sub(r"\(SELECT w\.status .*?\) IN \(.*?\)", "", chosen).replace("is_waiting", "status = 'PENDING'")
    found = re.findall(r"(?<!\w)(?<!SET )(?<!w\.)status (?:= '(\w+)'|IN \(([^)]*)\))", chosen)
    return {name for one, several in found for name in ([one] if one else re.findall(r"\w+", several))}


def test_the_statements_that_record_an_attempt_are_the_ones_that_end_one() -> None:
    recording = {
        name.removeprefix("tasks/") for name, text in statements().items() if "INTO horsies_task_attempts" in text
    }
    assert recording == {arrow.statement for arrow in arrows() if arrow.attempt}
    assert {arrow.attempt for arrow in arrows()} - {""} == {outcome.value for outcome in TaskAttemptOutcome}


def test_every_move_is_described_as_it_is_drawn() -> None:
    drawn: dict[str, set[tuple[str, str]]] = {}
    for arrow in arrows():
        if arrow.move:
            drawn.setdefault(arrow.move, set()).add((arrow.source, arrow.target))
    kinds = {kind.__name__: kind for kind in get_args(moves.Move)}
    assert set(drawn) == set(kinds)
    for name, kind in kinds.items():
        said = set(re.findall(r"([A-Z]+) → ([A-Z]+)", kind.__doc__ or ""))
        assert said == drawn[name], name


def test_every_move_names_its_rules() -> None:
    for kind in get_args(moves.Move):
        said = set(re.findall(r"L-\d+[ab]?", (kind.__doc__ or "").partition("\n")[0]))
        assert said == {arrow.rule for arrow in arrows() if arrow.move == kind.__name__}, kind.__name__
