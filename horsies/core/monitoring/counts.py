"""What one worker counts while it works: plain numbers, cheap enough for every task, read by scrapes.

Names of tasks and queues come from rows, so there may be any number of them: the first `MOST_TASKS`, `MOST_QUEUES` and
`MOST_PAIRS` of both are counted by name, and later ones as `other`. Nothing here grows with the number of tasks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable
from itertools import accumulate
from math import inf
from typing import Generic, NamedTuple, TypeVar

MOST_TASKS = 100
MOST_QUEUES = 50
MOST_PAIRS = 200
OTHER = "other"

SIZES = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
LONG_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)


class Buckets(NamedTuple):
    """A histogram at one moment: for each bound, of which the last is infinity, the number of values up to it."""

    counts: tuple[tuple[float, int], ...]
    sum: float


class Histogram:
    """How many values are below each bound, and their sum."""

    __slots__ = ("_places", "bounds", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.sum = 0.0
        self._places = [0] * (len(bounds) + 1)

    def note(self, value: float) -> None:
        """Add a value. A negative value, which only clocks that disagree can cause, counts as 0."""
        self._places[bisect_left(self.bounds, value)] += 1
        if value > 0:
            self.sum += value

    def buckets(self) -> Buckets:
        """A copy of the present state."""
        return Buckets(tuple(zip((*self.bounds, inf), accumulate(self._places), strict=True)), self.sum)


class Stage:
    """A stage of the pipeline: the size of its batches and the time each takes."""

    __slots__ = ("seconds", "sizes")

    def __init__(self) -> None:
        self.sizes = Histogram(SIZES)
        self.seconds = Histogram(SECONDS)

    def note(self, size: int, seconds: float) -> None:
        self.sizes.note(size)
        self.seconds.note(seconds)


T = TypeVar("T", bound=Hashable)


class Known(Generic[T]):
    """The first `most` names stand for themselves; all later names become `other`."""

    __slots__ = ("_known", "_most", "_other")

    def __init__(self, most: int, other: T) -> None:
        self._most = most
        self._other = other
        self._known: set[T] = set()

    def __call__(self, one: T) -> T:
        if one in self._known:
            return one
        if len(self._known) >= self._most:
            return self._other
        self._known.add(one)
        return one


class WorkerCounts:
    """Counts since the worker started."""

    def __init__(self) -> None:
        self.claim, self.start, self.finalize = Stage(), Stage(), Stage()
        self.queue_seconds: dict[str, Histogram] = {}  # by queue: from when a task was due to its start
        self.run_seconds: dict[str, Histogram] = {}  # by task: from its start to its end
        self.ended: Counter[tuple[str, str, str]] = Counter()  # by queue, task and outcome
        self.recovered: Counter[str] = Counter()  # by what became of them
        self.expired = 0
        self.crashed = 0  # tasks whose child process died in them
        self.sweeps = 0  # that found somebody dead
        self.swept_workers = 0
        self.child_ends: Counter[str] = Counter()  # expected, unexpected
        self.listener_losses = 0
        self._tasks, self._queues = Known(MOST_TASKS, OTHER), Known(MOST_QUEUES, OTHER)
        self._pairs = Known(MOST_PAIRS, (OTHER, OTHER))

    def waits(self, queue: str) -> Histogram:
        """The histogram of waiting times of this queue."""
        return _of(self.queue_seconds, self._queues(queue))

    def runs(self, task: str) -> Histogram:
        """The histogram of run times of this task."""
        return _of(self.run_seconds, self._tasks(task))

    def end(self, queue: str, task: str, outcome: str, count: int = 1) -> None:
        queue, task = self._pairs((queue, task))
        self.ended[queue, task, outcome] += count


def _of(histograms: dict[str, Histogram], name: str) -> Histogram:
    found = histograms.get(name)
    if found is None:
        found = histograms[name] = Histogram(LONG_SECONDS)
    return found
