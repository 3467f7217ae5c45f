"""Checks that hold the faults against what happened: nobody is taken for dead without a reason, nobody outlives what he
must not, and nothing is left in the end.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.chaos.history import History, Period, Worker, pid_of
from tests.chaos.kinds import ERRORS_OF
from tests.chaos.violation import MOST_RECOVERIES, SLACK_S, Violation

ORPHANS_S = 1.0  # W-54
# They end the sessions, or some packets, of somebody who lives and must not be taken for dead.
HARMLESS = frozenset({"cut sessions"})
DEADLY = frozenset({"kill worker", "kill supervisor"})
ENDS_OF_WORKERS = DEADLY | {"term"}


def nobody_is_taken_for_dead_without_a_reason(history: History) -> Iterator[Violation]:
    for task in history.tasks:
        for period in history.periods_of.get(task.id, []):
            row = period.attempt
            if row is not None and row.outcome == "WORKER_FAILURE" and not _has_reason(history, period):
                text = f"{task.key}: attempt {row.number} in process {row.pid} of {row.owner}: {row.reason}"
                yield Violation("no crash without a reason", text, task.id)


def _has_reason(history: History, period: Period) -> bool:
    return _was_hit(history, period) or _was_in_bad_company(history, period) or _had_no_time(history, period)


def _was_hit(history: History, period: Period) -> bool:
    worker = pid_of(period.owner or "")
    for fault in history.faults:
        if fault.kind in HARMLESS or fault.begin > period.ended_at or fault.end + SLACK_S < period.begin.at:
            continue
        if fault.is_of_server or (fault.worker == worker and not fault.is_of_one_child):
            return True
        if fault.is_of_one_child and period.pid in fault.pids:
            return True
    return False


def _was_in_bad_company(history: History, period: Period) -> bool:
    """Something in the same process, perhaps itself, ended it, or had to be stopped by ending it. What kills its whole
    worker ends everybody there."""
    for run in history.runs:
        if run.begin > period.ended_at or run.last + 2 * SLACK_S < period.begin.at:
            continue
        if run.how.startswith("kills ") and int(run.how.removeprefix("kills ")) == pid_of(period.owner or ""):
            return True
        if run.pid == period.pid and run.how not in ("", "returned", "raised"):
            return True
    for others in history.periods_of.values():
        for other in others:
            if other is period or other.pid != period.pid:
                continue
            if other.begin.at > period.ended_at or other.ended_at + 10 * SLACK_S < period.begin.at:
                continue
            is_cancelled = other.end is not None and other.end.status == "CANCELLED"
            if is_cancelled or ERRORS_OF[history.by_id[other.task_id].name].stops_late:
                return True
    return False


def _had_no_time(history: History, period: Period) -> bool:
    return any(begin <= period.ended_at and period.begin.at <= end + SLACK_S for begin, end in history.stalls)


def enrolled_tasks_of_the_dead_come_back(history: History) -> Iterator[Violation]:
    """They are recovered by the sweep procedure, never failed by a faster reaper (R-66)."""
    for task in history.tasks:
        recoveries = 0
        for period in history.periods_of.get(task.id, []):
            row, end = period.attempt, period.end
            if row is None or end is None or row.outcome != "WORKER_FAILURE":
                continue
            is_lost = end.status == "FAILED" and end.was_enrolled and not task.has_deadline
            if is_lost and recoveries < MOST_RECOVERIES and _was_killed_before(history, period):
                text = f"{task.key} was enrolled, its worker {row.owner} was killed, and it FAILED: {row.reason}"
                yield Violation("enrolled tasks come back (R-66)", text, task.id)
            recoveries += 1


def _was_killed_before(history: History, period: Period) -> bool:
    """A moment before: what the worker had said last may arrive after its death."""
    return any(
        fault.kind in DEADLY
        and fault.worker == pid_of(period.owner or "")
        and period.begin.at < fault.begin < period.ended_at - SLACK_S / 2
        and not _died_before(history, period, fault.begin)
        for fault in history.faults
    )


def _died_before(history: History, period: Period, when: float) -> bool:
    """The child was lost before its worker was, which had perhaps just said so."""
    return any(run.pid == period.pid and run.how not in ("", "returned", "raised") and run.last <= when
               for run in history.runs) or any(
        fault.kind in ("kill child", "stop child", "kill fork server") and fault.begin <= when
        and (period.pid in fault.pids or fault.worker == pid_of(period.owner or ""))
        and fault.end + SLACK_S >= period.begin.at
        for fault in history.faults
    )  # fmt: skip


def children_end_with_their_supervisor(history: History) -> Iterator[Violation]:
    for worker in history.workers:
        if worker.orphans_s is None or worker.orphans_s <= ORPHANS_S + SLACK_S / 2 or _is_stopped(history, worker):
            continue
        text = f"children of worker {worker.pid}, which was killed, lived on for {worker.orphans_s:.2f} s"
        yield Violation("children end with their supervisor (W-54)", text)


def _is_stopped(history: History, worker: Worker) -> bool:
    end = worker.end or 0.0
    return any(
        fault.is_stop and fault.worker == worker.pid and fault.begin <= end <= fault.end for fault in history.faults
    ) or any(begin <= end + SLACK_S + ORPHANS_S and end <= stop for begin, stop in history.stalls)


def workers_end_only_when_told(history: History) -> Iterator[Violation]:
    rule = "workers end when they are told"
    killed = {fault.worker for fault in history.faults if fault.kind in DEADLY}
    killed |= {int(run.how.removeprefix("kills ")) for run in history.runs if run.how.startswith("kills ")}
    told = {fault.worker for fault in history.faults if fault.kind == "term"}
    for worker in history.workers:
        if worker.end is None:
            yield Violation(rule, f"worker {worker.pid} ({worker.profile}) did not end")
        elif worker.pid not in killed | told and not _lost_a_child_at_its_start(history, worker):
            yield Violation(rule, f"worker {worker.pid} ({worker.profile}) ended by itself with {worker.returncode}")
        elif worker.pid not in killed and worker.returncode not in (0, 1):
            yield Violation(rule, f"worker {worker.pid} ({worker.profile}), told to end, did with {worker.returncode}")


def _lost_a_child_at_its_start(history: History, worker: Worker) -> bool:
    """Then it cannot know whether the app can be served at all, and gives up, on a busy machine after a while."""
    return (
        worker.returncode == 1
        and not worker.was_ready
        and any(
            fault.kind in ("kill child", "kill fork server")
            and fault.worker == worker.pid
            and fault.begin <= (worker.end or 0.0)
            for fault in history.faults
        )
    )


def nothing_is_left(history: History) -> Iterator[Violation]:
    rule = "nothing is left"
    if history.has_evidence:  # otherwise the row of a dead worker that is not enrolled stays for a day
        for worker_id in history.registered:
            yield Violation(rule, f"{worker_id} is still registered")
    for process in history.leftovers:
        yield Violation(rule, f"process {process} is still there")


def nobody_complained(history: History) -> Iterator[Violation]:
    for line in history.complaints:
        yield Violation("no deadlock, no error in a log", line)
