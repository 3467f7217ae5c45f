"""How long tasks take by their name, and what a worker may claim ahead on the strength of that (W-25a)."""

from __future__ import annotations

import pytest

from horsies.core.worker.pace import (
    EARNED,
    GROWTH,
    MAX_NAMES,
    MOST_EARNED,
    NamePace,
    Paces,
    allowed,
    earned_by,
    earned_when_dry,
    kept,
    patience_s,
)
from tests.each import each

QUICK = NamePace(0.05, 0.05)
BRISK = NamePace(4.0, 4.0)
LONG = NamePace(40.0, 40.0)


def paces_after(*runs_ms: float, name: str = "some") -> Paces:
    paces = Paces()
    for run_ms in runs_ms:
        paces.note(name, run_ms)
    return paces


# The table


def test_w25a_an_unknown_name_is_not_short() -> None:
    assert not Paces().is_short("some") and Paces().of("some") is None


def test_w25a_names_have_their_own_pace() -> None:
    paces = paces_after(0.1, name="quick")
    paces.note("long", 200.0)
    assert paces.is_short("quick") and not paces.is_short("long")


def test_w25a_one_run_that_was_held_up_does_not_make_a_name_long() -> None:
    assert paces_after(*[0.1] * 20, 900.0).is_short("some")


def test_w25a_a_few_long_runs_make_a_name_long() -> None:
    assert not paces_after(*[0.1] * 1000, 200.0, 200.0).is_short("some")
    assert not paces_after(*[0.1] * 1000, 20.0, 20.0, 20.0).is_short("some")


def test_w25a_a_name_that_is_long_every_other_time_is_not_short() -> None:
    assert not paces_after(*[0.1, 200.0] * 20).is_short("some")
    assert not paces_after(*[0.1, 200.0] * 20, 0.1).is_short("some")


def test_w25a_a_slow_first_run_is_soon_forgotten() -> None:
    assert not paces_after(500.0).is_short("some")
    assert paces_after(500.0, *[0.1] * 8).is_short("some")


def test_w25a_quick_runs_count_at_once_for_the_least() -> None:
    found = paces_after(4.0, 4.0, 0.1).of("some")
    assert found is not None and found.least_ms == 0.1
    found = paces_after(0.1, *[4.0] * 40).of("some")
    assert found is not None and 3.5 < found.least_ms <= 4.0


def test_w25a_the_table_is_bounded() -> None:
    paces = Paces()
    for n in range(2 * MAX_NAMES):
        paces.note(f"name {n}", 0.1)
    known = [n for n in range(2 * MAX_NAMES) if paces.is_short(f"name {n}")]
    assert known == list(range(MAX_NAMES, 2 * MAX_NAMES))


# What stays of a claim


def stay(*paces: NamePace | None, free: int = 2, ahead: int = 0, children: int = 2, run_ahead_ms: int = 20) -> int:
    return kept(paces, free=free, ahead=ahead, children=children, run_ahead_ms=run_ahead_ms)


@each("name", [None, LONG], ids=["unknown", "long"])
def test_w25a_only_free_slots_are_filled_with_tasks_that_are_not_short(name: NamePace | None) -> None:
    assert stay(*[name] * 200) == 2
    assert stay(*[name] * 200, free=0) == 0
    assert stay(name, free=2) == 1
    assert stay(QUICK, QUICK, QUICK, name, QUICK) == 3, "those behind it keep their order"


def test_w25a_short_tasks_stay_as_far_as_they_are_little_work() -> None:
    assert stay(*[QUICK] * 1000) == 1000
    assert stay(*[BRISK] * 1000) == 2 + 2 * 4 * 5
    assert stay(*[BRISK] * 1000, ahead=39) == 3
    assert stay(*[BRISK] * 1000, ahead=900) == 2
    assert stay(*[QUICK] * 10, run_ahead_ms=0) == 2


def test_w25a_a_busy_machine_is_given_more_time() -> None:
    assert [patience_s(late) for late in (0.0, 0.02, 5.0)] == pytest.approx([0.1, 0.26, 0.3])


# How much may be claimed after what came lately


def test_w25a_a_task_that_had_to_go_back_ends_run_ahead_until_many_short_ones_came() -> None:
    earned = earned_by(MOST_EARNED, [QUICK] * 5, all_kept=False)
    assert allowed(800, earned) == 0
    earned = earned_by(earned, [QUICK] * (EARNED - 1), all_kept=True)
    assert allowed(800, earned) == 0
    earned = earned_by(earned, [QUICK], all_kept=True)
    assert allowed(800, earned) == GROWTH * EARNED
    assert allowed(5, earned) == 5


def test_w25a_a_long_task_ends_the_row_and_an_unknown_one_does_not() -> None:
    assert earned_by(100, [QUICK, LONG, QUICK, QUICK], all_kept=True) == 2
    assert earned_by(100, [None, QUICK], all_kept=True) == 101


def test_w25a_after_a_pause_a_worker_begins_with_a_small_part() -> None:
    assert allowed(800, earned_when_dry(MOST_EARNED)) == GROWTH * EARNED
    assert earned_when_dry(3) == 3


def test_w25a_run_ahead_grows_from_claim_to_claim() -> None:
    earned, claims = earned_when_dry(MOST_EARNED), []
    for _ in range(4):
        claims.append(allowed(800, earned))
        earned = earned_by(earned, [QUICK] * claims[-1], all_kept=True)
    assert claims == [32, 96, 288, 800]
