"""The machine stood still when all its processors did, and only what happened meanwhile is excused."""

from __future__ import annotations

from benchmarks.stalls import Stall, everywhere


def test_only_what_all_processors_noted_counts() -> None:
    first = [Stall(10, 20), Stall(50, 80)]
    second = [Stall(15, 30), Stall(60, 65), Stall(70, 90)]
    assert everywhere([first, second]) == [Stall(15, 20), Stall(60, 65), Stall(70, 80)]
    assert everywhere([first]) == first
    assert everywhere([first, []]) == []
    assert everywhere([]) == []


def test_a_stall_meets_what_lasts_through_it_and_not_what_ends_before() -> None:
    stall = Stall(10, 20)
    assert stall.meets(0, 11) and stall.meets(12, 13) and stall.meets(19, 30) and stall.meets(0, 30)
    assert not stall.meets(0, 10) and not stall.meets(20, 30)
