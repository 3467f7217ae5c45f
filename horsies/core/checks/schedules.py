"""Phase 4: every schedule names a task, a queue and a time zone that exist, and arguments that the task accepts (S-04).
Disabled schedules are checked too, because they may be enabled again.
"""

from __future__ import annotations

from collections.abc import Iterator

from horsies.core.checks.subject import Subject
from horsies.core.errors import HorsiesError
from horsies.core.scheduler.checks import schedule_problems


def schedules(subject: Subject) -> Iterator[HorsiesError]:
    """The errors of the schedules."""
    config = subject.app.config.schedule
    for schedule in () if config is None else config.schedules:
        yield from schedule_problems(subject.app, schedule)
