"""The state machine of a task, as its rules tell it: pure, without SQL, database or clock.

`World` is what should be stored. Each arrow of the state diagram is a method that makes it happen if its conditions
hold, and answers what the store should answer. A `World` is cheap to copy: its parts are never changed in place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from tests.proof.rows import CLEAR_CLAIM, CLEAR_RUN, Attempt, Budgets, Claimant, Heartbeat, Task
from tests.proof.values import Died, ErrorResult, Failed, Hold, Names, OneOf, Policy, Report, Request, Returned, When

IN_FLIGHT = ("CLAIMED", "RUNNING")
TERMINAL = ("COMPLETED", "FAILED", "CANCELLED", "EXPIRED")
# T-70: the built-in codes that occur in the stories and cannot be retried, even when they are listed.
NEVER_RETRIED = ("WORKER_RESOLUTION_ERROR", "WORKER_SERIALIZATION_ERROR", "RETURN_TYPE_MISMATCH", "TASK_EXPIRED")


class World:
    """Everything that should be stored now."""

    def __init__(self) -> None:
        self.step = 0
        self.tasks: dict[str, Task] = {}
        self.attempts: dict[str, tuple[Attempt, ...]] = {}
        self.beats: tuple[Heartbeat, ...] = ()
        self.started: frozenset[Hold] = frozenset()  # whatever was RUNNING
        self.arrows: Counter[str] = Counter()  # how often each was taken; shared by copies

    def copy(self) -> World:
        other = World()
        other.step, other.beats, other.started, other.arrows = self.step, self.beats, self.started, self.arrows
        other.tasks, other.attempts = dict(self.tasks), dict(self.attempts)
        return other

    def is_same(self, other: World) -> bool:
        mine = (self.tasks, self.attempts, self.beats, self.started)
        return mine == (other.tasks, other.attempts, other.beats, other.started)

    @property
    def now(self) -> When:
        return When(self.step)

    def _after(self, low: float, high: float | None = None) -> When:
        return When(self.step, low, low if high is None else high)

    def _move(self, arrow: str, task: Task, **columns: Any) -> None:
        self.tasks[task.request.task_id] = replace(task, **{"updated_at": self.now, **columns})
        self.arrows[arrow] += 1

    def _end(self, arrow: str, task: Task, status: str, **columns: Any) -> None:
        """To a terminal status: owner, times and process stay as evidence."""
        self._move(arrow, task, status=status, claimed=False, claim_expires_at=None, **columns)

    def holds(self, hold: Hold, *statuses: str) -> Task | None:
        """The fence: the task, if it is in one of the states under exactly this claim of this owner (L-03)."""
        task = self.tasks.get(hold.task_id)
        if task is None or task.status not in statuses or not task.claimed:
            return None
        return task if (task.claimed_by_worker_id, task.claim_seq) == (hold.owner, hold.claim_seq) else None

    # Sending

    def send(self, request: Request) -> str | None:
        """L-04. The id of the row that is this request, new or there already (T-54, T-57); None: it is another's."""
        there = self.tasks.get(request.task_id)
        if there is not None:
            return request.task_id if there.request.sha == request.sha else None
        for task in self.tasks.values():
            same_key = (task.request.wish.task_name, task.request.wish.key) == (
                request.wish.task_name,
                request.wish.key,
            )
            if request.wish.key is not None and same_key:
                return task.request.task_id if task.request.content == request.content else None
        due = (request.wish.delay or 0) - request.wish.age
        self.tasks[request.task_id] = Task(
            request,
            sent_at=When(request.step, -request.wish.age, -request.wish.age),
            enqueued_at=When(request.step, due, due, late=self.step),
            good_until=None
            if request.wish.deadline is None
            else When(request.step, request.wish.deadline, request.wish.deadline),
            max_retries=request.wish.policy.max_retries if request.wish.policy else 0,
            created_at=self.now,
            updated_at=self.now,
        )
        self.attempts[request.task_id] = ()
        self.arrows["L-04"] += 1
        return request.task_id

    # Claiming

    def claim(self, who: Claimant, budgets: Budgets, since: Mapping[str, datetime]) -> list[str]:
        """L-05 for what W-20 allows, in the order of W-22, as many as W-24 says. `since`: the stored `enqueued_at`."""
        taken: list[str] = []
        in_flight = [task for task in self.tasks.values() if task.claimed]
        for queue, cap in budgets.queues:
            held = sum(
                task.request.wish.queue_name == queue and (budgets.is_hard or task.status == "RUNNING")
                for task in in_flight
            )
            room = [budgets.local - len(taken), budgets.per_worker - len(taken)]
            room += [] if cap is None else [cap - held]
            room += [] if budgets.cluster_cap is None else [budgets.cluster_cap - len(in_flight) - len(taken)]
            room += [budgets.batch] if budgets.batch else []
            due = [i for i, task in self.tasks.items() if task.request.wish.queue_name == queue and self._is_due(task)]
            due.sort(key=lambda i: (self.tasks[i].request.wish.priority, since[i], i))
            taken += due[: max(0, min(room))]
        for task_id in taken:
            self._claim("L-05", who, self.tasks[task_id])
        return taken

    def has_due(self) -> bool:
        """Could somebody claim something now?"""
        return any(self._is_due(task) for task in self.tasks.values())

    def _is_due(self, task: Task) -> bool:
        return (
            task.status == "PENDING"
            and task.enqueued_at.is_past
            and (task.next_retry_at is None or task.next_retry_at.is_past)
            and not self._is_late(task)
        )

    def _is_late(self, task: Task) -> bool:
        return task.good_until is not None and task.good_until.is_past

    def _claim(self, arrow: str, who: Claimant, task: Task) -> None:
        self._move(
            arrow,
            task,
            status="CLAIMED",
            claimed=True,
            claimed_at=self.now,
            claimed_by_worker_id=who.owner,
            claim_expires_at=self._after(who.lease),
            claim_seq=task.claim_seq + 1,
            recovery_enrolled=who.enrolled,
            next_retry_at=None,
        )

    def lapsed(self, queues: Iterable[str]) -> set[str]:
        """The claims that anybody may take over (W-28)."""
        return {
            task_id
            for task_id, task in self.tasks.items()
            if task.status == "CLAIMED" and task.claim_expires_at is not None and task.claim_expires_at.is_past
            if task.request.wish.queue_name in queues and not self._is_late(task)
        }

    def claim_expired(self, who: Claimant, chosen: Iterable[str]) -> None:
        """L-06. Which of the lapsed ones are taken first is left open."""
        for task_id in chosen:
            self._claim("L-06", who, self.tasks[task_id])

    def renew(self, holds: Iterable[Hold], lease: float, max_age: float) -> set[str]:
        """W-27."""
        renewed = set()
        for hold in holds:
            task = self.holds(hold, "CLAIMED")
            if task is None or task.claimed_at is None or task.claimed_at.low < -max_age:
                continue
            self._touch(task, claim_expires_at=self._after(lease))
            renewed.add(hold.task_id)
        return renewed

    def heartbeat(self, beats: Iterable[tuple[Hold, bool, str, int]], hostname: str) -> set[str]:
        """R-11: the ids that are still held; a row for each of them that is vouched for (R-10)."""
        owned = set()
        for hold, is_vouched_for, sender, pid in beats:
            task = self.holds(hold, *IN_FLIGHT)
            if task is None:
                continue
            owned.add(hold.task_id)
            if is_vouched_for:
                role = "claimer" if task.status == "CLAIMED" else "runner"
                self.beats += (Heartbeat(hold.task_id, role, sender, hostname, pid),)
        return owned

    def claims_of(self, owner: str) -> set[Hold]:
        """The claims that stand in the name of this worker (W-21)."""
        mine = [task for task in self.tasks.values() if task.claimed and task.claimed_by_worker_id == owner]
        return {Hold(owner, task.request.task_id, task.claim_seq) for task in mine}

    def _touch(self, task: Task, **columns: Any) -> None:
        """Not a transition: the rules do not say whether `updated_at` changes."""
        before = task.updated_at.values if isinstance(task.updated_at, OneOf) else (task.updated_at,)
        self.tasks[task.request.task_id] = replace(task, updated_at=OneOf((*before, self.now)), **columns)

    # Running

    def is_plain(self, task_id: str) -> bool:
        """Whether nothing has happened to it yet, so that a claim may start it (W-21b)."""
        task = self.tasks[task_id]
        return task.retry_count == 0 and task.start_failures == 0 and task.failed_reason is None

    def start(self, hold: Hold, hostname: str, pid: int, name: str) -> bool:
        """L-09, after the checks of L-25."""
        task = self.holds(hold, "CLAIMED")
        if task is None or self._is_late(task):
            return False
        self._move(
            "L-09",
            task,
            status="RUNNING",
            started_at=self.now,
            worker_pid=pid,
            worker_hostname=hostname,
            worker_process_name=name,
        )
        self.started |= {hold}
        return True

    def mark_finalizing(self, holds: Iterable[Hold]) -> None:
        """L-30."""
        for hold in holds:
            task = self.holds(hold, "RUNNING")
            if task is not None:
                self._touch(task, finalizing_at=self.now)

    def end(self, hold: Hold, report: Report) -> bool:
        """A run has come to its end: L-10, L-11, L-12, L-14, L-15 or L-16, each with its attempt row (L-35)."""
        task = self.holds(hold, "RUNNING")
        if task is None:
            return False
        if isinstance(report, Returned):
            self._attempt(task, hold.owner, "COMPLETED", will_retry=False)
            evidence: dict[str, Any] = {"error_code": None, "failed_reason": None}
            self._end("L-10", task, "COMPLETED", completed_at=self.now, result=report.result, **evidence)
        else:
            self._end_badly(task, hold.owner, report)
        return True

    def _end_badly(self, task: Task, owner: str, report: Failed | Died) -> None:
        is_crash = isinstance(report, Died)
        code = report.code if isinstance(report, Failed) else "WORKER_CRASHED"
        again = self._again(task, report, code)
        reason: object = Names((report.owner, str(report.pid))) if isinstance(report, Died) else None
        if again is not None and again[0] == "L-16":
            reason = "Job recovered after worker interruption"
        error = (code, report.message if isinstance(report, Failed) else Names(()), reason)
        outcome = "WORKER_FAILURE" if is_crash else "FAILED"
        self._attempt(task, owner, outcome, again is not None, *error)
        if again is None:
            result = report.result if isinstance(report, Failed) else _crash(report)
            self._end(
                "L-15" if is_crash else "L-11",
                task,
                "FAILED",
                failed_at=self.now,
                result=result,
                error_code=code,
                failed_reason=reason,
            )
            return
        arrow, columns = again
        kept = {"failed_reason": reason} if is_crash else {}
        self._move(arrow, task, status="PENDING", **columns, **kept, **CLEAR_CLAIM, **CLEAR_RUN)

    def _again(self, task: Task, report: Failed | Died, code: str | None) -> tuple[str, dict[str, Any]] | None:
        """The arrow back to PENDING and what it sets, if there is one (T-78, R-50), before the deadline (L-22)."""
        columns: dict[str, Any]
        if isinstance(report, Died) and report.delay is not None:
            due = self._after(report.delay)
            arrow, columns = "L-16", {"enqueued_at": due, "next_retry_at": None}
        elif may_retry(task.request.wish.policy, code, task.retry_count):
            assert task.request.wish.policy is not None
            due = self._after(*task.request.wish.policy.delay(task.retry_count + 1))
            columns = {"retry_count": task.retry_count + 1, "next_retry_at": due, "enqueued_at": due}
            arrow = "L-14" if isinstance(report, Died) else "L-12"
        else:
            return None
        return None if task.good_until is not None and due.is_at_or_after(task.good_until) else (arrow, columns)

    def _attempt(
        self,
        task: Task,
        owner: str,
        outcome: str,
        will_retry: bool,
        code: str | None = None,
        message: object = None,
        reason: object = None,
    ) -> None:
        """L-35 to L-37."""
        before = self.attempts[task.request.task_id]
        number = max(task.retry_count + 1, 1 + max((a.attempt for a in before), default=0))
        process = (task.worker_hostname, task.worker_pid, task.worker_process_name)
        row = Attempt(
            number, outcome, will_retry, task.started_at, self.now, code, message, reason, owner, *process
        )  # fmt: skip
        self.attempts[task.request.task_id] = (*before, row)

    # Giving back, expiring, cancelling

    def requeue(self, hold: Hold) -> bool:
        """L-13, L-13a."""
        task = self.holds(hold, *IN_FLIGHT)
        if task is None:
            return False
        arrow = "L-13" if task.status == "CLAIMED" else "L-13a"
        self._move(arrow, task, status="PENDING", **CLEAR_CLAIM, **CLEAR_RUN)
        return True

    def expire(self, hold: Hold) -> bool:
        """L-08."""
        task = self.holds(hold, "CLAIMED")
        if task is None or not self._is_late(task):
            return False
        result = ErrorResult("TASK_EXPIRED", (("task_id", hold.task_id), ("worker_id", hold.owner)))
        self._end("L-08", task, "EXPIRED", result=result, error_code="TASK_EXPIRED")
        return True

    def expire_waiting(self, most: int, until: Mapping[str, datetime]) -> int:
        """L-07, the oldest deadline first (R-17). `until`: the stored `good_until`."""
        late = [i for i, task in self.tasks.items() if task.status == "PENDING" and self._is_late(task)]
        late.sort(key=lambda i: (until[i], i))
        for task_id in late[:most]:
            result = ErrorResult("TASK_EXPIRED")
            self._end("L-07", self.tasks[task_id], "EXPIRED", result=result, error_code="TASK_EXPIRED")
        return len(late[:most])

    def cancel(self, task_id: str, *, include_running: bool) -> str | None:
        """L-17, L-18, L-19: the status it had; None if it was not cancelled."""
        task = self.tasks.get(task_id)
        arrows = {"PENDING": "L-17", "CLAIMED": "L-18"} | ({"RUNNING": "L-19"} if include_running else {})
        if task is None or task.status not in arrows:
            return None
        result = ErrorResult("TASK_CANCELLED")
        self._end(arrows[task.status], task, "CANCELLED", result=result, error_code="TASK_CANCELLED")
        return task.status

    # Time

    def shift(self, task_id: str, seconds: float, *columns: str) -> None:
        """Time has passed for this row: these instants now lie this far from now."""
        task = self.tasks[task_id]
        instants: dict[str, Any] = {name: self._after(seconds) for name in columns}
        self.tasks[task_id] = replace(task, **instants)


def may_retry(policy: Policy | None, code: str | None, retry_count: int) -> bool:
    """T-78, but for the deadline."""
    if policy is None or code is None or code in NEVER_RETRIED:
        return False
    return code in policy.codes and retry_count < policy.max_retries


def _crash(report: Died) -> ErrorResult:
    """R-21."""
    data = (("worker_id", report.owner), ("worker_hostname", report.hostname), ("worker_pid", report.pid))
    return ErrorResult("WORKER_CRASHED", data)
