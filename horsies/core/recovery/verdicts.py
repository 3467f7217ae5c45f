"""What a sweep does with the answers of the hooks (R-50 to R-53). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from horsies.core.hooks import Decision, JobRecoveryResult, Reschedule
from horsies.core.lifecycle.recovery import Action, InFlight


class Verdict(NamedTuple):
    """What happens to some tasks; the delay counts from the time of the transaction."""

    action: Action
    delay_s: float
    attempts: int | None = None


@dataclass(frozen=True, slots=True)
class Verdicts:
    """All verdicts: what happens to which tasks, which are left alone, and which were not asked about."""

    groups: dict[Verdict, list[InFlight]] = field(default_factory=dict)
    skipped: list[InFlight] = field(default_factory=list)
    unasked: list[InFlight] = field(default_factory=list)


def verdicts(
    tasks: Sequence[InFlight], decisions: Mapping[str, Decision | None], *, now: datetime, age_s: float, delay_s: float
) -> Verdicts:
    """Sort the tasks by their decisions. `now` is `age_s` ago, because the hooks took that long."""
    found = Verdicts()
    default = Verdict(Action.WORKER_DEFAULT, delay_s + age_s)
    for task in tasks:
        match decisions.get(task.task_id):
            case None:
                found.unasked.append(task)
            case JobRecoveryResult.Skip:
                found.skipped.append(task)
            case JobRecoveryResult.FailWithBackoff:
                # The delay is for one that had not started, for which this is Default.
                found.groups.setdefault(Verdict(Action.RETRY_OR_FAIL, default.delay_s), []).append(task)
            case Reschedule(run_at=run_at, attempts=attempts):
                wait_s = (run_at - now).total_seconds()
                found.groups.setdefault(Verdict(Action.RESCHEDULE, wait_s, attempts), []).append(task)
            case _:
                found.groups.setdefault(default, []).append(task)
    return found
