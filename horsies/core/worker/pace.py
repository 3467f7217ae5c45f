"""How long tasks take, and how far a worker may run ahead on the strength of that (W-25a): plain arithmetic.

Run-ahead pays where commits take longer than the tasks. It costs nothing as long as the tasks that wait in one worker
are short; others could run longer ones meanwhile. So a child's own pace says how many tasks it may have before it, and
the pace of each task name says which tasks may be among them. `Paces` is the table of the names; `claim.py` and
`dispatch.py` ask it, and `kept` decides for both.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TypeGuard

SHORT_MS = 5.0  # tasks up to this long are short enough to run ahead of
MAX_AHEAD = 400  # never more tasks ahead of one child, however short they are
MAX_FED = 64  # never more tasks inside one child, because they are hard to take back
FEED_MS = 2.0  # so many milliseconds of work lie inside the child

MAX_NAMES = 1000
LONGEST_MS = 40.0  # a longer run counts as this long, so that one that was held up does not make its name long
RISE, FALL = 0.1, 0.3  # the weight of a run that is longer, or shorter, than those before it
TOLERANCE = 4  # what was claimed goes back only if it is so many times too much

LONG_S = 0.1  # no task waits behind one that has run this long
LONGEST_S = 0.3  # also where the machine is so busy that a short task may take as long as that
BUSY_FACTOR = 8

MOST_OWED = 2_000  # a share of so many tasks at most is made up for
EPSILON = 1e-6

EARNED = 16  # so many short tasks must come in a row before there is run-ahead again
GROWTH = 2
MOST_EARNED = 10_000


@dataclass(slots=True)
class NamePace:
    """How long the tasks of one name take, in milliseconds."""

    mean_ms: float
    least_ms: float  # of its quick runs: it falls at once and rises slowly

    def note(self, run_ms: float) -> None:
        run_ms = min(run_ms, LONGEST_MS)
        self.mean_ms += (RISE if run_ms > self.mean_ms else FALL) * (run_ms - self.mean_ms)
        self.least_ms = run_ms if run_ms < self.least_ms else self.least_ms + RISE * (run_ms - self.least_ms)


class Paces:
    """The recent paces by task name, for at most `MAX_NAMES` names. An unknown name is not short."""

    def __init__(self) -> None:
        self._paces: dict[str, NamePace] = {}

    def note(self, name: str, run_ms: float) -> bool:
        """A task of this name took so long, or has taken so long already. Return whether the name was short until
        now, and is not any more."""
        found = self._paces.get(name)
        if found is None:
            if len(self._paces) >= MAX_NAMES:
                del self._paces[next(iter(self._paces))]
            run_ms = min(run_ms, LONGEST_MS)
            self._paces[name] = NamePace(run_ms, run_ms)
            return False
        was_short = found.mean_ms <= SHORT_MS
        found.note(run_ms)
        return was_short and found.mean_ms > SHORT_MS

    def of(self, name: str) -> NamePace | None:
        return self._paces.get(name)

    def is_short(self, name: str) -> bool:
        found = self._paces.get(name)
        return found is not None and found.mean_ms <= SHORT_MS


def pace(previous: float | None, sample_ms: float) -> float:
    """How long a child's recent tasks take: it rises at once and falls slowly, so that one long task ends run-ahead."""
    return sample_ms if previous is None else max(sample_ms, 0.7 * previous + 0.3 * sample_ms)


def is_short(pace_ms: float | None) -> TypeGuard[float]:
    """Whether the recent tasks of a child are so short that commits limit its speed."""
    return pace_ms is not None and pace_ms <= SHORT_MS


def ahead_limit(pace_ms: float | None, run_ahead_ms: int) -> int:
    """How many tasks may wait for a child in addition to the one it runs: about `run_ahead_ms` of short work."""
    if run_ahead_ms <= 0 or not is_short(pace_ms):
        return 0
    return min(MAX_AHEAD, int(run_ahead_ms / max(pace_ms, 0.01)))


def feed_limit(pace_ms: float | None, concurrency: int) -> int:
    """How many tasks may be inside the child at once."""
    if not is_short(pace_ms):
        return concurrency
    return concurrency + max(1, min(MAX_FED, int(FEED_MS / max(pace_ms, 0.01))))


def patience_s(late_s: float) -> float:
    """How long a task may run before those behind it are taken back, if our own timers are so late: where the machine
    is busy, a short task may wait long for a processor."""
    return min(LONGEST_S, LONG_S + BUSY_FACTOR * late_s)


def task_bytes(previous: float, sample: float) -> float:
    """How many bytes the arguments of a task have, as they came lately: it rises at once and falls slowly."""
    return max(sample, (previous + sample) / 2)


def rows_for(free_bytes: int, each: float) -> int:
    """How many tasks to ask for, if there is room for so many bytes: more than probably fit, but not many more."""
    return 1 + int(2 * max(0, free_bytes) / max(each, 1.0))


class Shares:
    """Which queues go first in the next claim, so that each gets its share of what is claimed, whatever its priority
    (W-22b). A queue earns credit with every task that is claimed, and pays with those that are claimed from it."""

    def __init__(self, shares: Mapping[str, float]) -> None:
        self._shares = shares
        self._credits = dict.fromkeys(shares, 0.0)

    def __bool__(self) -> bool:
        return bool(self._shares)

    def due(self) -> dict[str, int]:
        """The queues that are owed tasks, the most first, and how many."""
        owed = {name: int(credit + EPSILON) for name, credit in self._credits.items() if credit + EPSILON >= 1}
        return dict(sorted(owed.items(), key=lambda item: -item[1]))

    def note(self, claimed: Mapping[str, int], emptied: Collection[str]) -> None:
        """So many were claimed of each queue; nothing more could be claimed from those that are `emptied`."""
        total = sum(claimed.values())
        for name, share in self._shares.items():
            if name in emptied:
                self._credits[name] = 0.0  # nothing is owed for a time without tasks
            elif total:
                credit = self._credits[name] + share * total - claimed.get(name, 0)
                self._credits[name] = min(max(0.0, credit), max(1.0, MOST_OWED * share))


def kept(paces: Iterable[NamePace | None], *, free: int, ahead: int, children: int, run_ahead_ms: int) -> int:
    """How many of these tasks, from the first on, may stay with the worker; the others return to the queue.

    As many as there are free slots stay, whatever they are. Behind them only short ones stay, and not many times more
    than `run_ahead_ms` of work for each child, together with the `ahead` tasks that wait here already.
    """
    rest = iter(paces)
    count = sum(1 for _ in islice(rest, free))
    short, total_ms = 0, 0.0
    for found in rest:
        if found is None or found.mean_ms > SHORT_MS:
            break
        short += 1
        total_ms += found.least_ms
    if short:
        most = TOLERANCE * children * ahead_limit(total_ms / short, run_ahead_ms)
        count += min(short, max(0, most - ahead))
    return count


def earned_by(earned: int, came: Iterable[NamePace | None], *, all_kept: bool) -> int:
    """How many short tasks have come from the queues in a row, after another claim. A long one, or one that had to go
    back, ends the row; one of an unknown name that found a free slot does neither."""
    if not all_kept:
        return 0
    for found in came:
        if found is not None:
            earned = 0 if found.mean_ms > SHORT_MS else min(MOST_EARNED, earned + 1)
    return earned


def earned_when_dry(earned: int) -> int:
    """The queues are empty, so others may be idle too: of what comes next, each shall get its part."""
    return min(earned, EARNED)


def allowed(ahead: int, earned: int) -> int:
    """What is left of the run-ahead of the children: a claim may bring a few times more than what came lately."""
    return 0 if earned < EARNED else min(ahead, GROWTH * earned)
