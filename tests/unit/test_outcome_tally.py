"""What became of tasks, counted in memory (D-59): groups that stay few, and histograms that tell quantiles."""

from __future__ import annotations

import random
from math import sqrt

from horsies.core.tasks import tally
from horsies.core.tasks.tally import BOUNDS, BUCKETS, EndKind, OutcomeTally, bucket_of, quantile
from tests.each import each


def note(
    counted: OutcomeTally,
    queue: str,
    name: str,
    kind: EndKind,
    code: str = "",
    task_id: str | None = None,
    wait_s: float | None = None,
    run_s: float | None = None,
) -> None:
    group = counted.group(queue, name, code)
    group.ended(kind, task_id)
    if wait_s is not None:
        group.waited(wait_s)
    if run_s is not None:
        group.ran(run_s)


def test_d59_each_end_is_counted_in_its_group() -> None:
    counted = OutcomeTally()
    for code, kind in (
        ("", EndKind.COMPLETED),
        ("", EndKind.COMPLETED),
        ("BAD", EndKind.FAILED),
        ("BAD", EndKind.RETRIED),
    ):
        note(counted, "mail", "send", kind, code, "id-1", 0.5, 0.002)
    done, bad = sorted(counted.take(), key=lambda group: group.error_code)
    assert (done.row()["completed"], done.row()["failed"], done.example_id) == (2, 0, None)
    assert (bad.row()["failed"], bad.row()["retried"], bad.example_id) == (1, 1, "id-1")
    assert done.wait_s == 1.0 and sum(done.wait_counts) == 2 and done.run_s == 0.004
    assert len(counted) == 0 and counted.take() == []


def test_d59_what_is_in_none_of_the_first_groups_is_counted_as_other() -> None:
    counted = OutcomeTally(most=5)
    for number in range(100):
        note(counted, "q", f"task{number}", EndKind.FAILED, "BAD")
    groups = {group.task_name: group.row()["failed"] for group in counted.take()}
    assert groups == {"task0": 1, "task1": 1, "task2": 1, "task3": 1, tally.OTHER: 96}


def test_d59_a_long_code_is_cut() -> None:
    counted = OutcomeTally()
    for end in ("a", "b"):
        note(counted, "q", "t", EndKind.FAILED, "x" * 300 + end)
    [group] = counted.take()
    assert (group.error_code, group.counts[EndKind.FAILED]) == ("x" * tally.LONGEST_CODE, 2)


def test_d59_what_could_not_be_written_is_counted_once_more() -> None:
    counted = OutcomeTally()
    note(counted, "q", "t", EndKind.FAILED, "BAD", "old", 1.0, 2.0)
    groups = counted.take()
    note(counted, "q", "t", EndKind.FAILED, "BAD", "new", 1.0, 2.0)
    counted.put_back(groups)
    [group] = counted.take()
    assert (group.counts[EndKind.FAILED], group.wait_s, group.run_s, group.example_id) == (2, 2.0, 4.0, "new")
    assert (sum(group.wait_counts), sum(group.run_counts)) == (2, 2)


@each("seconds", [-5.0, 0.0, 0.0005, 0.001, 0.0011, 0.5, 1.0, 59.9, 3600.0, 86_400.0, 1e9, 1e300])
def test_d59_a_time_is_within_the_bounds_of_its_bucket(seconds: float) -> None:
    bucket = bucket_of(seconds)
    assert 0 <= bucket < BUCKETS
    assert bucket == BUCKETS - 1 or seconds <= BOUNDS[bucket]
    assert bucket == 0 or seconds > BOUNDS[bucket - 1]


@each("share", [0.02, 0.05, 0.5, 0.95, 1.0])
def test_d59_a_quantile_is_wrong_by_a_bucket_at_most(share: float) -> None:
    chance = random.Random(7)
    values = sorted(chance.lognormvariate(0, 2) for _ in range(5_000))
    counts = [0] * BUCKETS
    for value in values:
        counts[bucket_of(value)] += 1
    exact = values[min(len(values) - 1, int(share * len(values)))]
    found = quantile(counts, share)
    assert found is not None and exact / sqrt(2) / 1.01 <= found <= exact * sqrt(2) * 1.01


def test_d59_there_is_no_quantile_of_nothing() -> None:
    assert quantile([], 0.5) is None and quantile([0, 0], 0.5) is None


def test_d59_zeros_at_the_end_are_left_out() -> None:
    counted = OutcomeTally()
    note(counted, "q", "t", EndKind.COMPLETED, wait_s=0.0, run_s=0.0015)
    [group] = counted.take()
    assert (group.row()["wait_counts"], group.row()["run_counts"]) == ([1], [0, 0, 1])
