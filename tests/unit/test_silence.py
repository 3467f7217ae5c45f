"""When code has to end because the database is silent, and when others may be judged by their silence (R-101, R-23)."""

from __future__ import annotations

from datetime import timedelta

from horsies import RecoveryConfig, WorkerRecoveryConfig
from horsies.core.worker import fence
from horsies.core.worker.fence import Ahead, Pulse, Terms, end_of_time, may_run_until, step
from tests.each import each

OFF = WorkerRecoveryConfig()
TASK = Terms(running_s=300)
ENROLLED = Terms(running_s=300, sweep_s=100)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_r101_while_signs_of_life_fail_code_ends_at_three_quarters_of_the_way() -> None:
    assert end_of_time(10, 0, TASK, is_failing=True) == 10 + 225


def test_r101_while_the_database_answers_who_is_not_vouched_for_has_the_whole_threshold() -> None:
    assert end_of_time(10, 0, TASK, is_failing=False) == 310


@each(
    ("sign", "refreshed", "end"),
    [(10, 20, 20 + 75), (10, 150, 150 + 75), (10, 160, 10 + 225), (10, 200, 10 + 225)],
)
def test_r101_an_enrolled_task_ends_before_its_worker_can_be_swept(sign: float, refreshed: float, end: float) -> None:
    """The first of two instants: the task's silence (R-12) and that of its worker (R-44)."""
    assert end_of_time(sign, refreshed, ENROLLED, is_failing=True) == end


def test_r101_a_workers_own_settings_count() -> None:
    recovery = RecoveryConfig(running_stale_threshold_ms=90_000, runner_heartbeat_interval_ms=10_000)
    assert Terms.of(recovery, OFF) == Terms(90.0, None)
    sweeping = WorkerRecoveryConfig(sweep_threshold=timedelta(seconds=70), heartbeat_interval=timedelta(seconds=5))
    assert Terms.of(recovery, sweeping) == Terms(90.0, 70.0)
    assert Terms.of(recovery, sweeping.with_enabled(False)) == Terms(90.0, None), "its tasks are not enrolled"


@each(("terms", "wait"), [(TASK, 10.0), (ENROLLED, 10.0), (Terms(2.0), 0.5), (Terms(9.0, 2.0), 0.5)])
def test_r101_a_sign_sent_half_way_is_known_to_have_failed_when_code_has_to_end(terms: Terms, wait: float) -> None:
    assert terms.patience_s == wait
    half_way = terms.shortest_s / 2
    assert half_way + terms.patience_s <= end_of_time(0, 0, terms, is_failing=True)


def test_r101_a_child_may_go_on_in_silence_no_longer_than_its_parent_would_let_it() -> None:
    assert may_run_until(20, 10, 0, TASK, is_failing=False) == 235, "the parent may be stopped at any moment"
    assert may_run_until(20, 10, 0, TASK, is_failing=True) == 235
    assert may_run_until(250, 10, 0, TASK, is_failing=True) == 235, (
        "and does not make it longer while the database is away"
    )


def test_r101_a_child_that_comes_to_life_before_the_threshold_may_go_on() -> None:
    """Nobody vouched for it, but its parent is there and the database answers: only the threshold itself ends it."""
    assert may_run_until(250, 10, 0, TASK, is_failing=False) == 310


def test_r23_nobody_is_judged_before_the_database_has_answered_for_a_while() -> None:
    assert not fence.may_judge(100, None, 60)
    assert not fence.may_judge(100, 41, 60)
    assert fence.may_judge(100, 40, 60)


def test_r23_a_while_is_two_heartbeat_intervals() -> None:
    recovery = RecoveryConfig(runner_heartbeat_interval_ms=5_000, claimer_heartbeat_interval_ms=7_000)
    assert fence.quiet_s(recovery, OFF) == 14
    sweeping = WorkerRecoveryConfig(heartbeat_interval=20)
    assert fence.quiet_s(recovery, sweeping) == 40
    assert fence.quiet_s(recovery, sweeping.with_enabled(False)) == 14, "an interval that nobody is judged by"


def test_r23_a_worker_that_lost_its_database_waits_and_a_new_one_does_not() -> None:
    clock = Clock()
    pulse = Pulse(60, clock)
    assert pulse.may_judge() and not pulse.is_failing, "it has not lost anything yet"
    pulse.failed()
    clock.now += 1000
    assert pulse.is_failing and not pulse.may_judge(), "however long it has been away"
    pulse.answered()
    clock.now += 59
    pulse.answered()
    assert not pulse.is_failing and not pulse.may_judge()
    clock.now += 1
    assert pulse.may_judge()


def test_r23_a_lost_session_of_another_kind_counts_as_well_but_shuts_nothing() -> None:
    clock = Clock()
    pulse = Pulse(60, clock)
    pulse.lost()
    assert not pulse.may_judge() and not pulse.is_failing
    clock.now += 1000
    assert not pulse.may_judge()
    pulse.back()
    assert not pulse.may_judge()
    clock.now += 60
    pulse.back()
    assert pulse.may_judge()
    pulse.failed()
    pulse.back()
    assert pulse.is_failing, "only a sign of life that succeeds ends that"


@each(
    ("before", "after", "expected"),
    [
        (Ahead(10, 11), Ahead(10.5, 12), 0.0),
        (Ahead(10, 11), Ahead(11, 30), 0.0),  # an answer that took long may explain it
        (Ahead(10, 11), Ahead(610, 611), 599.0),
        (Ahead(10, 11), Ahead(-590, -589), -599.0),
        (Ahead(10, 30), Ahead(10, 10.1), 0.0),
    ],
)
def test_r23_only_what_no_delay_explains_is_a_step_of_the_servers_clock(
    before: Ahead, after: Ahead, expected: float
) -> None:
    assert step(before, after) == expected


@each("by", [600.0, -600.0, 6.0])
def test_r23_after_a_step_of_the_servers_clock_nobody_is_judged_for_a_while(by: float) -> None:
    clock = Clock()
    pulse = Pulse(60, clock)
    pulse.saw_time(5000.0, clock.now)
    clock.now += 30
    pulse.saw_time(5030.0, clock.now - 0.5)
    assert pulse.may_judge(), "nothing was set"
    clock.now += 30
    pulse.saw_time(5060.0 + by, clock.now)
    clock.now += 59
    pulse.saw_time(5119.0 + by, clock.now)
    assert not pulse.may_judge()
    clock.now += 1
    assert pulse.may_judge()


def test_r23_a_clock_that_runs_a_little_too_fast_is_not_a_clock_that_was_set() -> None:
    clock = Clock()
    pulse = Pulse(60, clock)
    for n in range(100):
        pulse.saw_time(5000.0 + 33 * n, clock.now)
        assert pulse.may_judge()
        clock.now += 30


def test_r23_a_step_noticed_during_an_outage_does_not_end_it() -> None:
    clock = Clock()
    pulse = Pulse(60, clock)
    pulse.saw_time(5000.0, clock.now)
    pulse.failed()
    pulse.saw_time(9000.0, clock.now)
    clock.now += 1000
    assert not pulse.may_judge()
