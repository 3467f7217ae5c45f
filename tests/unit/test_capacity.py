"""How much is claimed, and how far ahead a worker runs: plain arithmetic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from horsies.core.store.tasks import Claimed
from horsies.core.worker.in_hand import InHand, Limits
from horsies.core.worker.pace import (
    MAX_AHEAD,
    MAX_FED,
    QUIET_S,
    Holding,
    Kinds,
    ahead_limit,
    feed_limit,
    orders,
    pace,
    task_bytes,
)
from tests.each import each


def limits(**changes: Any) -> Limits:
    base = Limits([("default", None)], None, 0, 0, 0, 20, 1)
    return replace(base, **changes)


def holding(**changes: Any) -> Holding:
    return Holding(slots=4, held=0, claimed=0, idle_children=4, ahead=0)._replace(**changes)


def budgets(of: Limits, now: Holding) -> list[int]:
    return [order.budget for order in orders(of, now, [])]


def test_w24_hard_cap_claims_what_the_free_slots_hold() -> None:
    assert budgets(limits(), holding()) == [4]
    assert budgets(limits(), holding(held=3)) == [1]
    assert budgets(limits(), holding(held=4)) == []
    assert budgets(limits(), holding(held=9)) == []


def test_w24_soft_cap_adds_the_prefetch_buffer() -> None:
    assert budgets(limits(prefetch=3), holding(held=4, claimed=0)) == [3]
    assert budgets(limits(prefetch=3), holding(held=7, claimed=3)) == []


def test_w25_max_claim_per_worker_bounds_what_is_only_claimed() -> None:
    assert budgets(limits(max_claim_per_worker=2), holding()) == [2]
    assert budgets(limits(max_claim_per_worker=2), holding(held=2, claimed=2)) == []
    assert budgets(limits(max_claim_per_worker=2), holding(held=2, claimed=0)) == [2]


def test_w24_the_batch_limit_is_per_queue() -> None:
    (order,) = orders(limits(queues=[("a", None), ("b", None)], max_claim_batch=1), holding(), [])
    assert (order.takes, order.budget) == ([1, 1], 4)


def test_w29_a_queue_with_limit_zero_is_not_asked() -> None:
    (order,) = orders(limits(queues=[("a", 0), ("b", 2)]), holding(), [])
    assert (order.queues, order.caps) == (["b"], [2])
    assert orders(limits(queues=[("a", 0)]), holding(), []) == []


@each("changes", [{"run_ahead_ms": 0}, {"max_claim_per_worker": 4}])
def test_w25a_nothing_runs_ahead_where_it_is_switched_off(changes: dict[str, Any]) -> None:
    assert budgets(limits(**changes), holding(ahead=100)) == [4]
    assert budgets(limits(**changes), holding(ahead=100, held=4, claimed=0)) == []


def test_w25a_run_ahead_adds_to_the_slots() -> None:
    assert budgets(limits(), holding(ahead=100)) == [104]
    assert budgets(limits(), holding(ahead=100, held=100)) == [4]


@each("changes", [{"cluster_cap": 9}, {"queues": [("capped", 5), ("free", None)]}])
def test_w25a_a_claim_under_a_cap_says_what_is_run_ahead(changes: dict[str, Any]) -> None:
    """Only the database knows how far from the cap a queue is."""
    (order,) = orders(limits(**changes), holding(ahead=100), [])
    assert (order.budget, order.strict) == (104, 4)
    (order,) = orders(limits(**changes), holding(ahead=100, held=7), [])
    assert (order.budget, order.strict) == (97, 0)


def test_w25b_nothing_is_claimed_while_too_many_bytes_are_held() -> None:
    (order,) = orders(limits(), holding(free_bytes=1), [])
    assert (order.budget, order.free_bytes) == (3, 1)  # there may be a few tasks without arguments
    assert orders(limits(), holding(free_bytes=0), []) == [] == orders(limits(), holding(free_bytes=-5), [])


def test_w25b_a_pass_asks_for_about_as_many_tasks_as_fit() -> None:
    (order,) = orders(limits(), holding(ahead=900, free_bytes=10_000_000, task_bytes=1_000_000.0), [])
    assert (order.budget, order.free_bytes) == (21, 10_000_000)
    (order,) = orders(limits(), holding(ahead=900, free_bytes=1 << 40, task_bytes=100.0), [])
    assert (order.budget, order.free_bytes) == (904, 16 << 20)


@settings(deadline=None)
@given(st.lists(st.integers(0, 1 << 30), min_size=1))
def test_w25b_the_size_of_tasks_is_never_underrated_and_soon_forgotten(sizes: list[int]) -> None:
    seen = 0.0
    for size in sizes:
        seen = task_bytes(seen, size)
        assert seen >= size
    for _ in range(40):
        seen = task_bytes(seen, 1)
    assert seen < 2


def test_w30a_with_concurrency_sync_tasks_are_bounded_by_idle_children() -> None:
    now = holding(slots=8, idle_children=1, held=2)
    (order,) = orders(limits(concurrency=2), now, ["light"])
    assert (order.budget, order.sync_budget, order.async_names) == (6, 1, ["light"])


def test_w25a_the_pace_rises_at_once_and_falls_slowly() -> None:
    assert pace(None, 3.0) == 3.0
    assert pace(1.0, 100.0) == 100.0
    assert 1.0 < pace(100.0, 1.0) < 100.0


def test_w25a_long_tasks_have_nobody_behind_them() -> None:
    assert ahead_limit(None, 20) == 0
    assert ahead_limit(6.0, 20) == 0
    assert ahead_limit(1.0, 0) == 0
    assert ahead_limit(4.0, 20) == 5
    assert ahead_limit(0.001, 20) == MAX_AHEAD


def test_w25a_few_tasks_lie_inside_a_child() -> None:
    assert feed_limit(None, 1) == 1
    assert feed_limit(50.0, 3) == 3
    assert feed_limit(1.0, 1) == 3
    assert feed_limit(0.001, 1) == 1 + MAX_FED


def test_w30a_claims_are_plain_while_no_async_task_is_about() -> None:
    of = limits(top_concurrency=100)
    kinds, hand = Kinds(of), InHand()
    kinds.came(False, 0.0)
    kinds.look(hand, 0.0)
    assert of.concurrency == 1 and orders(of, holding(), ["a"])[0].concurrency == 1
    kinds.came(True, 1.0)
    kinds.look(hand, 1.0 + QUIET_S)
    assert of.concurrency == 100 and orders(of, holding(slots=400), ["a"])[0].budget == 400
    hand.take(Claimed(1, 100, None, "t", 1, "a", "default", None, None, None, 0, 0, False, None), is_async=True)
    kinds.look(hand, 10.0 + QUIET_S)
    assert of.concurrency == 100, "one is still running"
    hand.drop(next(iter(hand)))
    kinds.look(hand, 10.0 + QUIET_S)
    assert of.concurrency == 1


@each("concurrency", [1, 7])
def test_w30a_a_concurrency_that_was_given_stays(concurrency: int) -> None:
    of = limits(concurrency=concurrency)
    kinds = Kinds(of)
    kinds.came(True, 1.0)
    assert of.concurrency == concurrency
    kinds.look(InHand(), 100.0)
    assert of.concurrency == concurrency


def test_w30a_a_sync_task_fills_all_slots_of_its_child() -> None:
    two_children = holding(slots=8, idle_children=1, held=1, taken_whole=1)
    (order,) = orders(limits(concurrency=4), two_children, [])
    assert (order.budget, order.room, order.whole, order.concurrency) == (4, 4, 1, 4)
    assert orders(limits(concurrency=4), holding(slots=4, idle_children=0, held=1, taken_whole=1), []) == []
