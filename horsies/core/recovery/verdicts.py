"""What a sweep does with what the hooks have answered (R-50 to R-53). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from horsies.core.hooks import Decision, JobRecoveryResult, Reschedule
from horsies.core.lifecycle.recovery import Action, InFlight


class Verdict(NamedTuple):
    """What is done to some tasks; the delay counts from what the transaction calls now."""

    action: Action
    delay_s: float
    attempts: int | None = None


@dataclass(frozen=True, slots=True)
class Verdicts:
    """All of them: what is done to whom, who is left alone, and who was not asked about any more."""

    groups: dict[Verdict, list[InFlight]] = field(default_factory=dict)
    skipped: list[InFlight] = field(default_factory=list)
    unasked: list[InFlight] = field(default_factory=list)


def verdicts(
    tasks: Sequence[InFlight], decisions: Mapping[str, Decision | None], *, now: datetime, age_s: float, delay_s: float
) -> Verdicts:
    """Sort the tasks by what was decided about them. `now` is `age_s` ago: the hooks have taken that long."""
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
