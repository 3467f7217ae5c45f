"""What a task says while it runs, without a process: what a progress may be, what it means, what is kept of a log, and
what becomes of notes on their way."""

from __future__ import annotations

import json
import math
import os
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horsies import AppConfig, Horsies, HorsiesError, TaskContext, TaskLogs
from horsies.core.child import notes as child_notes
from horsies.core.child.notes import FRAME_BYTES, Bell, LogPart, Notes, RunLog
from horsies.core.child.wire import Decoder, Kind
from horsies.core.models.notes import LONGEST_MESSAGE, LogPlace, Progress, TaskProgress, lines_of, progress_of
from tests.each import each
from tests.stop_support import is_stopped_at

NOW = datetime(2026, 11, 17, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ((3, 10, "x"), (3.0, 10.0, "x")),
        ((0, 0, None), (0.0, 0.0, None)),
        ((2.5, None, ""), (2.5, None, None)),
        ((Fraction(1, 2), 10**300, "a\0b"), (0.5, 1e300, "a\ufffdb")),
        ((1, None, "\ud800"), (1.0, None, "?")),
        ((1, None, "x" * 1000), (1.0, None, "x" * (LONGEST_MESSAGE - 1) + "…")),
    ],
)
def test_p50_what_a_progress_may_be(given: tuple[Any, ...], kept: tuple[Any, ...]) -> None:
    assert Progress.of(*given) == kept


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (("3", None, None), "done must be a number, not str"),
        ((None, 3, None), "done must be a number, not NoneType"),
        ((True, 3, None), "done must be a number, not bool"),
        ((Decimal(1), 3, None), "done must be a number, not Decimal"),
        ((1, "9", None), "total must be a number, not str"),
        ((1, 9, 5), "message must be a text, not int"),
        ((-1, 9, None), "done must be a finite number and at least 0"),
        ((math.nan, 9, None), "done must be a finite number"),
        ((10**400, 9, None), "done must be a finite number"),
        ((1, math.inf, None), "total must be a finite number"),
    ],
)
def test_p50_what_it_may_not_be_is_said(given: tuple[Any, ...], problem: str) -> None:
    with pytest.raises((TypeError, ValueError), match=problem):
        Progress.of(*given)


def test_p50_t23_a_direct_call_checks_it_and_goes_on() -> None:
    app = Horsies(AppConfig.for_database_url("postgresql://localhost/nowhere"))

    @app.task("work")
    def work(ctx: TaskContext, done: Any) -> str:
        ctx.progress(done, 10)
        return "fine"

    assert work(3).unwrap() == "fine"
    assert "done must be a number" in str(work("x").unwrap_err().message)


def test_p50_rate_fraction_and_remaining_time() -> None:
    later = NOW + timedelta(seconds=10)
    found = progress_of(2, 60.0, 100.0, "half", 10.0, NOW, later)
    assert found == TaskProgress(60, 100, "half", 2, later, 5.0)
    assert (found.fraction, found.remaining) == (0.6, timedelta(seconds=8))
    assert (repr(found.done), repr(found.total)) == ("60", "100")
    first = progress_of(1, 1.5, None, None, 1.5, NOW, NOW)
    assert (first.done, first.rate, first.fraction, first.remaining) == (1.5, None, None, None)
    over = progress_of(1, 12.0, 10.0, None, 0.0, NOW, later)
    assert (over.fraction, over.remaining) == (1.0, timedelta(0))
    assert progress_of(1, 0.0, 0.0, None, 0.0, NOW, later).fraction == 1.0
    assert progress_of(1, 1e-300, 1e300, None, 0.0, NOW, later).remaining is None


def test_p51a_settings_and_their_mistakes() -> None:
    assert TaskLogs(level="warning").level == "WARNING" and TaskLogs(level=10).level == "DEBUG"  # type: ignore[arg-type]
    for wrong in ({"level": "loud"}, {"max_lines": 0}, {"max_bytes": 10}, {"keep_hours": 0}, {"keep": 1}):
        with pytest.raises(HorsiesError):
            TaskLogs(**wrong)  # type: ignore[arg-type]


def drained(log: RunLog, stored: dict[int, str]) -> int:
    """What a worker does with the parts: it keeps them, and deletes the middle. How many lines have waited."""
    sent = 0
    while (part := log.part()) is not None:
        sent += part.last - part.first + 1
        for number, line in enumerate(json.loads(part.lines), part.first):
            stored[number] = line[3]
        assert part.last == part.first + len(json.loads(part.lines)) - 1
        if part.before:
            for number in [number for number in stored if part.after < number < part.before]:
                del stored[number]
        log.sent(part)
    return sent


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=60),
    st.integers(10, 30),
)
def test_p51a_the_first_and_the_last_lines_are_kept(bursts: list[int], most: int) -> None:
    """However the lines come, and whenever they are sent."""
    log, stored, count = RunLog(TaskLogs(max_lines=most)), dict[int, str](), 0
    for burst in bursts:
        for _ in range(burst):
            count += 1
            log.add(0.0, "INFO", "shop", f"line {count}")
        drained(log, stored)
    half = most // 2
    wanted = {*range(1, min(half, count) + 1), *range(max(half, count - half) + 1, count + 1)}
    assert set(stored) == wanted
    assert all(text == f"line {number}" for number, text in stored.items())


def test_p51a_bytes_are_bounded_too_and_a_long_line_is_cut() -> None:
    log, stored = RunLog(TaskLogs(max_bytes=8_192)), dict[int, str]()
    for number in range(1, 101):
        log.add(0.0, "INFO", "shop", str(number) * 2_000)
    drained(log, stored)
    assert sum(map(len, stored.values())) < 9_000
    assert min(stored) == 1 and max(stored) == 100
    assert all("more characters)" in text for text in stored.values())


def test_p51a_nothing_is_kept_of_a_flood_but_what_will_be_stored() -> None:
    log = RunLog(TaskLogs(max_lines=100))
    for number in range(100_000):
        log.add(0.0, "INFO", "shop", f"line {number}")
    assert drained(log, {}) == 100


@each("had", [0, 4, 5, 6, 9, 10, 30])
@each("is_sent", [True, False], ids=["sent meanwhile", "not sent"])
def test_p51a_t30_a_stop_at_any_instruction_leaves_the_log_whole(had: int, is_sent: bool) -> None:
    """However much was logged before; and the task logs more while it cleans up."""
    for instruction in count(1):
        log, stored = RunLog(TaskLogs(max_lines=10)), dict[int, str]()
        for number in range(had):
            log.add(0.0, "INFO", "shop", f"line {number}")
        was_stopped = is_stopped_at(
            instruction, {child_notes.__file__}, partial(log.add, 0.0, "INFO", "shop", "stopped")
        )
        if is_sent:
            drained(log, stored)
        for number in range(50):
            log.add(0.0, "INFO", "shop", f"after {number}")
        assert drained(log, stored) <= 10
        texts = [stored[number] for number in sorted(stored)]
        assert texts[:had][:5] == [f"line {number}" for number in range(had)][:5]
        assert texts[-5:] == [f"after {number}" for number in range(45, 50)] and len(texts) <= 10
        if not was_stopped:
            break
    assert instruction > 50


def frames_of(data: bytes) -> list[tuple[Kind, int, list[Any]]]:
    return [(kind, token, [json.loads(part) for part in parts]) for kind, token, parts in Decoder().feed(data)]


def test_p50_the_newest_wins_and_is_sent_once_a_second_at_most() -> None:
    notes = Notes(held={1, 2})
    for done in range(5):
        notes.progress(1, Progress.of(done, 10, None))
    assert notes.noted
    note = notes.next()
    assert note is not None and frames_of(note.data) == [(Kind.PROGRESS, 1, [[4.0, 10.0, None]])]
    notes.progress(1, Progress.of(7, 10, None))  # while it is being sent
    notes.sent(note)
    assert notes.next() is None and 0 < (notes.due_in() or 0) <= 1
    assert frames_of(notes.last(1)) == [(Kind.PROGRESS, 1, [[7.0, 10.0, None]])]
    assert notes.last(1) == b"" and not notes.noted


def test_p50_p51a_what_does_not_run_here_leaves_no_note() -> None:
    notes = Notes(held={1})
    notes.limits = TaskLogs()
    notes.progress(2, Progress.of(1, None, None))
    notes.log(2, 0.0, "INFO", "shop", "late")
    notes.printed(2, 0.0, "late\n")
    assert not notes.noted and notes.next() is None and notes.last(2) == b""


def test_p51a_lines_wake_the_io_thread_once_and_all_of_them_arrive() -> None:
    rung: list[None] = []
    notes = Notes(held={1})
    notes.limits, notes.wake = TaskLogs(), lambda: rung.append(None)
    for number in range(3):
        notes.log(1, 1.5, "INFO", "shop", f"line {number}")
    assert len(rung) == 1
    note = notes.next()
    assert note is not None and isinstance(note.content, LogPart)
    [(kind, token, [numbers, lines])] = frames_of(note.data)
    assert (kind, token, numbers) == (Kind.LOGGED, 1, [1, 3, 0, 0])
    assert lines == [[1.5, "INFO", "shop", f"line {number}"] for number in range(3)]
    notes.sent(note)
    assert notes.next() is None
    notes.log(1, 2.0, "INFO", "shop", "line 3")
    assert len(rung) == 2 and notes.next() is None and notes.due_in() is not None  # not yet
    notes.printed(1, 2.5, "no end")
    assert [numbers for _, _, [numbers, _] in frames_of(notes.last(1))] == [[4, 5, 0, 0]]


def test_p51a_what_is_being_sent_at_the_end_is_sent_again_with_the_rest() -> None:
    """Nobody knows whether it has arrived; the longer part has the same first line, and replaces it."""
    notes = Notes(held={1})
    notes.limits = TaskLogs()
    notes.log(1, 0.0, "INFO", "shop", "a")
    note = notes.next()
    notes.log(1, 0.0, "INFO", "shop", "b")
    assert [numbers for _, _, [numbers, _] in frames_of(notes.last(1))] == [[1, 2, 0, 0]]
    assert note is not None
    notes.sent(note)  # too late, and without harm
    assert notes.next() is None and notes.last(1) == b""


def test_p51a_a_bell_that_user_code_has_closed_rings_no_more() -> None:
    ear, mouth = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    bell = Bell(ear, mouth)
    for _ in range(100_000):
        bell.ring()  # full, and still at once
    assert bell.answer() and bell.answer()
    os.close(ear)
    os.close(mouth)
    bell.ring()
    assert not bell.answer()


def lines_in(data: bytes) -> dict[int, str]:
    """What a worker keeps of these frames, by number."""
    stored: dict[int, str] = {}
    for _, _, [[first, _, after, before], lines] in frames_of(data):
        stored |= {number: line[3] for number, line in enumerate(lines, first)}
        stored = {number: text for number, text in stored.items() if not before or not after < number < before}
    return stored


@given(
    st.lists(st.text("ab\n", max_size=120) | st.just("x\n" * 60), min_size=1, max_size=8),
    st.integers(10, 30),
)
def test_p51a_what_is_printed_at_once_is_kept_as_if_it_came_line_by_line(printed: list[str], most: int) -> None:
    at_once, one_by_one = Notes(held={1}), Notes(held={1})
    at_once.limits = one_by_one.limits = TaskLogs(max_lines=most, max_bytes=4_096)
    for text in printed:
        at_once.printed(1, 0.0, text)
    for line in "".join(printed).splitlines(keepends=True):
        one_by_one.printed(1, 0.0, line)
    assert lines_in(at_once.last(1)) == lines_in(one_by_one.last(1))


def test_p51a_a_flood_that_is_printed_costs_no_more_than_what_is_kept_of_it() -> None:
    """The other tasks of the child wait for this, and so does the thread that says that it is alive."""
    notes, calls = Notes(held={1}), 0
    notes.limits = TaskLogs(max_lines=20)
    flood = "\n".join(map(str, range(1, 1_000_001))) + "\n"

    def counted(*_: object) -> None:
        nonlocal calls
        calls += 1

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        notes.printed(1, 0.0, flood)
    finally:
        sys.setprofile(before)
    assert calls < 2_000
    assert lines_in(notes.last(1)) == {number: str(number) for number in (*range(1, 11), *range(999_991, 1_000_001))}


def row(claim: int, first: int, *texts: str) -> tuple[int, int, int, str]:
    return claim, claim, first, json.dumps([[0.0, "INFO", "shop", text] for text in texts])


def test_p51a_gaps_are_counted_and_what_cannot_be_read_is_one() -> None:
    rows = [row(1, 1, "a", "b"), row(1, 7, "g"), (1, 1, 8, "no json"), row(1, 9, "i"), row(3, 2, "z")]
    found = list(lines_of(rows, LogPlace()))
    assert [(line.attempt, line.number, line.text, line.dropped) for _, line in found] == [
        (1, 1, "a", 0), (1, 2, "b", 0), (1, 7, "g", 4), (1, 9, "i", 1), (3, 2, "z", 1),
    ]  # fmt: skip
    place = found[1][0]
    assert [line.text for _, line in lines_of(rows, place)] == ["g", "i", "z"]  # a row that was read in part
    for odd in ('{"a": 1}', "[1]", '[["x", 1, 2, 3]]', "[[1e400, 1, 2, 3]]", "[" * 100_000):
        assert list(lines_of([(1, 1, 1, odd)], LogPlace())) == []


@each("text", ["\U0001f600" * 20_000, "\x00" * 20_000, "x" * 20_000, "\u4e00" * 9_000])
def test_p51a_a_line_fits_into_a_frame_whatever_its_characters_are(text: str) -> None:
    log = RunLog(TaskLogs())
    log.add(1.0, "INFO", "shop", text)
    part = log.part()
    assert part is not None and len(part.lines) <= FRAME_BYTES + 2
    [[_, _, _, kept]] = json.loads(part.lines)
    assert kept.startswith(text[:2_000]) and "more characters" in kept
