"""The board: which schedules there are, and when each is to be looked at next (S-32)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from horsies import HourlySchedule, TaskSchedule
from horsies.core.scheduler.timetable import AT_ONCE, PAGE, DueQueue, Entry, Timetable
from horsies.core.store.schedules import ScheduleState

NOW = datetime(2026, 3, 10, 12, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def entry(name: str) -> Entry:
    return Entry(TaskSchedule(name=name, task_name="t", pattern=HourlySchedule(minute=0)))


def filled(*names: str) -> Timetable:
    board = Timetable()
    for name in names:
        board.put(entry(name))
    return board


def state(of: Entry, next_run_at: datetime | None, config_hash: str | None = None) -> ScheduleState:
    return ScheduleState(of.name, None, next_run_at, None, 0, config_hash or of.config_hash)


def taken(board: Timetable, now: datetime = NOW) -> list[str]:
    return [one.name for one in board.take_due(now)]


def test_s32_new_ones_are_looked_at_at_once_and_each_once() -> None:
    board = filled("a", "b")
    assert board.next_look == AT_ONCE
    assert taken(board) == ["a", "b"] and taken(board) == [] and board.next_look is None


def test_s32_the_longest_due_come_first() -> None:
    board = filled("a", "b", "c")
    for one, minutes in zip(board.take_due(NOW), (-1, -3, 2), strict=True):
        board.arm(one, NOW + minutes * MINUTE)
    assert board.next_look == NOW - 3 * MINUTE
    assert taken(board) == ["b", "a"] and board.next_look == NOW + 2 * MINUTE


def test_s32_what_is_armed_anew_or_dropped_does_not_come_at_its_old_time() -> None:
    board = filled("a", "b", "c")
    for one in board.take_due(NOW):
        board.arm(one, NOW - MINUTE)
    board.arm(board.entries["a"], NOW + MINUTE)
    board.drop("b")
    again = entry("c")
    board.put(again)
    assert board.take_due(NOW) == [again]
    assert board.next_look == NOW + MINUTE


def test_s39_what_is_left_for_later_comes_at_the_next_check_and_not_before() -> None:
    board = filled("a")
    (one,) = board.take_due(NOW)
    board.later(one)
    assert board.next_look is None and taken(board) == []
    board.begin_check()
    assert taken(board) == ["a"]
    board.begin_check()
    assert taken(board) == []


def test_s32_new_ones_are_read_first_then_all_in_turn() -> None:
    names = [f"s{n}" for n in range(PAGE + 5)]
    board = filled(*names)
    assert board.has_unread
    assert [*board.next_page(), *board.next_page()] == names and not board.has_unread
    assert sorted([*board.next_page(), *board.next_page()]) == sorted(names)
    assert len(board.next_page()) == PAGE, "and again"


def test_s32_a_state_of_this_configuration_says_when_to_look() -> None:
    board = filled("a", "b", "c")
    states = {name: state(one, NOW + MINUTE) for name, one in board.entries.items()}
    states["b"] = state(board.entries["b"], NOW + MINUTE, "another")
    del states["c"]
    board.note(list(board.entries), states)
    assert board.entries["a"].is_begun and taken(board) == ["b", "c"], "these have to be begun or started anew"
    assert taken(board, NOW + MINUTE) == ["a"]


def test_s32_s37_what_somebody_else_has_done_is_noticed() -> None:
    board = filled("moved", "changed", "deleted", "same", "in hand")
    for one in board.take_due(NOW):
        board.arm(one, NOW + MINUTE)
    board.entries["in hand"].at = None
    states = {name: state(one, NOW + MINUTE) for name, one in board.entries.items()}
    states["moved"] = state(board.entries["moved"], NOW - MINUTE)
    states["changed"] = state(board.entries["changed"], NOW + MINUTE, "another")
    del states["deleted"]
    board.note([*states, "deleted"], states)
    assert sorted(taken(board)) == ["changed", "deleted", "moved"]
    assert taken(board, NOW + MINUTE) == ["same"]


def test_s36_s39_what_has_come_due_goes_before_what_catches_up_and_what_failed_goes_alone() -> None:
    line = DueQueue()
    old, due, failed = entry("old"), entry("due"), entry("failed")
    failed.failures = 1
    line.add_again(old)
    line.add([failed, due])
    assert [line.next_batch(2), line.next_batch(2), bool(line)] == [[due, old], [failed], False]
    line.add_again(old)
    line.add([failed])
    assert line.clear() == [failed, old] and line.next_batch(2) == []


def test_s32_schedules_that_are_moved_again_and_again_do_not_pile_up() -> None:
    board = filled("a")
    (one,) = board.take_due(NOW)
    for n in range(10 * PAGE):
        board.arm(one, NOW + n * MINUTE)
    assert len(board._heap) < 2 * PAGE
    assert taken(board, NOW + 10 * PAGE * MINUTE) == ["a"]
