"""What the checker finds, and the small tolerances it has."""

from __future__ import annotations

from dataclasses import dataclass

TICK_S = 0.02  # two notes of one instant, taken by two processes
STOPPED_CHILD_S = 1.0  # a child that was itself stopped may run on for so long after it continues
SLACK_S = 1.0  # between a fault and what it leads to: connections that were being made, statements under way
MOST_RECOVERIES = 5  # the default of `max_recoveries_per_task`


@dataclass(frozen=True, slots=True)
class Violation:
    """`rule` is the name of the check; `task_id` is there if it is about one task."""

    rule: str
    text: str
    task_id: str | None = None

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"
