"""Phase 6, only with `--live`: schedules that were added at run time (D-36) fit the current code, just like those of
the code. At most `MOST` of them are checked, in the order of their names; a schedule with the same name as one of the
code is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from psycopg import AsyncConnection

from horsies.core.brokers.results import describe
from horsies.core.checks.subject import Subject
from horsies.core.checks.visit import Visit, no_answer
from horsies.core.errors import HorsiesError, ValidationReport
from horsies.core.scheduler.checks import schedule_problems
from horsies.core.scheduler.stored import read, unusable
from horsies.core.store import schedules as store
from horsies.core.store.schedules import Stored
from horsies.core.types.result import Err

MOST = 10_000
PAGE = 500
_WHERE = "the schedule is in the database: app.schedules.put(...) replaces it, app.schedules.remove(...) removes it"


def stored_schedules(subject: Subject, visit: Visit) -> Iterator[HorsiesError]:
    """The errors of the stored schedules."""
    app = subject.app
    of_code = {schedule.name for schedule in app.config.schedule.schedules} if app.config.schedule else set()
    after, seen = "", 0
    while seen < MOST:
        page = visit.ask(partial(_page, after=after))
        if isinstance(page, Err):
            yield from no_answer(page)
            return
        for stored in page.value:
            if stored.name not in of_code:
                yield from _problems(subject, stored)
        seen += len(page.value)
        if len(page.value) < PAGE:
            return
        after = page.value[-1].name


def _problems(subject: Subject, stored: Stored) -> Iterator[HorsiesError]:
    report = ValidationReport(phase="a schedule")
    try:
        for error in schedule_problems(subject.app, read(stored), is_stored=True):
            report.add(error)
    except Exception as problem:  # also of the app's own models, which look at its arguments
        report.add(problem if isinstance(problem, HorsiesError) else unusable(describe(problem)))
        for finding in report:
            finding.message = f"schedule {stored.name!r}: {finding.message}"
    for finding in report:
        finding.location = None  # it is where the check was asked for
        yield finding.with_note(_WHERE)


async def _page(conn: AsyncConnection[Any], after: str) -> list[Stored]:
    return await store.definitions(conn, list(await store.marks(conn, after, PAGE)))
