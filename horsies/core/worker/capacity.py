"""How much may be claimed, and how far ahead of a child the worker may run. Pure arithmetic (W-24, W-25, W-25a)."""

from collections.abc import Sequence
from typing import NamedTuple, TypeGuard

from horsies.core.store.tasks import ClaimOrder

SHORT_MS = 5.0  # tasks up to this long are short enough to run ahead of
MAX_AHEAD = 400  # never more tasks ahead of one child, however short they are
MAX_FED = 64  # never more tasks inside one child: they are hard to take back
FEED_MS = 2.0  # so many milliseconds of work lie inside the child
MAX_BATCH = 1000  # of one claim statement


class Limits(NamedTuple):
    """The limits from the configuration."""

    queues: Sequence[tuple[str, int | None]]  # name and max_concurrency, in claiming order
    cluster_cap: int | None
    prefetch: int
    max_claim_batch: int
    max_claim_per_worker: int
    run_ahead_ms: int
    concurrency: int

    @property
    def hard(self) -> bool:
        return self.prefetch == 0

    @property
    def may_run_ahead(self) -> bool:
        return self.run_ahead_ms > 0 and self.cluster_cap is None and self.max_claim_per_worker == 0

    def capped_queues(self) -> frozenset[str]:
        """The queues with a limit that is counted over several workers."""
        return frozenset(name for name, cap in self.queues if cap is not None or self.cluster_cap is not None)


class Holding(NamedTuple):
    """What the worker holds right now."""

    slots: int
    held: int
    claimed: int
    idle_children: int
    ahead: int  # how many more tasks than slots the children may have before them
    waiting_sync: int = 0
    taken_whole: int = 0  # children that a sync task has, or will have, to itself


def orders(limits: Limits, now: Holding, async_names: list[str]) -> list[ClaimOrder]:
    """The claim statements of one pass: what W-24 allows, plus what run-ahead adds for queues without any cap."""
    per_worker = (limits.max_claim_per_worker or now.slots + limits.prefetch) - now.claimed
    room = now.slots + limits.prefetch - now.held - now.taken_whole * (limits.concurrency - 1)
    strict = min(room, per_worker)
    ahead = now.ahead if limits.may_run_ahead else 0
    open_queues = [(name, cap) for name, cap in limits.queues if cap != 0]
    uncapped = [(name, cap) for name, cap in open_queues if cap is None]
    if len(uncapped) == len(open_queues):
        found = [_order(limits, now, open_queues, strict + ahead, room, ahead, async_names)]
    else:
        found = [_order(limits, now, open_queues, strict, room, 0, async_names)]
        if strict <= 0:
            found = [_order(limits, now, uncapped, strict + ahead, room, ahead, async_names)]
    return [order for order in found if order.budget > 0 and order.queues]


def _order(
    limits: Limits,
    now: Holding,
    queues: Sequence[tuple[str, int | None]],
    budget: int,
    room: int,
    ahead: int,
    async_names: list[str],
) -> ClaimOrder:
    budget = min(budget, MAX_BATCH)
    sync_budget, whole = budget, 0
    if limits.concurrency > 1:
        whole = max(0, now.idle_children - now.waiting_sync)
        sync_budget = max(0, now.idle_children - now.waiting_sync + limits.prefetch + ahead)
    return ClaimOrder(
        queues=[name for name, _ in queues],
        takes=[min(limits.max_claim_batch or budget, budget)] * len(queues),
        caps=[cap for _, cap in queues],
        budget=budget,
        sync_budget=sync_budget,
        cluster_cap=limits.cluster_cap,
        hard=limits.hard,
        async_names=async_names,
        room=room + ahead,
        whole=whole,
        concurrency=limits.concurrency,
    )


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
