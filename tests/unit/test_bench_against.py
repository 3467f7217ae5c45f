"""`make bench AGAINST=DIR`: which figures of two checkouts are compared, and how; and sums of memory."""

from __future__ import annotations

import pytest

from benchmarks.against import compared
from benchmarks.processes import Memory
from benchmarks.report import Row


def rows(**values: float | None) -> list[Row]:
    return [Row(key, key, "s", () if value is None else (value,)) for key, value in values.items()]


def test_ratios_are_taken_within_a_round_and_shown_with_their_spread() -> None:
    """The machine was slow in the second round: for both."""
    [one] = compared([(rows(a=1.0), rows(a=0.5)), (rows(a=4.0), rows(a=2.4)), (rows(a=1.0), rows(a=0.9))])
    assert (one.that, one.this, one.ratio) == (1.0, 0.9, 0.6)
    assert one.ratios == pytest.approx((0.5, 0.6, 0.9))
    assert one.verdict() == "lower in every round"


def test_a_figure_that_is_not_the_same_in_every_round_has_no_verdict() -> None:
    [one] = compared([(rows(a=1.0), rows(a=0.9)), (rows(a=1.0), rows(a=1.1))])
    assert one.verdict() == ""
    [one] = compared([(rows(a=1.0), rows(a=1.2)), (rows(a=1.0), rows(a=1.1))])
    assert one.verdict() == "higher in every round"


def test_only_figures_of_both_are_compared_and_nothing_is_divided_by_zero() -> None:
    that, this = rows(a=1.0, old=1.0, zero=0.0, none=None), rows(a=1.0, new=1.0, zero=1.0, none=None)
    assert [one.what for one in compared([(that, this)])] == ["a"]
    assert compared([]) == []


def test_memory_is_the_sum_of_all_processes() -> None:
    one = "Rss: 999 kB\nPss: 600 kB\nPrivate_Clean: 100 kB\nPrivate_Dirty: 300 kB\n"
    two = "55c8-7ffd ---p 00000000 00:00 0 [rollup]\nPss: 400 kB\nPrivate_Dirty: 50 kB\n"
    assert Memory.read(f"{one}\n{two}") == pytest.approx((1.024, 0.4608))
    assert Memory.read(two).since(Memory.read(two)) == (0, 0)
