"""Recovery times and the text of a finding, from hand-made histories."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos import report, times
from tests.chaos.checks import check
from tests.chaos.fabricate import C1, C2, W1, W2, Tale, completed, crashed, empty
from tests.chaos.history import Fault, History


def killed(history: History, owner: str, *, at: float = 10.0, after: float = 2.0) -> None:
    """A worker with a running and a claimed task is killed."""
    worker, child = (100, C1) if owner == W1 else (200, C2)
    history.faults.append(Fault("kill worker", at, at, worker // 100 - 1, worker, frozenset({worker, child})))
    running = Tale(history, f"r{at}").start(at - 1, owner, child).run(at - 0.9, at - 0.1, "")
    running.end(at + after, "PENDING", "WORKER_FAILURE", "WORKER_CRASHED", charge=1)
    Tale(history, f"c{at}").move(at - 0.5, "CLAIMED", owner=owner).move(at + after, "PENDING")


def test_a_recovery_is_timed_from_the_fault_to_the_move_that_took_the_task() -> None:
    history = empty()
    killed(history, W1, after=2.0)
    killed(history, W2, at=30.0, after=3.0)
    completed(history)  # had ended before
    found = times.recoveries(replace(history))
    assert sorted((one.what, round(one.seconds, 3)) for one in found) == [
        (times.WORKER, 2.0), (times.WORKER, 2.0), (times.WORKER_USUAL, 3.0), (times.WORKER_USUAL, 3.0),
    ]  # fmt: skip
    assert all(one.is_undisturbed for one in found)


def test_another_fault_meanwhile_is_a_disturbance() -> None:
    history = empty()
    killed(history, W1)
    history.faults.append(Fault("server fast", 10.5, 11.0))
    assert [one.is_undisturbed for one in times.recoveries(replace(history))] == [False, False]


def test_without_evidence_it_is_told_apart() -> None:
    history = replace(empty(), has_evidence=False)
    killed(history, W1)
    assert {one.what for one in times.recoveries(replace(history))} == {times.WORKER_BLIND}


def test_what_a_worker_said_before_it_was_hit_is_no_recovery() -> None:
    history = empty()
    history.faults.append(Fault("kill worker", 3.05, 3.05, 0, 100, frozenset({100, C1})))
    completed(history)
    assert times.recoveries(replace(history)) == []


def test_of_a_killed_child_only_its_own_tasks_count() -> None:
    history = empty()
    crashed(history)
    Tale(history, "sibling").start(4.0, W1, 112).run(4.1, 6.0, token="s!").end(
        6.1, "COMPLETED", "COMPLETED", token="s!"
    )
    [one] = times.recoveries(replace(history))
    assert (one.what, one.task_id, round(one.seconds, 3)) == (times.CHILD, "id-crashed", 0.1)


def test_a_stop_counts_if_the_task_was_taken_while_it_lasted() -> None:
    history = empty()
    history.faults.append(Fault("stop worker", 10.0, 16.0, 0, 100, frozenset({100, C1})))
    tale = Tale(history, "silent").start(9.0).run(9.1, 9.9, "")
    tale.end(13.5, "PENDING", "WORKER_FAILURE", "WORKER_CRASHED", charge=1)
    Tale(history, "kept").start(9.0, W1, 112).run(9.1, 9.9, "").end(17.0, "CANCELLED", None)
    [one] = times.recoveries(replace(history))
    assert (one.what, one.seconds) == (times.STOPPED, 3.5)


@pytest.mark.parametrize(("share", "value"), [(0.5, 5.0), (0.95, 10.0), (0.1, 1.0), (1.0, 10.0)])
def test_percentiles_are_of_the_nearest_rank(share: float, value: float) -> None:
    assert times.percentile([float(number) for number in range(10, 0, -1)], share) == value


def test_the_table_has_a_line_for_each_thing_that_happened() -> None:
    history = empty()
    killed(history, W1)
    head, *lines = times.table(times.recoveries(replace(history)))
    assert "p95" in head
    assert [line.split()[-6:] for line in lines] == [["2.00", "s"] * 3] * 2
    assert times.WORKER in lines[0] and "undisturbed" in lines[1]


def test_a_finding_names_the_seed_the_place_and_the_events_around_the_task() -> None:
    history = replace(empty(), seed=42)
    tale = crashed(history)
    tale.start(6.0, W2, C2)
    violations = check(replace(history))
    text = report.finding(replace(history), violations, Path("kept"), "make chaos SEED=42")
    assert "make chaos SEED=42" in text and "kept" in text
    for event in (
        "stuck in RUNNING",
        "FAULT kill child of worker 100",
        "attempt 1 WORKER_FAILURE",
        "last sign of life",
    ):
        assert event in text
    times_told = [float(line.split()[0]) for line in text.splitlines() if " s  " in line]
    assert times_told == sorted(times_told) and len(times_told) > 6
