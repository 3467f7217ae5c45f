"""The arithmetic of the published figures: percentiles, medians, and ratios within a round."""

from __future__ import annotations

from benchmarks.peers import figures
from benchmarks.peers.figures import Figure
from benchmarks.report import Bar, Row, percentiles


def test_percentiles() -> None:
    assert percentiles([float(n) for n in range(300, 0, -1)]) == {50: 150, 95: 285, 99: 297}
    assert percentiles([7.0]) == {50: 7, 95: 7, 99: 7}


def test_the_median_of_the_runs_decides() -> None:
    row = Row("drain", "drain", "tasks/s", (9_000, 21_000, 16_000), Bar(15_000))
    assert (row.value, row.holds, row.figure()) == (16_000, True, "16,000 tasks/s (9,000–21,000)")
    assert Row("many", "many", "tasks/s", (), Bar(25_000)).holds is None


def test_ratios_are_taken_within_a_round() -> None:
    """Ours missed round 2, and both were slow in round 3: that is no reason for another ratio."""
    assert figures.ratio({1: 50.0, 2: 900.0, 3: 5.0}, {1: 100.0, 3: 10.0}) == 0.5
    assert figures.ratio({2: 1.0}, {1: 1.0}) is None
    ours = {1: [600.0], 2: [1_000.0], 3: [400.0]}
    assert figures.figure({1: [300.0], 2: [100.0], 3: [200.0]}, ours) == Figure(200.0, 300.0, 100.0, 300.0, 0.5)
    assert figures.figure({1: []}, ours) is None
