"""`app.check()`: what can be known to be wrong before anything runs (M-20).

Errors of a phase are collected; a phase that finds some is the last. Warnings end nothing: they are told beside the
errors, and only errors keep a worker or a scheduler from starting (M-21). Phase 1, the configuration, is past once
there is an app.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from horsies.core.checks import advice, code, live
from horsies.core.checks.code import Subject
from horsies.core.errors import CheckWarning, HorsiesError, ValidationReport

if TYPE_CHECKING:
    from horsies.core.app import Horsies

Phase: TypeAlias = Callable[[Subject], Iterator[HorsiesError]]


def imports_and_workflows(subject: Subject) -> Iterator[HorsiesError]:
    """Phases 2, 3 and 3.1 together: what modules define when they are imported, workflows among it."""
    yield from code.imports(subject)
    yield from code.definitions(subject)


def in_the_database(subject: Subject) -> Iterator[HorsiesError]:
    """The rest of phase 6: what the database holds for this code."""
    with live.Visit(subject.app.get_broker()) as visit:
        yield from live.stored_schedules(subject, visit)
        yield from live.waiting_tasks(subject, visit)


PHASES: tuple[Phase, ...] = (
    imports_and_workflows,
    code.builders,
    code.undecorated,
    code.schedules,
    code.policies,
)
LIVE: tuple[Phase, ...] = (live.database, in_the_database)


def check(app: Horsies, *, live: bool) -> list[HorsiesError]:
    """What is wrong with the app, and what is doubtful; nothing if it is sound."""
    return _run(Subject(app), (*PHASES, advice.advice, *(LIVE if live else ())))


def require_sound(app: Horsies) -> None:
    """Raise what is wrong with the app. For whoever is about to run it: doubts are left to `horsies check` (M-21)."""
    report = ValidationReport(phase="the check")
    for error in _run(Subject(app), PHASES):
        report.add(error)
    report.raise_if_any()


def _run(subject: Subject, phases: tuple[Phase, ...]) -> list[HorsiesError]:
    found: list[HorsiesError] = []
    for phase in phases:
        found += phase(subject)
        if any(not isinstance(error, CheckWarning) for error in found):
            break
    return found
