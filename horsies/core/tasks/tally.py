"""What became of tasks, counted in memory: by queue, task name and error code, with the times that they waited and ran
(D-59). Whoever ends tasks counts them here; `store/rollup.py` adds the counts to the statistics in the database. Pure.

A time is kept as one more in a bucket of a histogram. The buckets grow by a factor of √2, so any number of histograms
can be added up, and `quantile` is never wrong by more than a bucket. The number of groups is bounded, because names and
codes come from rows, and everybody who can send a task can make one up: later ones are counted as `OTHER`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any

FIRST_S = 0.001  # the first bucket is for times up to this
BUCKETS = 61  # the last one is for times of about nine days and more
BOUNDS = tuple(FIRST_S * 2 ** (bucket / 2) for bucket in range(BUCKETS - 1))  # the longest time of each but the last
MOST_GROUPS = 500
OTHER = "…other"
LONGEST_CODE = 255


class EndKind(IntEnum):
    """What became of a task, or of one of its attempts; the places of `OutcomeGroup.counts`."""

    COMPLETED = 0
    FAILED = 1
    RETRIED = 2
    EXPIRED = 3
    CANCELLED = 4


FAILED = EndKind.FAILED
OUTCOME_NAMES = tuple(outcome.name.lower() for outcome in EndKind)  # as the columns are called


class OutcomeGroup:
    """The counts of one queue, task name and error code."""

    __slots__ = (
        "counts",
        "error_code",
        "example_id",
        "queue",
        "run_counts",
        "run_s",
        "task_name",
        "wait_counts",
        "wait_s",
    )

    def __init__(self, queue: str, task_name: str, error_code: str) -> None:
        self.queue, self.task_name, self.error_code = queue, task_name, error_code
        self.counts = [0] * len(EndKind)
        self.wait_s = self.run_s = 0.0
        self.wait_counts, self.run_counts = [0] * BUCKETS, [0] * BUCKETS
        self.example_id: str | None = None  # the last one that failed

    def ended(self, kind: EndKind, task_id: str | None = None, number: int = 1) -> None:
        """So many tasks ended like this; one of them is named."""
        self.counts[kind] += number
        if kind is FAILED:
            self.example_id = task_id or self.example_id

    def waited(self, seconds: float) -> None:
        """A negative time, which only clocks that disagree can cause, counts as 0."""
        self.wait_counts[bisect_left(BOUNDS, seconds)] += 1
        if seconds > 0:
            self.wait_s += seconds

    def ran(self, seconds: float) -> None:
        self.run_counts[bisect_left(BOUNDS, seconds)] += 1
        if seconds > 0:
            self.run_s += seconds

    def add(self, other: OutcomeGroup) -> None:
        self.counts = _sums(self.counts, other.counts)
        self.wait_s += other.wait_s
        self.run_s += other.run_s
        self.wait_counts, self.run_counts = (
            _sums(self.wait_counts, other.wait_counts),
            _sums(self.run_counts, other.run_counts),
        )
        self.example_id = self.example_id or other.example_id

    def row(self) -> dict[str, Any]:
        """The columns of `horsies_rollup`."""
        return {
            "queue_name": self.queue,
            "task_name": self.task_name,
            "error_code": self.error_code,
            **dict(zip(OUTCOME_NAMES, self.counts, strict=True)),
            "wait_seconds": self.wait_s,
            "wait_counts": _trimmed(self.wait_counts),
            "run_seconds": self.run_s,
            "run_counts": _trimmed(self.run_counts),
            "example_id": self.example_id,
        }


class OutcomeTally:
    """`group` has the counts of one queue, name and code; `take` gives all that were counted, and begins anew."""

    def __init__(self, most: int = MOST_GROUPS) -> None:
        self._most = most
        self._groups: dict[tuple[str, str, str], OutcomeGroup] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def group(self, queue: str, task_name: str, error_code: str = "") -> OutcomeGroup:
        """To count in now, and not to be kept."""
        return self._groups.get((queue, task_name, error_code)) or self._new(queue, task_name, error_code)

    def take(self) -> list[OutcomeGroup]:
        groups, self._groups = self._groups, {}
        return list(groups.values())

    def put_back(self, groups: Iterable[OutcomeGroup]) -> None:
        """What could not be written is counted once more."""
        for group in groups:
            self.group(group.queue, group.task_name, group.error_code).add(group)

    def _new(self, queue: str, task_name: str, error_code: str) -> OutcomeGroup:
        key = queue, task_name, error_code[:LONGEST_CODE]
        if key not in self._groups and len(self._groups) >= self._most - 1:
            key = OTHER, OTHER, ""
        return self._groups.setdefault(key, OutcomeGroup(*key))


def bucket_of(seconds: float) -> int:
    """The place of a time in a histogram."""
    return bisect_left(BOUNDS, seconds)


def quantile(counts: Sequence[int], share: float) -> float | None:
    """The time that this share of the values does not exceed, in seconds; None if there are no values. Within a bucket
    the values are taken to be spread evenly on the logarithmic scale."""
    total = sum(counts)
    if total <= 0:
        return None
    rank, before = share * total, 0
    for bucket, count in enumerate(counts):
        if count and before + count >= rank:
            part = max(0.0, rank - before) / count
            return FIRST_S * part if bucket == 0 else BOUNDS[bucket - 1] * 2 ** (part / 2)
        before += count
    return BOUNDS[-1]


def _sums(some: Sequence[int], others: Sequence[int]) -> list[int]:
    return [one + other for one, other in zip(some, others, strict=True)]


def _trimmed(counts: Sequence[int]) -> list[int]:
    """Without the zeros at the end."""
    end = len(counts)
    while end and not counts[end - 1]:
        end -= 1
    return list(counts[:end])
