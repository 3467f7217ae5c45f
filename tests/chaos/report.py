"""What is said about a round: one line if it was clean; else what was found, with the events around the task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.chaos.history import Fault, History, pid_of
from tests.chaos.violation import Violation

MOST = 10


def headline(history: History) -> str:
    statuses = Counter(task.status for task in history.tasks)
    crashed = sum(attempt.outcome == "WORKER_FAILURE" for attempt in history.attempts)
    ended = ", ".join(f"{count} {status}" for status, count in sorted(statuses.items()))
    evidence = "" if history.has_evidence else ", no evidence"
    flows = Counter(flow.status for flow in history.flows)
    workflows = ", ".join(f"{count} {status}" for status, count in sorted(flows.items()))
    return (
        f"{len(told_faults(history))} faults, {len(history.workers)} workers, {len(history.tasks)} tasks ({ended}), "
        f"{len(history.flows)} workflows ({workflows}), {len(history.runs)} runs, {crashed} crashes, "
        f"{len(history.stalls)} stalls, at rest after {history.rest_s:.0f} s{evidence}"
    )


def fault_counts(histories: list[History]) -> str:
    counts = Counter(fault.kind for history in histories for fault in told_faults(history))
    return f"{counts.total()}: " + ", ".join(f"{kind} {count}" for kind, count in counts.most_common())


def told_faults(history: History) -> list[Fault]:
    """Without the word to stop that every worker gets in the end."""
    return [fault for fault in history.faults if fault.kind != "term" or fault.pids]


def finding(history: History, violations: list[Violation], kept: Path, command: str) -> str:
    """For people: what, where, when, and how to try it again."""
    lines = [f"{len(violations)} violations; server data, logs and notes are in {kept}", f"again: {command}"]
    for violation in violations[:MOST]:
        lines += ["", str(violation)]
        if violation.task_id is not None:
            lines += [f"    {line}" for line in timeline(history, violation.task_id)]
    if len(violations) > MOST:
        lines += ["", f"and {len(violations) - MOST} more"]
    return "\n".join(lines)


def timeline(history: History, task_id: str) -> list[str]:
    """Everything about this task, and the faults that hit those who held it, in order."""
    events = [*_of_task(history, task_id), *_of_runs(history, task_id), *_of_faults(history, task_id)]
    task = history.by_id.get(task_id)
    events += _of_flow(history, task.workflow_id) if task is not None and task.workflow_id else []
    return [f"{at - history.begin:9.3f} s  {text}" for at, text in sorted(events)]


def _of_task(history: History, task_id: str) -> Iterator[tuple[float, str]]:
    for move in history.moves_of.get(task_id, []):
        process = f", process {move.pid}" if move.pid else ""
        yield (
            move.at,
            (
                f"{move.was} → {move.status}, claim {move.claim_seq} of {move.owner}{process}, "
                f"retry {move.retry_count} (by {move.by}; before: {move.was_owner})"
            ),
        )
    for attempt in history.attempts_of.get(task_id, []):
        yield (
            attempt.finished_at,
            (
                f"attempt {attempt.number} {attempt.outcome} {attempt.error_code or ''}, "
                f"will retry: {attempt.will_retry}, run {attempt.token}, {attempt.reason or ''}"
            ),
        )


def _of_flow(history: History, workflow_id: str) -> Iterator[tuple[float, str]]:
    for move in history.flow_moves:
        if move.workflow_id == workflow_id:
            what = f"workflow {workflow_id}" if move.index is None else f"node {move.index}"
            yield move.at, f"{what}: {move.was} → {move.status}"
    for control in history.controls:
        if control.workflow_id == workflow_id:
            yield control.at, f"{control.what} was asked for{'' if control.is_sure else ', and has not happened'}"


def _of_runs(history: History, task_id: str) -> Iterator[tuple[float, str]]:
    for run in history.runs_of.get(task_id, []):
        yield run.begin, f"run {run.token} begins in process {run.pid}, its claim: {run.claim}"
        yield run.last, f"run {run.token} in process {run.pid}: last sign of life, {run.how or 'no end'}"


def _of_faults(history: History, task_id: str) -> Iterator[tuple[float, str]]:
    moves = history.moves_of.get(task_id, [])
    if not moves:
        return
    owners = {pid_of(move.owner) for move in moves if move.owner}
    begin, end = moves[0].at - 1.0, moves[-1].at + 10.0
    for fault in history.faults:
        if fault.begin <= end and fault.end >= begin and _concerns(fault, owners):
            where = f" of worker {fault.worker}" if fault.worker else ""
            whom = f" (processes {', '.join(map(str, sorted(fault.pids)))})" if fault.pids else ""
            yield fault.begin, f"FAULT {fault.kind}{where}{whom} {fault.note}"
            if fault.end - fault.begin > 0.01:
                yield fault.end, f"end of {fault.kind}{where}"
    for run in history.runs:
        if run.how.startswith("kills ") and int(run.how.removeprefix("kills ")) in owners:
            yield run.last, f"{run.key} in process {run.pid} {run.how}, its supervisor"
    for stall_begin, stall_end in history.stalls:
        if stall_begin <= end and stall_end >= begin:
            yield stall_begin, f"the machine gave us no time for {stall_end - stall_begin:.2f} s"


def _concerns(fault: Fault, owners: set[int]) -> bool:
    return fault.worker == 0 or fault.worker in owners
