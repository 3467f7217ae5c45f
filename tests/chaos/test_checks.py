"""The checker finds what must not happen: each of these histories has one thing wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.chaos.bad_flows import FLOWS_FOUND, good_flows
from tests.chaos.checks import CHECKS, check
from tests.chaos.fabricate import C1, C2, W1, W2, Tale, completed, crashed, empty, ran_again
from tests.chaos.history import Beat, Cancelled, Fault, History, Run, Sent, Worker

Bad = Callable[[History], object]


def rules_broken(history: History) -> set[str]:
    return {violation.rule for violation in check(history)}


def good() -> History:
    """One of each that is allowed."""
    history = empty()
    completed(history)
    ran_again(history)
    Tale(history, "cancelled").start(2.0).run(2.1, 4.5, "").move(4.0, "CANCELLED")  # it may take a while to stop
    history.cancelled.append(Cancelled("id-cancelled", 4.0))
    Tale(history, "late", has_deadline=True).move(3.0, "EXPIRED")
    Tale(history, "handed back").start(2.0).move(2.5, "PENDING").start(3.0).run(3.1, 3.2, token="hb!").end(
        3.3, "COMPLETED", "COMPLETED", token="hb!"
    )
    Tale(history, "taken over").move(2.0, "CLAIMED", owner=W1).move(9.0, "CLAIMED", owner=W2).move(
        9.1, "RUNNING", pid=C2
    ).run(9.2, 9.3, token="to!").end(9.4, "COMPLETED", "COMPLETED", token="to!")
    Tale(history, "at once").move(2.0, "RUNNING", owner=W1, pid=C1).run(2.1, 2.2, token="ao!").end(
        2.3, "COMPLETED", "COMPLETED", token="ao!"
    )
    slow = Tale(history, "slow", "slow", retried_codes=frozenset(), max_retries=0).start(20.0).run(20.1, 21.2, "")
    slow.end(21.5, "FAILED", "FAILED", "TASK_TIMEOUT")
    flaky = Tale(history, "flaky", "flaky", retried_codes=frozenset({"FLAKY"}), max_retries=1)
    flaky.start(30.0).run(30.1, 30.2, token="f1").end(30.3, "PENDING", "FAILED", "FLAKY", "f1", charge=1)
    flaky.start(31.0).run(31.1, 31.2, token="f2").end(31.3, "FAILED", "FAILED", "FLAKY", "f2")
    crash = Tale(history, "crash", "crash", retried_codes=frozenset(), max_retries=0).start(40.0, W2, C2)
    crash.run(40.1, 40.2, "segv").end(40.3, "FAILED", "WORKER_FAILURE", "WORKER_CRASHED")
    good_flows(history)
    return history


def swept(history: History, key: str = "swept", at: float = 50.0, **end: object) -> Tale:
    """Enrolled, its worker killed, brought back without a charge."""
    history.faults.append(Fault("kill worker", at + 1, at + 1, 0, 100, frozenset({100, C1})))
    tale = Tale(history, key, "long", max_retries=0, retried_codes=frozenset())
    tale.start(at).run(at + 0.1, at + 0.9, "")
    return tale.end(at + 4, "PENDING", "WORKER_FAILURE", "WORKER_CRASHED", **{"was_enrolled": True, **end})  # type: ignore[arg-type]


def stopped_and_gone_on(history: History, seconds: float) -> None:
    """Its child is stopped at 51, fenced at 55, continued at 57 and still runs for so many seconds."""
    history.faults.append(Fault("stop child", 51.0, 57.0, 0, 100, frozenset({C1})))
    tale = Tale(history, "stopped").start(50.0).run(50.1, 57.0 + seconds, "")
    tale.end(55.0, "PENDING", "WORKER_FAILURE", "WORKER_CRASHED", charge=1)
    tale.start(56.2, W2, C2).run(56.3, 58.0, token="s!").end(58.1, "COMPLETED", "COMPLETED", token="s!")


def test_what_is_allowed_is_not_complained_about() -> None:
    history = good()
    swept(history).start(60.0, W2, C2).run(60.1, 60.2, token="sw!").end(60.3, "COMPLETED", "COMPLETED", token="sw!")
    stopped_and_gone_on(history, 0.9)
    assert check(history) == []


# What must be found, by the check that finds it.


def lost(history: History) -> None:
    history.sent.append(Sent("lost", "id-lost", 1.0))


def sent_twice(history: History) -> None:
    history.tasks.append(replace(history.by_key["done"], id="another"))


def stuck(history: History) -> None:
    Tale(history, "stuck").start(2.0)


def claimed_in_the_end(history: History) -> None:
    history.tasks[0] = replace(history.tasks[0], is_claimed=True)


def rose_from_the_dead(history: History) -> None:
    completed(history, "risen").move(5.0, "PENDING").move(6.0, "CANCELLED")
    history.cancelled.append(Cancelled("id-risen", 6.0))


def two_owners_of_one_claim(history: History) -> None:
    Tale(history, "shared").move(2.0, "CLAIMED", owner=W1).move(2.1, "RUNNING", owner=W2, pid=C2).move(3.0, "CANCELLED")
    history.cancelled.append(Cancelled("id-shared", 3.0))


def start_without_a_claim(history: History) -> None:
    Tale(history, "unclaimed").move(2.0, "RUNNING", owner=W1, pid=C1, claim_seq=0).move(3.0, "CANCELLED")
    history.cancelled.append(Cancelled("id-unclaimed", 3.0))


def start_without_an_owner(history: History) -> None:
    Tale(history, "nobody").move(2.0, "RUNNING", pid=C1).move(3.0, "CANCELLED")
    history.cancelled.append(Cancelled("id-nobody", 3.0))


def claim_without_a_number(history: History) -> None:
    tale = Tale(history, "same").move(2.0, "CLAIMED", owner=W1, claim_seq=0)
    tale.move(3.0, "CANCELLED")
    history.cancelled.append(Cancelled("id-same", 3.0))


def changed_behind_the_scenes(history: History) -> None:
    completed(history, "secret")
    history.tasks[-1] = replace(history.tasks[-1], claim_seq=7)


def gap_in_the_moves(history: History) -> None:
    Tale(history, "gap").move(2.0, "CANCELLED", was_owner=W1)
    history.cancelled.append(Cancelled("id-gap", 2.0))


def uncancelled(history: History) -> None:
    history.cancelled.append(Cancelled("id-done", 2.0))


def cancelled_by_nobody(history: History) -> None:
    Tale(history, "unasked").move(2.0, "CANCELLED")


def expired_without_deadline(history: History) -> None:
    Tale(history, "early").move(2.0, "EXPIRED")


def foreign_error(history: History) -> None:
    tale = Tale(history, "odd", retried_codes=frozenset()).start(2.0).run(2.1, 2.2, token="o!")
    tale.end(2.3, "FAILED", "FAILED", "FLAKY", "o!")


def impossible_success(history: History) -> None:
    tale = Tale(history, "lucky", "crash").start(2.0).run(2.1, 2.2, token="l!")
    tale.end(2.3, "COMPLETED", "COMPLETED", token="l!")


def no_attempt_row(history: History) -> None:
    del history.attempts[0]


def attempt_of_nothing(history: History) -> None:
    history.attempts.append(replace(history.attempts[0], number=2, finished_at=77.0))


def attempt_of_a_cancelled_run(history: History) -> None:
    tale = Tale(history, "both").start(2.0).run(2.1, 2.2)
    tale.end(2.3, "CANCELLED", "WORKER_FAILURE", "WORKER_CRASHED")
    history.cancelled.append(Cancelled("id-both", 2.3))
    history.faults.append(Fault("kill child", 2.2, 2.2, 0, 100, frozenset({C1})))


def attempt_numbers_repeat(history: History) -> None:
    ran_again(history, "twice")
    history.attempts[-1] = replace(history.attempts[-1], number=1)


def attempt_of_another_process(history: History) -> None:
    history.attempts[0] = replace(history.attempts[0], pid=999)


def another_code(history: History) -> None:
    place = next(place for place, task in enumerate(history.tasks) if task.key == "flaky")
    history.tasks[place] = replace(history.tasks[place], error_code="WORKER_CRASHED")


def retried_against_its_policy(history: History) -> None:
    crashed(history, "eager")
    history.tasks[-1] = replace(history.tasks[-1], retried_codes=frozenset())


def retried_too_often(history: History) -> None:
    tale = crashed(history, "often")
    tale.facts["max_retries"] = 0
    tale.move(9.0, "CANCELLED")
    history.cancelled.append(Cancelled(tale.id, 9.0))


def gave_up_early(history: History) -> None:
    history.faults.append(Fault("kill child", 5.0, 5.0, 0, 100, frozenset({C1})))
    tale = Tale(history, "faint").start(4.0).run(4.1, 4.9, "")
    tale.end(5.1, "FAILED", "WORKER_FAILURE", "WORKER_CRASHED")


def came_back_free_of_charge(history: History) -> None:
    finish(swept(history, was_enrolled=False))


def counter_went_down(history: History) -> None:
    finish(swept(history, retry_count=2))


def came_back_for_ever(history: History) -> None:
    tale = Tale(history, "worn", "long", max_retries=0, retried_codes=frozenset())
    for at in range(50, 74, 4):
        history.faults.append(Fault("stop worker", at + 1.0, at + 1.5, 0, 100, frozenset({100, C1})))
        tale.start(float(at)).run(at + 0.1, at + 0.9, "")
        tale.end(at + 2.0, "PENDING", "WORKER_FAILURE", "WORKER_CRASHED", was_enrolled=True)
    finish(tale)


def finish(tale: Tale) -> None:
    tale.move(90.0, "CANCELLED")
    tale.history.cancelled.append(Cancelled(tale.id, 90.0))


def ran_before_its_start(history: History) -> None:
    tale = Tale(history, "hasty").start(2.0).run(1.9, 2.2, token="h!")
    tale.end(2.3, "CANCELLED", None)
    history.cancelled.append(Cancelled(tale.id, 2.3))


def ran_in_another_process(history: History) -> None:
    tale = Tale(history, "elsewhere").start(2.0).run(2.1, 2.2, pid=C2)
    tale.end(2.3, "CANCELLED", None)
    history.cancelled.append(Cancelled(tale.id, 2.3))


def ran_twice_for_one_claim(history: History) -> None:
    completed(history, "double")
    history.runs.append(replace(history.runs[-1], token="double!!", begin=2.5, last=2.9))


def ran_without_a_row(history: History) -> None:
    history.runs.append(Run("ghost!", "ghost", "short", C1, 2.0, 2.1, "returned"))


def ran_under_another_claim(history: History) -> None:
    completed(history, "mixed")
    history.runs[-1] = replace(history.runs[-1], claim=(4, W2))


def handed_back_after_it_ran(history: History) -> None:
    tale = Tale(history, "not so").start(2.0).run(2.1, 2.2, "").move(2.5, "PENDING")
    tale.start(3.0).run(3.1, 3.2, token="ns!").end(3.3, "COMPLETED", "COMPLETED", token="ns!")


def result_of_the_first_claim_for_the_second(history: History) -> None:
    tale = crashed(history, "late result")
    history.runs[-1] = replace(history.runs[-1], how="returned", token="old!")
    tale.start(6.2, W2, C2).run(6.3, 7.0, "").end(7.1, "COMPLETED", "COMPLETED", token="old!")


def result_of_nobody(history: History) -> None:
    completed(history, "orphan")
    history.runs.pop()


def result_of_a_run_that_did_not_end(history: History) -> None:
    completed(history, "unfinished")
    history.runs[-1] = replace(history.runs[-1], how="")


def success_without_a_result(history: History) -> None:
    Tale(history, "mute").start(2.0).run(2.1, 2.2).end(2.3, "COMPLETED", "COMPLETED")


def one_result_twice(history: History) -> None:
    tale = Tale(history, "echo", "flaky", retried_codes=frozenset({"FLAKY"}), max_retries=1)
    tale.start(30.0).run(30.1, 30.2, token="e1").end(30.3, "PENDING", "FAILED", "FLAKY", "e1", charge=1)
    tale.start(31.0).run(31.1, 31.2, token="e2").end(31.3, "FAILED", "FAILED", "FLAKY", "e1")


def ran_on_after_its_fence(history: History) -> None:
    """The parent alone was stopped: its children have to end before others take over."""
    history.faults.append(Fault("stop supervisor", 51.0, 57.0, 0, 100, frozenset({100})))
    tale = Tale(history, "stubborn").start(50.0).run(50.1, 57.5, "")
    finish(tale.end(55.0, "PENDING", "WORKER_FAILURE", "WORKER_CRASHED", charge=1))


def stopped_child_ran_on_too_long(history: History) -> None:
    stopped_and_gone_on(history, 1.1)


def heartbeat_of_a_stranger(history: History) -> None:
    history.beats.append(Beat("id-done", "runner", f"{W2}/{C2}", 2.5))


def heartbeat_after_the_fence(history: History) -> None:
    history.beats.extend(Beat("id-again", "runner", f"{W1}/{C1}", at) for at in (4.5, 7.5))


def taken_for_dead(history: History) -> None:
    tale = Tale(history, "alive").start(70.0).run(70.1, 70.9, "")
    finish(tale.end(72.0, "PENDING", "WORKER_FAILURE", "WORKER_CRASHED", charge=1))


def taken_for_dead_after_a_lost_session(history: History) -> None:
    taken_for_dead(history)
    history.faults.append(Fault("cut sessions", 71.0, 71.0))


def sibling_disturbed(history: History) -> None:
    taken_for_dead(history)
    history.faults.append(Fault("kill child", 71.0, 71.0, 0, 100, frozenset({112})))


def enrolled_task_failed_with_its_worker(history: History) -> None:
    history.faults.append(Fault("kill worker", 51.0, 51.0, 0, 100, frozenset({100, C1})))
    tale = Tale(history, "dropped", "long", max_retries=0, retried_codes=frozenset())
    tale.start(50.0).run(50.1, 50.9, "")
    tale.end(54.0, "FAILED", "WORKER_FAILURE", "WORKER_CRASHED", was_enrolled=True)


def orphans(history: History) -> None:
    history.workers.append(Worker(0, 300, "quick", 0.0, 50.0, -9, orphans_s=2.0))
    history.faults.append(Fault("kill supervisor", 50.0, 50.0, 0, 300, frozenset({300})))


def worker_gave_up(history: History) -> None:
    history.workers.append(Worker(0, 300, "quick", 0.0, 50.0, 1))


def worker_gave_up_for_a_child(history: History) -> None:
    """It had said that it was ready: then the death of a child is no reason to end."""
    history.workers.append(Worker(0, 300, "quick", 0.0, 50.0, 1))
    history.faults.append(Fault("kill child", 49.9, 49.9, 0, 300, frozenset({301})))


def worker_died_of_a_polite_word(history: History) -> None:
    history.workers[0] = replace(history.workers[0], returncode=-6)


def worker_that_does_not_end(history: History) -> None:
    history.workers[0] = replace(history.workers[0], end=None, returncode=None)


def registered_for_ever(history: History) -> None:
    history.registered.append(W1)


def process_left(history: History) -> None:
    history.leftovers.append("111 python")


def deadlock(history: History) -> None:
    history.complaints.append("ERROR: deadlock detected")


FOUND: list[tuple[str, Bad]] = [
    ("sent once, ended once", lost),
    ("sent once, ended once", sent_twice),
    ("sent once, ended once", stuck),
    ("sent once, ended once", claimed_in_the_end),
    ("legal moves", rose_from_the_dead),
    ("legal moves", two_owners_of_one_claim),
    ("legal moves", claim_without_a_number),
    ("legal moves", start_without_a_claim),
    ("legal moves", start_without_an_owner),
    ("legal moves", changed_behind_the_scenes),
    ("legal moves", gap_in_the_moves),
    ("possible ends", uncancelled),
    ("possible ends", cancelled_by_nobody),
    ("possible ends", expired_without_deadline),
    ("possible ends", foreign_error),
    ("possible ends", impossible_success),
    ("one attempt row for each end", no_attempt_row),
    ("one attempt row for each end", attempt_of_nothing),
    ("one attempt row for each end", attempt_of_a_cancelled_run),
    ("one attempt row for each end", attempt_numbers_repeat),
    ("one attempt row for each end", attempt_of_another_process),
    ("one attempt row for each end", another_code),
    ("retries", retried_against_its_policy),
    ("retries", retried_too_often),
    ("retries", gave_up_early),
    ("retries", came_back_free_of_charge),
    ("retries", counter_went_down),
    ("retries", came_back_for_ever),
    ("one run for each start", ran_before_its_start),
    ("one run for each start", ran_in_another_process),
    ("one run for each start", ran_twice_for_one_claim),
    ("one run for each start", ran_without_a_row),
    ("one run for each start", ran_under_another_claim),
    ("handed back as not started (L-13a)", handed_back_after_it_ran),
    ("no result of a fenced claim", result_of_the_first_claim_for_the_second),
    ("no result of a fenced claim", result_of_nobody),
    ("no result of a fenced claim", result_of_a_run_that_did_not_end),
    ("no result of a fenced claim", success_without_a_result),
    ("no result of a fenced claim", one_result_twice),
    ("nothing runs on after its fence", ran_on_after_its_fence),
    ("nothing runs on after its fence", stopped_child_ran_on_too_long),
    ("heartbeats of the owner only", heartbeat_of_a_stranger),
    ("heartbeats of the owner only", heartbeat_after_the_fence),
    ("no crash without a reason", taken_for_dead),
    ("no crash without a reason", taken_for_dead_after_a_lost_session),
    ("no crash without a reason", sibling_disturbed),
    ("enrolled tasks come back (R-66)", enrolled_task_failed_with_its_worker),
    ("children end with their supervisor (W-54)", orphans),
    ("workers end when they are told", worker_gave_up),
    ("workers end when they are told", worker_gave_up_for_a_child),
    ("workers end when they are told", worker_died_of_a_polite_word),
    ("workers end when they are told", worker_that_does_not_end),
    ("nothing is left", registered_for_ever),
    ("nothing is left", process_left),
    ("no deadlock, no error in a log", deadlock),
    *FLOWS_FOUND,
]


@pytest.mark.parametrize(("rule", "bad"), FOUND, ids=[bad.__name__ for _, bad in FOUND])
def test_a_violation_is_found(rule: str, bad: Bad) -> None:
    history = good()
    bad(history)
    assert rule in rules_broken(replace(history))


def test_each_check_can_find_something() -> None:
    silent = list(CHECKS)
    for _, bad in FOUND:
        history = good()
        bad(history)
        silent = [one for one in silent if not list(one(replace(history)))]
    assert [one.__name__ for one in silent] == []


@pytest.mark.parametrize("bad", [ran_on_after_its_fence, taken_for_dead])
def test_what_a_machine_without_time_did_is_not_held_against_anybody(bad: Bad) -> None:
    history = good()
    bad(history)
    history.stalls.append((50.0, 72.0))
    assert check(replace(history)) == []


def test_bad_company_explains_a_crash() -> None:
    """A neighbour on the same event loop took the child along."""
    history = good()
    taken_for_dead(history)
    bad = Tale(history, "neighbour", "crash", retried_codes=frozenset(), max_retries=0).start(71.0)
    bad.run(71.1, 71.2, "exit").end(71.3, "FAILED", "WORKER_FAILURE", "WORKER_CRASHED")
    assert check(replace(history)) == []


def test_a_task_that_kills_its_worker_explains_its_end() -> None:
    history = good()
    taken_for_dead(history)
    poison = Tale(history, "poison", "poison").start(71.0, W1, 112)
    poison.run(71.1, 71.2, "kills 100")
    finish(poison.end(73.0, "PENDING", "WORKER_FAILURE", "WORKER_CRASHED", charge=1))
    history.workers[0] = replace(history.workers[0], end=71.2, returncode=-9)
    assert check(replace(history)) == []
