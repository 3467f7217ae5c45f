"""How many tasks a worker may claim (W-24), and how far it may run ahead of its children (W-25a): plain arithmetic.

Run-ahead pays where commits take longer than the tasks. It costs nothing as long as the tasks that wait in one worker
are short; others could run longer ones meanwhile. So a child's own pace says how many tasks it may have before it, and
the pace of each task name says which tasks may be among them. `Paces` is the table of the names; `claim.py` and
`dispatch.py` ask it, and `kept` decides for both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

from horsies.core.sql import texts
from horsies.core.store import tasks
from horsies.core.worker.in_hand import InHand, Limits, Phase

if TYPE_CHECKING:
    from horsies.core.worker.children import Child

MAX_BATCH = 1000  # of one claim statement
MAX_BATCH_BYTES = 16 << 20  # the same for their arguments
FIRST_PAUSE_S = 0.02  # of a worker that finds no task

SHORT_MS = 5.0  # tasks up to this long are short enough to run ahead of
MAX_AHEAD = 400  # never more tasks ahead of one child, however short they are
MAX_FED = 128  # never more tasks inside one child, because they are hard to take back
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

QUIET_S = 5.0  # after the last async task, claims are plain again

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
        self._short_names: str | None = None

    def note(self, name: str, run_ms: float) -> bool:
        """A task of this name took so long, or has taken so long already. Return whether the name was short until
        now, and is not any more."""
        found = self._paces.get(name)
        if found is None:
            if len(self._paces) >= MAX_NAMES:
                del self._paces[next(iter(self._paces))]
            run_ms = min(run_ms, LONGEST_MS)
            self._paces[name] = NamePace(run_ms, run_ms)
            self._short_names = None
            return False
        was_short = found.mean_ms <= SHORT_MS
        found.note(run_ms)
        is_short = found.mean_ms <= SHORT_MS
        if was_short != is_short:
            self._short_names = None
        return was_short and not is_short

    def of(self, name: str) -> NamePace | None:
        return self._paces.get(name)

    @property
    def short_names(self) -> str:
        """All names that are short, as an array that can be bound."""
        if self._short_names is None:
            self._short_names = texts(name for name in self._paces if self.is_short(name))
        return self._short_names

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

    def note(self, claimed: Mapping[str, int], emptied: Collection[str], asked: Collection[str]) -> None:
        """So many were claimed of each queue that was `asked`, the others have no tasks; nothing more could be claimed
        from those that are `emptied`."""
        total = sum(claimed.values())
        for name, share in self._shares.items():
            if name in emptied or name not in asked:
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


def polling_pause(idle_s: float, longest_s: float) -> float:
    """How long to wait before the next look, if nothing but a look finds tasks: short while there is work, and then at
    most a quarter of the time for which there has been none."""
    return min(longest_s, max(FIRST_PAUSE_S, idle_s / 4))


class Kinds:
    """Sets the concurrency that was left to the worker (W-30a): the top one while async tasks are here or have come
    lately, otherwise 1. With 1, claims need not tell async tasks from sync ones, and may start tasks (W-21b)."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._last = 0.0  # when an async task came

    def came(self, is_async: bool, now: float) -> None:
        """A task has been claimed."""
        if is_async and self._limits.top_concurrency is not None:
            self._limits.concurrency, self._last = self._limits.top_concurrency, now

    def look(self, in_hand: InHand, now: float) -> None:
        """Called before every claim."""
        limits = self._limits
        is_quiet = limits.top_concurrency is not None and limits.concurrency > 1 and now - self._last > QUIET_S
        if is_quiet and not any(held.is_async for held in in_hand.held.values()):
            limits.concurrency = 1


class Holding(NamedTuple):
    """What the worker holds right now."""

    slots: int
    held: int
    claimed: int
    idle_children: int
    ahead: int  # how many more tasks than slots the children may have before them
    waiting_sync: int = 0
    taken_whole: int = 0  # children that a sync task has, or will have, to itself
    free_bytes: int = tasks.NO_LIMIT  # of arguments and results that it may keep (W-25b)
    task_bytes: float = 0.0  # what one more task brings, by those that came lately


def holding(in_hand: InHand, usable: Sequence[Child], limits: Limits, ahead: int, task_bytes: float) -> Holding:
    """What the worker holds, with these children that can be used."""
    idle = sum(1 for child in usable if child.load == 0)
    waiting_sync = taken_whole = 0
    if limits.concurrency > 1:
        waiting_sync = sum(1 for held in in_hand.waiting if not held.is_async)
        taken_whole = sum(1 for child in usable if child.has_sync) + min(idle, waiting_sync)
    only_claimed = in_hand.count(Phase.CLAIMED, Phase.STARTING) if limits.max_claim_per_worker else len(in_hand.waiting)
    return Holding(
        slots=len(usable) * limits.concurrency,
        held=len(in_hand) - (0 if ahead else _ended_but_unwritten(in_hand, usable, limits)),
        claimed=only_claimed,
        idle_children=idle,
        ahead=ahead,
        waiting_sync=waiting_sync,
        taken_whole=taken_whole,
        free_bytes=limits.max_held_bytes - in_hand.bytes,
        task_bytes=task_bytes,
    )


def _ended_but_unwritten(in_hand: InHand, usable: Sequence[Child], limits: Limits) -> int:
    """Tasks whose code has ended hold no slot. This matters where writing their ends takes longer than running them."""
    brisk = sum(limits.concurrency for child in usable if is_short(child.pace_ms))
    return min(brisk, in_hand.count(Phase.SETTLING)) if brisk else 0


def orders(limits: Limits, now: Holding, async_names: list[str]) -> list[tasks.ClaimOrder]:
    """The claim statements of one pass: what W-24 allows, and what run-ahead adds for queues that are far from a cap
    (W-25a)."""
    per_worker = (limits.max_claim_per_worker or now.slots + limits.prefetch) - now.claimed
    room = now.slots + limits.prefetch - now.held - now.taken_whole * (limits.concurrency - 1)
    strict = min(room, per_worker)
    ahead = now.ahead if limits.may_run_ahead else 0
    queues = [(name, cap) for name, cap in limits.queues if cap != 0]
    free_bytes = min(now.free_bytes, MAX_BATCH_BYTES)
    # Rows that do not fit would be locked for nothing.
    budget = min(strict + ahead, MAX_BATCH, rows_for(free_bytes, now.task_bytes))
    if budget <= 0 or free_bytes <= 0 or not queues:
        return []
    sync_budget, whole = budget, 0
    if limits.concurrency > 1:
        whole = max(0, now.idle_children - now.waiting_sync)
        sync_budget = max(0, now.idle_children - now.waiting_sync + limits.prefetch + ahead)
    order = tasks.ClaimOrder(
        queues=[name for name, _ in queues],
        takes=[min(limits.max_claim_batch or budget, budget)] * len(queues),
        caps=[cap for _, cap in queues],
        budget=budget,
        strict=max(0, strict),
        sync_budget=sync_budget,
        cluster_cap=limits.cluster_cap,
        hard=limits.hard,
        async_names=async_names,
        room=room + ahead,
        whole=whole,
        concurrency=limits.concurrency,
        free_bytes=free_bytes,
    )
    return [order]
