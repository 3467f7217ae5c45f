"""`app.check()`: the mistakes that can be found before anything runs (M-20).

The errors of a phase are collected, and a phase with errors is the last one. Warnings stop nothing: they are reported
together with the errors, and only errors keep a worker or a scheduler from starting (M-21). Phase 1, the configuration,
is complete once the app exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from horsies.core.checks import code, live
from horsies.core.checks.code import CheckedApp
from horsies.core.errors import CheckWarning, HorsiesError, ValidationReport

if TYPE_CHECKING:
    from horsies.core.app import Horsies

Phase: TypeAlias = Callable[[CheckedApp], Iterator[HorsiesError]]


def imports_and_workflows(subject: CheckedApp) -> Iterator[HorsiesError]:
    """Phases 2, 3 and 3.1 together: what modules define when they are imported, including workflows."""
    yield from code.imports(subject)
    yield from code.definitions(subject)


def in_the_database(subject: CheckedApp) -> Iterator[HorsiesError]:
    """The rest of phase 5: what the database contains for this code."""
    with live.CheckConnection(subject.app.get_broker()) as visit:
        yield from live.stored_schedules(subject, visit)
        yield from live.waiting_tasks(subject, visit)


PHASES: tuple[Phase, ...] = (imports_and_workflows, code.builders, code.schedules)
LIVE: tuple[Phase, ...] = (live.database, in_the_database)


def check(app: Horsies, *, live: bool) -> list[HorsiesError]:
    """The errors and warnings of the app; an empty list if there are none."""
    return _run(CheckedApp(app), (*PHASES, code.advice, *(LIVE if live else ())))


def require_sound(app: Horsies) -> None:
    """Raise the errors of the app, before it is run. Warnings are left to `horsies check` (M-21)."""
    report = ValidationReport(phase="the check")
    for error in _run(CheckedApp(app), PHASES):
        report.add(error)
    report.raise_if_any()


def _run(subject: CheckedApp, phases: tuple[Phase, ...]) -> list[HorsiesError]:
    found: list[HorsiesError] = []
    for phase in phases:
        found += phase(subject)
        if any(not isinstance(error, CheckWarning) for error in found):
            break
    return found
