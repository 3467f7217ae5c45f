"""Run-time schedules as their rows describe them (D-36). Rows can be written by hand: a mistake in a row is HRS-205 and
concerns only that row.
"""

from __future__ import annotations

from horsies.core.brokers.results import describe
from horsies.core.errors import ConfigurationError, ErrorCode, HorsiesError
from horsies.core.models.schedule import TaskSchedule
from horsies.core.store.schedules import Stored


def read(stored: Stored) -> TaskSchedule:
    """The schedule that a row describes; raises the mistakes in it."""
    if stored.problem is not None:
        raise unusable(stored.problem)
    return schedule_of(stored.name, stored.definition)


def schedule_of(name: str, definition: object) -> TaskSchedule:
    """The same for its definition. The name is that of the row, whatever the definition says."""
    if not isinstance(definition, dict):
        raise unusable("its definition is not an object")
    try:
        return TaskSchedule(**{**definition, "name": name})
    except HorsiesError:
        raise
    except Exception as problem:
        raise unusable(f"its definition cannot be used: {describe(problem)}") from None


def unusable(why: str) -> ConfigurationError:
    """HRS-205."""
    return ConfigurationError(why, code=ErrorCode.CONFIG_INVALID_SCHEDULE)
