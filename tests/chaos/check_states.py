"""Checks of states, attempt rows and retries: what the database says happened must be what the rules allow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.chaos.history import TERMINAL, History, Move, Period, Task
from tests.chaos.kinds import ERRORS_OF
from tests.chaos.violation import MOST_RECOVERIES, Violation

ARROWS = frozenset(
    {
        (None, "PENDING"),
        ("PENDING", "CLAIMED"),
        ("CLAIMED", "CLAIMED"),
        ("CLAIMED", "RUNNING"),
        ("PENDING", "RUNNING"),
        ("CLAIMED", "PENDING"),
        ("RUNNING", "PENDING"),
        ("RUNNING", "COMPLETED"),
        ("RUNNING", "FAILED"),
        ("PENDING", "EXPIRED"),
        ("CLAIMED", "EXPIRED"),
        ("PENDING", "CANCELLED"),
        ("CLAIMED", "CANCELLED"),
        ("RUNNING", "CANCELLED"),
    }
)
# How a period may end, with which attempt row (outcome, will_retry); None is no row.
ENDS: dict[str, set[tuple[str, bool] | None]] = {
    "COMPLETED": {("COMPLETED", False)},
    "FAILED": {("FAILED", False), ("WORKER_FAILURE", False)},
    "PENDING": {None, ("FAILED", True), ("WORKER_FAILURE", True)},
    "CANCELLED": {None},
}


def every_sent_task_is_there_once_and_has_ended(history: History) -> Iterator[Violation]:
    rule = "sent once, ended once"
    rows = Counter(task.key for task in history.tasks)
    for key, count in rows.items():
        if count > 1:
            yield Violation(rule, f"{key} is in the queue {count} times", history.by_key[key].id)
    for sent in history.sent:
        task = history.by_id.get(sent.task_id)
        if task is None or task.key != sent.key:
            yield Violation(rule, f"{sent.key} was sent as {sent.task_id} and is not there")
    for task in history.tasks:
        if task.status not in TERMINAL:
            yield Violation(rule, f"{task.key} is stuck in {task.status}, held by {task.owner}", task.id)
        elif task.is_claimed:
            yield Violation(rule, f"{task.key} is {task.status} and still claimed", task.id)


def moves_are_arrows_of_the_diagram(history: History) -> Iterator[Violation]:
    rule = "legal moves"
    for task in history.tasks:
        moves = history.moves_of.get(task.id, [])
        before: Move | None = None
        for move in moves:
            if (problem := _wrong_in(move, before)) is not None:
                yield Violation(rule, f"{task.key}: {problem}", task.id)
            before = move
        if before is None or (before.status, before.claim_seq) != (task.status, task.claim_seq):
            seen = "nothing" if before is None else f"{before.status} under claim {before.claim_seq}"
            text = f"{task.key} is {task.status} under claim {task.claim_seq}, but its last move led to {seen}"
            yield Violation(rule, text, task.id)


def _wrong_in(move: Move, before: Move | None) -> str | None:
    if (move.was, move.status) not in ARROWS:
        return f"{move.was} → {move.status} is no arrow"
    known = (None, 0, None) if before is None else (before.status, before.claim_seq, before.owner)
    if known != (move.was, move.was_seq, move.was_owner):
        return f"{move.was} → {move.status} does not follow {known}"
    is_claim = move.status == "CLAIMED" or (move.was, move.status) == ("PENDING", "RUNNING")
    if move.claim_seq != move.was_seq + is_claim:
        return f"{move.was} → {move.status} took the claim from {move.was_seq} to {move.claim_seq}"
    if is_claim and move.owner is None:
        return f"{move.was} → {move.status} named no owner"
    if move.status == "RUNNING" and not is_claim and move.owner != move.was_owner:
        return f"{move.owner} started what {move.was_owner} had claimed"
    return None


def tasks_end_as_their_kind_may(history: History) -> Iterator[Violation]:
    rule = "possible ends"
    asked = {cancel.task_id for cancel in history.cancelled}
    for cancel in history.cancelled:
        task = history.by_id.get(cancel.task_id)
        if cancel.is_sure and task is not None and task.status != "CANCELLED":
            yield Violation(rule, f"{task.key} was cancelled and is {task.status}", task.id)
    for task in history.tasks:
        if task.status == "CANCELLED" and task.id not in asked and not _is_of_a_stopped_workflow(history, task):
            yield Violation(rule, f"{task.key} is CANCELLED, and nobody asked for it", task.id)
        if task.status == "EXPIRED" and not task.has_deadline:
            yield Violation(rule, f"{task.key} is EXPIRED without a deadline", task.id)
        if task.status == "COMPLETED" and ERRORS_OF[task.name].never_succeeds:
            yield Violation(rule, f"{task.key} is COMPLETED, which a {task.name} cannot be", task.id)
        if task.status == "FAILED" and task.error_code not in ERRORS_OF[task.name].codes:
            yield Violation(rule, f"{task.key} FAILED with {task.error_code}, which is no error of its", task.id)


def _is_of_a_stopped_workflow(history: History, task: Task) -> bool:
    """It was cancelled with its workflow, or when the deadline of that had passed (F-53, F-96)."""
    flow = history.flow_by_id.get(task.workflow_id or "")
    return flow is not None and flow.was_stopped


def every_end_of_a_run_has_its_attempt_row(history: History) -> Iterator[Violation]:
    rule = "one attempt row for each end"
    for task in history.tasks:
        periods = history.periods_of.get(task.id, [])
        matched = [period.attempt for period in periods if period.attempt is not None]
        rows = history.attempts_of.get(task.id, [])
        for row in rows:
            if matched.count(row) != 1:
                text = f"{task.key}: attempt {row.number} ({row.outcome}) ends no run of its worker, or several"
                yield Violation(rule, text, task.id)
        numbers = [row.number for row in rows]
        if numbers != sorted(set(numbers)) or any(number < 1 for number in numbers):
            yield Violation(rule, f"{task.key} has attempts {numbers}", task.id)
        for period in periods:
            if (problem := _wrong_at_end(period)) is not None:
                yield Violation(rule, f"{task.key}: {problem}", task.id)
        if rows and task.status == "FAILED" and rows[-1].error_code != task.error_code:
            text = f"{task.key} failed with {task.error_code}, its last attempt with {rows[-1].error_code}"
            yield Violation(rule, text, task.id)


def _wrong_at_end(period: Period) -> str | None:
    if period.end is None or period.end.status not in ENDS:
        return None  # another check's finding
    row = period.attempt
    shape = None if row is None else (row.outcome, row.will_retry)
    if shape not in ENDS[period.end.status]:
        return f"RUNNING → {period.end.status} with the attempt row {shape}"
    if row is not None and (row.started_at, row.pid) != (period.begin.stamp, period.pid):
        return f"attempt {row.number} names another start or process than the task had"
    return None


def retries_are_what_the_policy_allows(history: History) -> Iterator[Violation]:
    rule = "retries"
    for task in history.tasks:
        recoveries = 0
        for period in history.periods_of.get(task.id, []):
            if (problem := _wrong_retry(task, period, recoveries)) is not None:
                yield Violation(rule, f"{task.key}: {problem}", task.id)
            recoveries += period.attempt is not None and period.attempt.outcome == "WORKER_FAILURE"


def _wrong_retry(task: Task, period: Period, recoveries: int) -> str | None:
    move, row = period.end, period.attempt
    if move is None or row is None or row.outcome == "COMPLETED":
        return None
    is_allowed = row.error_code in task.retried_codes and move.was_retry_count < task.max_retries
    what = f"attempt {row.number} ended with {row.error_code} at retry {move.was_retry_count} of {task.max_retries}"
    if move.status == "FAILED":
        return f"{what}, a retry was allowed, and it failed" if is_allowed and not task.has_deadline else None
    charge = move.retry_count - move.was_retry_count
    if charge == 1:
        return None if is_allowed else f"{what} and was retried"
    if charge != 0 or row.outcome != "WORKER_FAILURE":
        return f"{what}, and the counter went from {move.was_retry_count} to {move.retry_count}"
    if not move.was_enrolled:
        return f"{what} and came back without a charge, though its worker was not enrolled"
    if recoveries >= MOST_RECOVERIES:
        return f"{what} and came back without a charge for the {recoveries + 1}th time"
    return None
