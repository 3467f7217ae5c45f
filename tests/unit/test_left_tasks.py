"""What a worker leaves to others, without a database: which claimed tasks go back, and for how long names are left."""

from __future__ import annotations

from horsies.core.store import tasks
from horsies.core.store.names import Stretch
from horsies.core.store.tasks import Claimed
from horsies.core.tasks.moves import Claim, Complete, Fail, Leave
from horsies.core.worker.left_tasks import LEAVE_S, STAY_S, UNREADABLE_IN_A_ROW, LeftTasks, are_out_of_reach
from tests.each import each


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def claimed(name: str, child: int | None = 1) -> Claimed:
    return Claimed(1, 100, None, name, 1, name, "default", None, None, None, 0, 0, False, None, child=child)


def left_by(*known: str) -> tuple[LeftTasks, Clock]:
    clock, names = Clock(), frozenset(known)
    return LeftTasks(lambda: names, clock), clock


LEAVE = Leave(Claim("t", 1), 60.0, Fail(Claim("t", 1), "{}", None))


def test_w29a_unknown_tasks_go_back_without_their_seat_and_claims_leave_them_out_for_a_while() -> None:
    left, clock = left_by("a", "b")
    assert left.ours_first([claimed("a"), claimed("b")]) == ([claimed("a"), claimed("b")], 2)
    assert not left.is_on and left.names is None
    rows, ours = left.ours_first([claimed("x"), claimed("a"), claimed("y")])
    assert ([(row.task_name, row.child) for row in rows], ours) == ([("a", 1), ("x", None), ("y", None)], 1)
    assert left.is_on and left.names is not None and set(left.names) == {"x", "y"}
    clock.now += STAY_S
    assert not left.is_on


def test_o31_without_a_grace_everything_is_taken() -> None:
    left = LeftTasks(lambda: None)
    assert left.ours_first([claimed("x")]) == ([claimed("x")], 1)
    assert not left.is_on


def test_o32_a_name_that_cannot_be_read_again_and_again_is_left_for_growing_times() -> None:
    left, clock = left_by("greet", "a")
    for pause_s in (*LEAVE_S, LEAVE_S[-1]):
        for _ in range(UNREADABLE_IN_A_ROW):
            assert "greet" in left._ours()
            left.ended("greet", LEAVE)
        assert left.is_on and "greet" not in left._ours() and left.names == ["greet"]
        clock.now += pause_s
    assert "greet" in left._ours()
    left.ended("greet", Complete(Claim("t", 1), "{}"))
    left.ended("greet", LEAVE)
    assert "greet" in left._ours(), "one that was read begins the row anew"


def a_stretch(priority: int, size: int, first: int | None, queue: str = "default") -> Stretch:
    return Stretch(queue, priority, size, first, None, ("2026-01-01", "a"), (), None)


@each(
    ("found", "are_out"),
    [
        ([], False),
        ([a_stretch(1, 4, None)], False),
        ([a_stretch(1, 4, None), a_stretch(2, 1, 1)], False),
        ([a_stretch(1, 5, None)], True),
        ([a_stretch(1, 500, 5)], False),
        ([a_stretch(1, 500, 6)], True),
        ([a_stretch(2, 9, 4), a_stretch(1, 2, None)], True),
        ([a_stretch(1, 2, 1), a_stretch(2, 500, None)], False),
        ([a_stretch(1, 2, 1), a_stretch(1, 5, None, "other")], True),
    ],
)
def test_w30a_a_claim_does_not_come_to_tasks_behind_as_many_others_as_it_reads(
    found: list[Stretch], are_out: bool
) -> None:
    order = tasks.ClaimOrder(["default", "other"], [5, 5], [None, None], 5, 0, None, True, ["light"], concurrency=9)
    assert are_out_of_reach(order, found) is are_out
