"""Metric families, as plain values: what a worker counts while it works (cheap enough for every task), and how these
counts, a snapshot of the database and the state of a scheduler become families. Pure; `catalogue.py` names the metrics,
and `prometheus.py` encodes the families.

The number of labels is bounded, because names of tasks and queues come from rows, and everybody who can send a task can
make one up. A worker counts the first `MOST_TASKS`, `MOST_QUEUES` and `MOST_PAIRS` names, and later ones as `other`; of
a snapshot the names with the largest values are kept, and the rest is added up as `other`.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from horsies.core.models.monitoring.cluster import PARTS, QueueInfo, Snapshot
from horsies.core.monitoring import catalogue
from horsies.core.monitoring import catalogue as m

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


class StageCounts:
    """A stage of the pipeline: the size of its batches and the time each takes."""

    __slots__ = ("seconds", "sizes")

    def __init__(self) -> None:
        self.sizes = Histogram(SIZES)
        self.seconds = Histogram(SECONDS)

    def note(self, size: int, seconds: float) -> None:
        self.sizes.note(size)
        self.seconds.note(seconds)


T = TypeVar("T", bound=Hashable)


class BoundedNames(Generic[T]):
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
        self.claim, self.start, self.finalize = StageCounts(), StageCounts(), StageCounts()
        self.queue_seconds: dict[str, Histogram] = {}  # by queue: the time from when a task was due to its start
        self.run_seconds: dict[str, Histogram] = {}  # by task: the time from its start to its end
        self.ended: Counter[tuple[str, str, str]] = Counter()  # by queue, task and outcome
        self.recovered: Counter[str] = Counter()  # by kind of move
        self.expired = 0
        self.crashed = 0  # tasks whose child process died
        self.sweeps = 0  # sweeps that found a dead worker
        self.swept_workers = 0
        self.child_ends: Counter[str] = Counter()  # expected, unexpected
        self.listener_losses = 0
        self._tasks, self._queues = BoundedNames(MOST_TASKS, OTHER), BoundedNames(MOST_QUEUES, OTHER)
        self._pairs = BoundedNames(MOST_PAIRS, (OTHER, OTHER))

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


MOST_SCHEDULES = 200
Labels: TypeAlias = tuple[str, ...]
Value: TypeAlias = float | Buckets
K = TypeVar("K")


class Family(NamedTuple):
    """A metric and its values by their labels, which are in the order of `metric.labels`. Immutable."""

    metric: catalogue.Metric
    samples: list[tuple[Labels, Value]]


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """What a worker is at this moment."""

    worker_id: str
    hostname: str
    version: str
    is_ready: bool
    slots: int
    in_hand: Mapping[str, int]
    children: Mapping[str, int]
    supervisor_bytes: float
    children_bytes: float
    is_listening: bool | None  # None: it has no session to listen in (O-01)
    notifications: int
    loop_lag_s: float
    aborts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DatabaseReading:
    """What a reading of the database gave, and how it went. Without a snapshot there are no numbers, because old ones
    would look new."""

    snapshot: Snapshot | None
    age_s: float = 0.0
    took_s: float = 0.0
    errors: int = 0


def of_reading(reading: DatabaseReading) -> Iterator[Family]:
    """What every process that reads the same database exposes."""
    yield _one(m.DATABASE_UP, float(reading.snapshot is not None))
    yield _one(m.READING_ERRORS, reading.errors)
    yield _one(m.READING_SECONDS, reading.took_s)
    if reading.snapshot is not None:
        yield _one(m.READING_AGE, reading.age_s)
        yield from of_snapshot(reading.snapshot)


def of_snapshot(snapshot: Snapshot) -> Iterator[Family]:
    """The gauges of the database."""
    missing = frozenset(snapshot.missing)
    yield _by(m.READING_MISSING, {part: float(part in missing) for part in PARTS})
    yield _tasks(snapshot)
    yield from _queues(snapshot.queues, missing)
    yield Family(m.WORKFLOWS, [((status,), count) for status, count in sorted(snapshot.workflow_counts.items())])
    if "workers" not in missing:
        live = sum(worker.is_live for worker in snapshot.workers)
        yield Family(m.WORKERS, [(("live",), live), (("silent",), len(snapshot.workers) - live)])
        yield _one(m.SILENCE, max((worker.silence_seconds for worker in snapshot.workers), default=0.0))
    # About other schedules this process knows nothing. It does not report them, so that the one that knows is heard.
    active = [one for one in snapshot.schedules if one.is_active]
    late = sorted(active, key=lambda one: (-one.lag_seconds, one.name))[:MOST_SCHEDULES]
    yield Family(m.SCHEDULE_LAG, [((one.name,), one.lag_seconds) for one in late])
    yield Family(
        m.SCHEDULE_NEXT, [((one.name,), one.next_run_at.timestamp()) for one in late if one.next_run_at is not None]
    )
    server = snapshot.database
    yield _one(m.NOTIFY_USAGE, server.notification_queue_usage)
    if server.listeners is not None:
        yield _one(m.LISTENERS, server.listeners)
    yield _one(m.SESSIONS, server.sessions)
    yield _one(m.OLDEST_TRANSACTION, server.oldest_transaction_seconds or 0.0)


def of_worker(facts: WorkerFacts, counts: WorkerCounts) -> Iterator[Family]:
    """What a worker reports about itself."""
    yield Family(m.INFO, [((facts.worker_id, facts.hostname, facts.version), 1.0)])
    yield _one(m.READY, float(facts.is_ready))
    yield _one(m.SLOTS, facts.slots)
    yield _by(m.IN_HAND, facts.in_hand)
    yield _by(m.CHILDREN, facts.children)
    yield Family(m.MEMORY, [(("supervisor",), facts.supervisor_bytes), (("children",), facts.children_bytes)])
    if facts.is_listening is not None:
        yield _one(m.LISTENING, float(facts.is_listening))
    yield _one(m.HEARD, facts.notifications)
    yield _one(m.LOOP_LAG, facts.loop_lag_s)
    yield _by(m.ABORTS, facts.aborts)
    yield from _of_counts(counts)


def of_scheduler(check_age_s: float | None, *, is_ready: bool) -> Iterator[Family]:
    """What a scheduler reports about itself."""
    yield _one(m.SCHEDULER_READY, float(is_ready))
    if check_age_s is not None:
        yield _one(m.CHECK_AGE, check_age_s)


def _of_counts(counts: WorkerCounts) -> Iterator[Family]:
    yield Family(m.ENDED, sorted(counts.ended.items()))
    yield _by(m.QUEUE_SECONDS, counts.queue_seconds)
    yield _by(m.RUN_SECONDS, counts.run_seconds)
    for size, seconds, stage in (
        (m.CLAIM_SIZE, m.CLAIM_SECONDS, counts.claim),
        (m.START_SIZE, m.START_SECONDS, counts.start),
        (m.FINALIZE_SIZE, m.FINALIZE_SECONDS, counts.finalize),
    ):
        yield _one(size, stage.sizes)
        yield _one(seconds, stage.seconds)
    yield _one(m.CRASHES, counts.crashed)
    yield _by(m.RECOVERED, counts.recovered)
    yield _one(m.EXPIRED, counts.expired)
    yield _one(m.SWEEPS, counts.sweeps)
    yield _one(m.SWEPT, counts.swept_workers)
    yield _by(m.CHILD_ENDS, counts.child_ends)
    yield _one(m.LOSSES, counts.listener_losses)


def _tasks(snapshot: Snapshot) -> Family:
    weights: Counter[tuple[str, str]] = Counter()
    for one in snapshot.task_counts:
        weights[one.queue, one.task_name] += one.count
    kept = _heaviest(weights, MOST_PAIRS)
    found: Counter[Labels] = Counter()
    for one in snapshot.task_counts:
        queue, task = (one.queue, one.task_name) if (one.queue, one.task_name) in kept else (OTHER, OTHER)
        found[str(one.status), queue, task] += one.count
    return Family(m.TASKS, sorted(found.items()))


# What each part of a snapshot says of a queue.
_WAITING, _HELD = ("due", "scheduled"), ("claimed", "running")


def _queues(queues: Sequence[QueueInfo], missing: frozenset[str]) -> Iterator[Family]:
    """The remaining queues as one: their tasks added up, and the oldest of their ages. What a missing part would have
    said is left out."""
    kept = _heaviest({one.name: one.waiting + one.claimed + one.running for one in queues}, MOST_QUEUES)
    told = (*(() if "waiting" in missing else _WAITING), *(() if "in_flight" in missing else _HELD))
    states: Counter[Labels] = Counter()
    ended: Counter[str] = Counter()
    oldest: dict[str, float] = {}
    served: dict[str, int] = {}
    estimated: dict[str, float] = {}
    for one in queues:
        name = one.name if one.name in kept else OTHER
        for state in told:
            states[name, state] += getattr(one, state)
        ended[name] += one.ended_last_minute
        oldest[name] = max(oldest.get(name, 0.0), one.oldest_due_seconds or 0.0)
        served[name] = min(served.get(name, one.live_workers), one.live_workers)
        estimated[name] = max(estimated.get(name, 0.0), float(not one.is_exact))
    yield Family(m.QUEUE_TASKS, sorted(states.items()))
    for part, family in (
        ("waiting", _by(m.QUEUE_ESTIMATED, estimated)),
        ("oldest_due", _by(m.QUEUE_OLDEST, oldest)),
        ("ended", _by(m.QUEUE_ENDED, ended)),
        ("workers", _by(m.QUEUE_WORKERS, served)),
    ):
        if part not in missing:
            yield family
    limits = {one.name: one.max_concurrency for one in queues if one.name in kept}
    yield _by(m.QUEUE_LIMIT, {name: limit for name, limit in limits.items() if limit is not None})


def _heaviest(weights: Mapping[K, int], most: int) -> frozenset[K]:
    ranked: Iterable[K] = sorted(weights, key=lambda one: (-weights[one], str(one)))
    return frozenset(list(ranked)[:most])


def _one(metric: catalogue.Metric, value: float | Histogram) -> Family:
    return Family(metric, [((), _now(value))])


def _by(metric: catalogue.Metric, values: Mapping[str, float | Histogram]) -> Family:
    return Family(metric, [((name,), _now(value)) for name, value in sorted(values.items())])


def _now(value: float | Histogram) -> Value:
    """A value that no longer changes: families are encoded outside the loop, which continues to count."""
    return value.buckets() if isinstance(value, Histogram) else value
