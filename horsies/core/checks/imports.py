"""Phase 2: every discovered module can be imported, and every task's types can be resolved."""

from __future__ import annotations

from collections.abc import Iterator

from horsies.core.checks.subject import Subject
from horsies.core.errors import HorsiesError, ValidationReport


def imports(subject: Subject) -> Iterator[HorsiesError]:
    """The errors of the imports."""
    report = ValidationReport(phase="imports")
    subject.app.collect_imports(report)
    for task in subject.app.tasks.values():
        try:
            _ = task.codec
        except HorsiesError as error:
            report.add(error)
    yield from report
