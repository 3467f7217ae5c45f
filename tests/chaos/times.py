"""How long it took until tasks were recovered, from the history alone: from the fault to the move that took the task
from whom it had hit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from tests.chaos.history import Fault, History, Move, pid_of

# What the figures are about. A default threshold is one that nobody could have waited for.
CHILD = "a child was killed"
WORKER = "a worker was killed"
WORKER_USUAL = "a worker was killed, default thresholds"
WORKER_BLIND = "a worker was killed, nobody looks for evidence"
STOPPED = "stopped or cut off past its threshold"
ORDER = (CHILD, WORKER, WORKER_USUAL, WORKER_BLIND, STOPPED)
KILLS = ("kill worker", "kill supervisor")
SILENCES = ("stop worker", "stop supervisor", "stop child", "refuse", "freeze", "deaf")


@dataclass(frozen=True, slots=True)
class Recovery:
    """One task that was in flight when this fault hit its worker. Undisturbed if no other fault of the server, and
    none of another worker, fell into the time it took."""

    what: str
    task_id: str
    seconds: float
    is_undisturbed: bool


def recoveries(history: History) -> list[Recovery]:
    return [one for fault in history.faults for one in _of(history, fault)]


def _of(history: History, fault: Fault) -> Iterator[Recovery]:
    what = _what(history, fault)
    if what is None:
        return
    for task_id, moves in history.moves_of.items():
        held, after = _around(moves, fault.begin)
        if held is None or after is None or held.status not in ("CLAIMED", "RUNNING"):
            continue
        if pid_of(held.owner or "") != fault.worker or (fault.is_of_one_child and held.pid not in fault.pids):
            continue
        if _is_recovery(held, after) and (what != STOPPED or _was_silent(history, fault, after)):
            seconds = after.at - fault.begin
            yield Recovery(what, task_id, seconds, not _is_disturbed(history, fault, after.at))


def _what(history: History, fault: Fault) -> str | None:
    if fault.kind == "kill child":
        return CHILD
    if fault.kind in SILENCES:
        return STOPPED
    if fault.kind not in KILLS:
        return None
    if not history.has_evidence:
        return WORKER_BLIND
    profile = next((life.profile for life in history.workers if life.pid == fault.worker), "")
    return WORKER_USUAL if profile.startswith("default") else WORKER


def _around(moves: list[Move], at: float) -> tuple[Move | None, Move | None]:
    """The last move before this time and the one after it."""
    before = [move for move in moves if move.at <= at]
    return (before[-1] if before else None), (moves[len(before)] if len(before) < len(moves) else None)


def _is_recovery(held: Move, after: Move) -> bool:
    """Not what the worker had said itself before it was hit, nor a cancel."""
    if after.status in ("COMPLETED", "CANCELLED", "RUNNING"):
        return False
    return after.was_owner == held.owner and after.was_seq == held.claim_seq


def _was_silent(history: History, fault: Fault, after: Move) -> bool:
    """Taken from it while the fault lasted; what it gives back itself afterwards is no recovery."""
    return fault.begin + 1.0 < after.at <= fault.end


def _is_disturbed(history: History, fault: Fault, until: float) -> bool:
    return any(
        other is not fault and (other.is_of_server or other.slot != fault.slot or other.slot is None)
        and other.begin <= until and other.end >= fault.begin
        for other in history.faults
    )  # fmt: skip


def percentile(values: list[float], share: float) -> float:
    """Nearest rank."""
    ordered = sorted(values)
    return ordered[max(0, ceil(share * len(ordered)) - 1)]


def table(found: list[Recovery]) -> list[str]:
    """Lines: what happened, how often, p50, p95 and the longest; all, and those that nothing else held up."""
    groups: dict[tuple[str, bool], list[float]] = defaultdict(list)
    for one in found:
        groups[one.what, False].append(one.seconds)
        if one.is_undisturbed:
            groups[one.what, True].append(one.seconds)
    lines = [f"{'tasks recovered after':52} {'n':>6} {'p50':>8} {'p95':>8} {'max':>8}"]
    for what in ORDER:
        for alone in (False, True):
            if seconds := groups.get((what, alone)):
                name = "  of these undisturbed" if alone else what
                figures = (percentile(seconds, 0.5), percentile(seconds, 0.95), max(seconds))
                lines.append(f"{name:52} {len(seconds):6} " + " ".join(f"{figure:6.2f} s" for figure in figures))
    return lines
