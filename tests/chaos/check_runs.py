"""Checks of what user code noted about itself against what the database says: a run needs a start, a claim has one run,
a result is accepted from the claim it was made under, and nothing runs on when its claim is lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.chaos.history import Attempt, History, Move, Period, Run
from tests.chaos.kinds import WITHOUT_RUN
from tests.chaos.violation import SLACK_S, STOPPED_CHILD_S, TICK_S, Violation


def code_runs_once_for_each_start(history: History) -> Iterator[Violation]:
    """User code runs only after RUNNING is committed under its claim, and once for each claim."""
    rule = "one run for each start"
    runs_in: Counter[tuple[str, int]] = Counter()
    for run in history.runs:
        task = history.by_key.get(run.key)
        if task is None:
            yield Violation(rule, f"{run.key} ran in process {run.pid} and is no task")
            continue
        period = history.period_of.get(run.token)
        if period is None:
            yield Violation(rule, f"{run.key} ran in process {run.pid} without having been started there", task.id)
            continue
        runs_in[task.id, period.begin.number] += 1
        if run.claim is not None and run.claim != (period.begin.claim_seq, period.owner):
            text = f"{run.key}, started under claim {period.begin.claim_seq} of {period.owner}, ran under {run.claim}"
            yield Violation(rule, text, task.id)
    for (task_id, _), count in runs_in.items():
        if count > 1:
            yield Violation(rule, f"{history.by_id[task_id].key} ran {count} times for one claim", task_id)


def what_was_handed_back_has_not_run(history: History) -> Iterator[Violation]:
    for task_id, periods in history.periods_of.items():
        for period in periods:
            run = history.run_in(period) if period.was_handed_back else None
            if run is not None:
                text = f"{run.key} went back to the queue as not started, and had run in process {run.pid}"
                yield Violation("handed back as not started (L-13a)", text, task_id)


def results_are_accepted_from_the_claim_that_made_them(history: History) -> Iterator[Violation]:
    rule = "no result of a fenced claim"
    accepted: Counter[str] = Counter()
    for task_id, periods in history.periods_of.items():
        for period in periods:
            row = period.attempt
            if row is None or row.outcome == "WORKER_FAILURE":
                continue
            if row.token is not None:
                accepted[row.token] += 1
            if (problem := _wrong_result(history, period, row)) is not None:
                yield Violation(rule, f"{_name(history, task_id)}, attempt {row.number}: {problem}", task_id)
    for token, count in accepted.items():
        if count > 1:
            yield Violation(rule, f"the result of run {token} was accepted {count} times")


def _wrong_result(history: History, period: Period, row: Attempt) -> str | None:
    if row.token is None:
        return None if row.error_code in WITHOUT_RUN else f"{row.outcome} with {row.error_code}, which no run has said"
    run = history.by_token.get(row.token)
    if run is None:
        return f"its result names run {row.token}, and nobody ran under that name"
    made_in = history.period_of.get(run.token)
    if made_in is not period:
        claim = "no start" if made_in is None else f"claim {made_in.begin.claim_seq} of {made_in.owner}"
        return f"accepted under claim {period.begin.claim_seq} of {period.owner}, made under {claim}"
    if run.how not in ("returned", "raised"):
        return f"its result names run {run.token}, which did not come to its end"
    return None


def nothing_runs_on_after_its_fence(history: History) -> Iterator[Violation]:
    """When a claim ends, its code has ended. Who was itself stopped meanwhile may run on for a moment, and what was
    cancelled is stopped only then."""
    for task_id, runs in history.runs_of.items():
        for run in runs:
            period = history.period_of.get(run.token)
            if period is None or run.last <= period.ended_at + TICK_S or _may_run_on(history, run, period):
                continue
            others = [one.pid for one in runs if one is not run and run.begin < one.begin < run.last]
            text = (
                f"{run.key} was alive in process {run.pid} {run.last - period.ended_at:.2f} s after its claim had ended"
            )
            if others:
                text += f", while it ran again in process {', '.join(map(str, others))}"
            yield Violation("nothing runs on after its fence", text, task_id)


def _may_run_on(history: History, run: Run, period: Period) -> bool:
    if period.end is not None and period.end.status == "CANCELLED":
        return True
    was_stopped = any(
        fault.is_stop
        and run.pid in fault.pids
        and fault.begin <= period.ended_at
        and run.last <= fault.end + STOPPED_CHILD_S
        for fault in history.faults
    )
    return was_stopped or any(begin <= run.last and period.ended_at <= end for begin, end in history.stalls)


def only_owners_give_signs_of_life(history: History) -> Iterator[Violation]:
    """A heartbeat is written only under the claim it is about (R-11)."""
    for beat in history.beats:
        sender = beat.sender.partition("/")[0]
        held = [
            (move.at, after.at if after else float("inf"))
            for move, after in _with_next(history.moves_of.get(beat.task_id, []))
            if move.owner == sender and move.status in ("CLAIMED", "RUNNING")
        ]
        if not any(begin - SLACK_S <= beat.at <= end + SLACK_S for begin, end in held):
            text = f"{_name(history, beat.task_id)}: a {beat.role} heartbeat of {beat.sender}, which did not hold it"
            yield Violation("heartbeats of the owner only", text, beat.task_id)


def _with_next(moves: list[Move]) -> Iterator[tuple[Move, Move | None]]:
    return iter(zip(moves, [*moves[1:], None], strict=True)) if moves else iter(())


def _name(history: History, task_id: str) -> str:
    task = history.by_id.get(task_id)
    return task.key if task is not None else task_id
