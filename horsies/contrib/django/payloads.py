"""What the admin shows of arguments and results: masked as the dashboard masks them (`HORSIES["MASK"]`,
`HORSIES["HIDE_PAYLOADS"]`), and cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from horsies.contrib.django import conf
from horsies.contrib.django.project import project_app
from horsies.core.monitoring.masking import Masking, names_known_to

LONGEST = 2_000
FIELDS = ("args", "kwargs", "result", "failed_reason", "error")


@dataclass(frozen=True)
class Payloads:
    """The texts of one row, under the names by which the masking knows them."""

    task_name: str | None
    args: str | None = None
    kwargs: str | None = None
    result: str | None = None
    failed_reason: str | None = None
    error: str | None = None


def shown(row: Any) -> dict[str, str | None]:
    """The texts of a row of `Task` or `Workflow` that may be shown."""
    found = Payloads(getattr(row, "task_name", None), **{name: getattr(row, name, None) for name in FIELDS})
    masked = _masking().applied_to(found)
    return {name: _cut(getattr(masked, name)) for name in FIELDS}


def _masking() -> Masking:
    names = names_known_to(project_app().tasks)
    return Masking.of(conf.option("MASK"), hides_all=bool(conf.option("HIDE_PAYLOADS")), positional=names)


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text)} characters)"
