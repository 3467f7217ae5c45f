"""The shares of queues: pure arithmetic over passes (W-22b), and the orders that follow from it (W-22a)."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from horsies.core.store.tasks import Claimed, ClaimOrder
from horsies.core.worker.pace import Shares
from tests.each import each

ENDLESS = 10**9


def row(queue: str, size: int = 0, place: int = 1) -> Claimed:
    return Claimed(place, 100, None, "t", 1, "noop", queue, None, None, None, 0, 0, False, None, size=size)


def order(*queues: str, budget: int = 10, **more: Any) -> ClaimOrder:
    fields: dict[str, Any] = {
        "queues": [*queues], "takes": [budget] * len(queues), "caps": [*range(len(queues))], "budget": budget,
        "sync_budget": budget, "cluster_cap": None, "hard": True, "async_names": [], **more,
    }  # fmt: skip
    return ClaimOrder(**fields)


def answer(asked: ClaimOrder, waiting: Counter[str]) -> list[Claimed]:
    """What the claim does: queue after queue until the budget is spent."""
    rows: list[Claimed] = []
    for place, (name, take) in enumerate(zip(asked.queues, asked.takes, strict=True), start=1):
        count = min(take, waiting[name], asked.budget - len(rows))
        waiting[name] -= count
        rows += [row(name, place=place)] * count
    return rows


def run_pass(shares: Shares, waiting: Counter[str], budget: int, names: list[str]) -> Counter[str]:
    asked = order(*names, budget=budget).narrowed(names, shares.due())
    rows = answer(asked, waiting)
    shares.note(taken := Counter(one.queue_name for one in rows), asked.emptied(rows), asked.queues)
    return taken


@settings(deadline=None)
@given(
    budgets=st.lists(st.integers(1, 1_000), min_size=30, max_size=60),
    low=st.floats(0.01, 0.45),
    lower=st.floats(0.01, 0.45),
)
def test_w22b_each_queue_gets_its_share_while_it_has_tasks(budgets: list[int], low: float, lower: float) -> None:
    names = ["urgent", "low", "lower"]
    shares, waiting = Shares({"low": low, "lower": lower}), Counter(dict.fromkeys(names, ENDLESS))
    taken: Counter[str] = Counter()
    for budget in budgets:
        taken += run_pass(shares, waiting, budget, names)
    total = sum(budgets)
    assert taken.total() == total
    for name, share in (("low", low), ("lower", lower)):
        owed = (low + lower) * max(budgets) + 3  # for a large pass near the end, and rounding
        assert share * total - owed <= taken[name] <= share * total + owed


@settings(deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.floats(0.01, 1))
def test_w22b_nothing_is_owed_for_a_time_without_tasks(budgets: list[int], share: float) -> None:
    shares, waiting = Shares({"low": share}), Counter({"urgent": ENDLESS})
    for budget in budgets:
        run_pass(shares, waiting, budget, ["urgent", "low"])
    while shares.due():  # when its turn comes, it is seen to be empty
        run_pass(shares, waiting, 1, ["urgent", "low"])
        assert shares.due() == {}


def test_w22b_alone_it_gets_everything() -> None:
    shares, waiting = Shares({"low": 0.1}), Counter({"low": 100})
    taken = sum((run_pass(shares, waiting, 10, ["urgent", "low"]) for _ in range(10)), Counter())
    assert taken == {"low": 100} and shares.due() == {}


def test_w22b_a_worker_with_one_slot_gives_every_fifth_turn_to_a_share_of_a_fifth() -> None:
    shares, waiting = Shares({"low": 0.2}), Counter({"urgent": ENDLESS, "low": ENDLESS})
    turns = [next(iter(run_pass(shares, waiting, 1, ["urgent", "low"]))) for _ in range(50)]
    assert turns.count("low") in (8, 9, 10)


def test_w22a_w22b_an_order_for_some_of_its_queues() -> None:
    asked = order("a", "b", "c", "d").narrowed({"b", "c", "d"}, {"d": 3, "a": 2})
    assert (asked.queues, asked.takes, asked.caps) == (["d", "b", "c"], [3, 10, 10], [3, 1, 2])
    assert asked.is_answered_in_full([row("d")] * 3) and not asked.is_answered_in_full([row("b")] * 3)


@each(
    ("rows", "more", "emptied"),
    [
        ([], {}, {"a", "b"}),
        ([row("a")] * 9, {}, {"a", "b"}),
        ([row("a")] * 10, {}, set()),
        ([row("b", place=2)] * 10, {}, {"a"}),  # it was its turn before
        ([row("a", 60)] * 2, {"free_bytes": 100}, set()),  # there was no room for more
        ([], {"concurrency": 2}, set()),  # sync tasks may have found no idle child
    ],
)
def test_w22b_which_queues_have_certainly_no_more(rows: list[Claimed], more: dict[str, Any], emptied: set[str]) -> None:
    assert order("a", "b", **more).emptied(rows) == emptied


@each(
    ("rows", "due", "concurrency", "unclear"),
    [
        ([], {"b": 1}, 2, ["b"]),
        ([], {"b": 1}, 1, []),  # it is clear: there are none
        ([], {}, 2, []),
        ([row("a")] * 3, {"a": 3, "b": 2}, 2, ["b"]),
    ],
)
def test_w22b_which_queues_may_have_tasks_that_found_no_idle_child(
    rows: list[Claimed], due: dict[str, int], concurrency: int, unclear: list[str]
) -> None:
    asked = order("a", "b", concurrency=concurrency).narrowed(["a", "b"], due)
    assert asked.unclear(rows, due) == unclear


def test_w22b_a_queue_that_is_not_asked_because_it_is_empty_earns_nothing() -> None:
    """Of very many queues, only those in which tasks wait are asked (W-22a)."""
    shares = Shares({"low": 0.5})
    for _ in range(100):
        shares.note({"high": 10}, (), ["high"])
    assert shares.due() == {}
    shares.note({"high": 10}, (), ["high", "low"])
    assert shares.due() == {"low": 5}
