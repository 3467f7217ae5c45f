"""Lines for a terminal (M-80): whatever a value contains, its line fits, and a terminal obeys nothing of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from horsies.cli.tables import Column
from horsies.tui import lines
from horsies.tui.lines import ListRow, Span, line, plain
from tests.each import each
from tests.hostile_support import LONG, SHORT, obeyed
from tests.tui_support import NOW, a_queue, ago

HOSTILE = ["[red]no markup[/red]", "[/]", "\\[", SHORT, LONG, "🏇🏽👨‍👩‍👧 疲れた", "a" * 10_000, ""]


@each("text", HOSTILE)
def test_m80_hostile_texts_are_shown_and_not_obeyed(text: str) -> None:
    assert obeyed(plain(line(text)), allowed="") == set()
    shown = plain(line(text))
    assert text.isprintable() is False or shown == text, "what is harmless stays as it is"


@each("text", HOSTILE)
@each("width", [0, 1, 2, 5, 40])
def test_m80_a_line_is_cut_to_its_width(text: str, width: int) -> None:
    found = lines.cut(line(text), width)
    assert lines.width_of(found) <= width
    assert lines.width_of(lines.padded(line(text), width)) == width


@given(st.text(), st.integers(2, 60))
def test_m80_a_long_text_is_broken_without_losing_anything(text: str, width: int) -> None:
    shown = plain(line(text))
    pieces = list(lines.broken(shown, width))
    assert all(cell_len(piece) <= width for piece in pieces)
    assert "".join(pieces).replace(" ", "") == shown.replace(" ", "")


def test_m80_a_text_is_broken_at_blanks() -> None:
    assert list(lines.broken("the oldest task has been due", 12)) == ["the oldest", "task has", "been due"]
    assert list(lines.broken("abcdefghij", 4)) == ["abcd", "efgh", "ij"]
    assert list(lines.broken("0\xa00", 2)) == ["0\xa0", "0"], "only a plain blank may be left out"


@pytest.mark.parametrize("letter", ["word ", "x", "\u65e5", "\u0301"])
def test_m80_a_long_text_is_not_measured_again_for_each_piece(letter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, measured = letter * (50_000 // len(letter)), list[int]()

    def counting(part: str) -> int:
        measured.append(len(part))
        return cell_len(part)

    monkeypatch.setattr(lines, "cell_len", counting)
    assert "".join(lines.broken(text, 40)).replace(" ", "") == text.replace(" ", "")
    assert sum(measured) < 12 * len(text)


def test_m80_ages_and_numbers_are_short() -> None:
    assert [lines.short(seconds) for seconds in (None, 0.2, 59, 61, 7_300, 200_000)] == [
        "", "0 s", "59 s", "1 min", "2 h", "2 d",
    ]  # fmt: skip
    assert lines.age(ago(minutes=3), NOW) == "3 min"
    assert lines.age(NOW + timedelta(seconds=9), NOW) == "0 s", "a clock that is ahead"
    assert [lines.number(1_204), lines.number(12_345, False), lines.number(None)] == ["1,204", "~12,000", ""]
    assert [lines.at_least(7, True), lines.at_least(10_000, False)] == ["7", "10,000+"]


def test_m80_times_are_utc_and_without_the_date_of_today() -> None:
    moment = datetime(2026, 1, 2, 13, 5, 6, tzinfo=UTC)
    assert [lines.clock(moment, NOW), lines.clock(moment), lines.clock(None)] == [
        "13:05:06Z",
        "2026-01-02 13:05:06Z",
        "",
    ]
    assert lines.clock(moment + timedelta(days=1), NOW) == "2026-01-03 13:05:06Z"


COLUMNS = (
    Column("Name", lambda pair: pair[0], folds=True),
    Column("number", lambda pair: pair[1]),
    Column("note", lambda pair: pair[2], leaves=1),
)


def test_m80_a_table_aligns_numbers_and_leaves_out_what_is_empty() -> None:
    head, rows = lines.columns(COLUMNS, [("a", 1, None), ("bcd", 1_000, None)], 40)
    assert plain(head) == "Name  number"
    assert [plain(row) for row in rows] == ["a          1", "bcd    1,000"]


def test_m80_a_table_fits_into_any_width() -> None:
    items = [("x" * 300, 1_000_000, "y" * 300), ("[b]", 2, SHORT)]
    for width in (12, 30, 80, 200):
        head, rows = lines.columns(COLUMNS, items, width)
        assert all(lines.width_of(one) <= width for one in (head, *rows))
    assert "note" not in plain(lines.columns(COLUMNS, items, 30)[0]), "the column that may leave has left"


def test_m80_names_and_values_are_aligned_and_long_values_go_on() -> None:
    found = lines.named([("a", "one two three four"), ("none", None), ("long name", 5)], 22)
    assert [plain(one) for one in found] == ["a          one two", "           three four", "long name  5"]


def test_m80_a_block_is_as_long_as_a_person_reads() -> None:
    found = lines.block("traceback", "\n".join(["\tline"] * 5_000), 30)
    assert len(found) == lines.MOST_LINES + 2 and plain(found[1]) == "      line"
    assert "y copies all" in plain(found[-1])
    assert "\\u001b" in plain(lines.block("x", LONG, 30)[1]) + plain(lines.block("x", LONG, 30)[2])


def test_m81_a_search_looks_at_lines_and_at_what_they_leave_out() -> None:
    rows = [ListRow(line("Queues")), ListRow(line("defa…"), "a", a_queue("default")), ListRow(line("mail"), "b")]
    assert [row.key for row in lines.matching(rows, "FAULT")] == [None, "a"]
    assert [row.key for row in lines.matching(rows, "mail")] == [None, "b"]
    assert lines.matching(rows, "") == rows


def test_m81_what_is_copied_is_json() -> None:
    copied = json.loads(lines.as_json(a_queue("\x1b[31m")))
    assert (copied["name"], copied["waiting"]) == ("\x1b[31m", 12)
    assert lines.as_json(a_queue("\x1b[31mä\u202e")).isascii()


def test_m80_a_line_with_tones_is_folded_at_its_words() -> None:
    shown = line(("one ", "good"), "two three", (", four", "bad"))
    assert [plain(one) for one in lines.folded(shown, 9)] == ["one two", "three,", "four"]
    assert [span.tone for span in lines.folded(shown, 40)[0] if "o" in span.text] == ["good", "", "bad"]
    assert lines.folded((), 5) == [()] and [plain(one) for one in lines.folded(line("abcdefgh"), 4)] == ["abc…"]


def test_two_blocks_stand_next_to_each_other() -> None:
    found = lines.beside([line("ab"), line("c")], [line("1")], 20)
    assert [plain(one).rstrip() for one in found] == ["ab   1", "c"]
    assert lines.cut((Span("abc"), Span("def", "bad")), 5) == (Span("abc"), Span("d", "bad"), Span("…", "dim"))
