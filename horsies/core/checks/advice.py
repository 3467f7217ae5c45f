"""Warnings: things that work, but probably not as intended. They are looked for when there are no errors."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from horsies.core.checks import deadlines, retry_codes, workflows
from horsies.core.checks.subject import Subject
from horsies.core.errors import CheckWarning
from horsies.core.models.workflow.spec import WorkflowSpec


def advice(subject: Subject) -> Iterator[CheckWarning]:
    """All warnings."""
    yield from workflows.undecorated_in_own_module(subject)
    now = datetime.now(UTC)
    for spec in _specs(subject):
        yield from deadlines.problems(spec, now)
    yield from retry_codes.problems(subject.app.tasks.values())


def _specs(subject: Subject) -> list[WorkflowSpec[Any]]:
    """The workflows that the check has built, and those that modules have built themselves."""
    of_modules = [
        value for module in subject.modules for value in vars(module).values() if isinstance(value, WorkflowSpec)
    ]
    return list({id(spec): spec for spec in [*subject.specs, *of_modules]}.values())
