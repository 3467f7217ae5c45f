"""How values read on a page (M-91, M-93, M-95)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from horsies.core.models.notes import TaskProgress
from horsies.core.types import TaskStatus
from horsies.web import format
from tests.each import each

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


@each(
    ("value", "said"),
    [
        (None, "–"),
        (-5, "0 ms"),
        (0.0034, "3 ms"),
        (1.23, "1.2 s"),
        (42, "42 s"),
        (303, "5 min 3 s"),
        (7_800, "2 h 10 min"),
        (timedelta(days=3, hours=4), "3 d 4 h"),
    ],
)
def test_m91_a_duration_reads_well(value: Any, said: str) -> None:
    assert format.duration(value) == said


def test_m91_a_time_is_in_utc_whatever_zone_it_has() -> None:
    there = NOW.astimezone(tz=None)
    assert format.moment(there) == "2026-03-04 05:06:07 UTC"
    assert format.iso(there) == "2026-03-04T05:06:07.000Z"
    assert (format.moment(None), format.iso(None), format.ago(None, NOW)) == ("–", "", "–")


@each(("before", "said"), [(0.2, "now"), (90, "1 min 30 s ago"), (-90, "in 1 min 30 s"), (86_400, "1 d ago")])
def test_m91_an_age_says_past_and_future(before: float, said: str) -> None:
    assert format.ago(NOW - timedelta(seconds=before), NOW) == said


@each(
    ("number", "is_exact", "said"),
    [(12_345, True, "12,345"), (10_000, False, "10,000+"), (1_234_567, False, "~1,200,000"), (None, True, "–")],
)
def test_m95_a_bounded_count_says_so(number: int | None, is_exact: bool, said: str) -> None:
    assert format.count(number, is_exact) == said


@each("hostile", ["\x1b[31mred", "a\u202eb", "\x00", "\ud800", "line\nline", "\u200bx"])
def test_m93_what_would_be_obeyed_is_shown(hostile: str) -> None:
    assert all(letter.isprintable() for letter in format.cell(hostile))
    format.cell(hostile).encode()
    format.lines(hostile).encode()


def test_m93_a_long_text_is_cut_and_says_so() -> None:
    assert format.cell("x" * 10**6) == "x" * format.LONGEST_CELL + "…"
    assert format.lines("x" * 10**6).endswith(f"… and {10**6 - format.LONGEST_TEXT:,} more characters")


@each("hostile", ['"><script>', "a b", "ÄÖ", "x" * 500, TaskStatus.FAILED, ""])
def test_m93_a_state_becomes_one_harmless_class(hostile: object) -> None:
    made = format.word(hostile)
    assert len(made) <= 40 and all(letter.isalnum() or letter == "-" for letter in made)


def test_m91_progress_says_only_what_is_known() -> None:
    some = TaskProgress(400, 1_000, "pages", 1, NOW, rate=12.5)
    assert format.progress(some) == "40 % (400 of 1,000), 12.5/s, 48 s left: pages"
    assert format.progress(TaskProgress(3, None, None, 1, NOW)) == "3"


def test_m91_an_id_shows_its_end_which_differs() -> None:
    assert format.short_id("0198c5de-0001-7000-8000-00000000abcd") == "0198c5de-00…abcd"
    assert format.short_id("short") == "short"
    assert format.short_id(None) == "–"
