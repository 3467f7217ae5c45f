"""Which tasks a query is about (M-46): OR within a list, AND between lists; an empty list does not filter. Pure: the
lists become the parameters of the statements, and mistakes in them are reported here.
"""

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from horsies.core.codec.serde import can_be_stored
from horsies.core.models.codes import BUILTIN_CODE_REGISTRY
from horsies.core.models.monitoring.tasks import ErrorCategory, category_of
from horsies.core.types import TASK_TERMINAL_STATES, TaskStatus

DEFAULT_LIMIT = 50
MOST = 500
DEEPEST_OFFSET = 10_000
IN_FLIGHT = frozenset({TaskStatus.CLAIMED, TaskStatus.RUNNING})
WAITING = frozenset({TaskStatus.PENDING})
NIL, LAST = "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"
SKEW_MS = 300_000  # by which the time in an id may differ from that of sending: there may be two clocks

# The states in which each sort order is cheap, because the set is small or an index has this order. (No index has the
# order of `sent_at`: see `windows.of_page`.)
_SORTABLE: dict[str, frozenset[TaskStatus] | None] = {
    "id": None,
    "sent_at": None,
    "claim_order": WAITING,
    "started_at": IN_FLIGHT,
    "ended_at": TASK_TERMINAL_STATES,
}

# These states follow from one of the facts below.
_SAID_BY_A_FACT = (None, WAITING, IN_FLIGHT, TASK_TERMINAL_STATES)
E = TypeVar("E", bound=StrEnum)


class BadQuestion(ValueError):
    """The query itself is wrong; its text says how."""


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """The lists of M-46. Values may be members or their names; a single string is not a list."""

    task_names: Sequence[str] = ()
    queues: Sequence[str] = ()
    workers: Sequence[str] = ()
    statuses: Sequence[TaskStatus | str] = ()
    error_codes: Sequence[str] = ()
    error_categories: Sequence[ErrorCategory | str] = ()
    retried_only: bool = False
    sent_after: datetime | None = None
    sent_before: datetime | None = None
    id_prefix: str | None = None
    idempotency_key: str | None = None
    plain_only: bool = False  # no tasks of workflows
    id_suffix: str | None = None
    uncoded_only: bool = False  # no tasks with an error code

    def params(self) -> dict[str, Any]:
        """The parameters that the statements of `sql/monitoring` call a filter. NULL does not filter; the three facts
        that follow from the states let a partial index be used."""
        statuses = members(TaskStatus, "statuses", self.statuses)
        codes, other_than = _codes(
            names("error_codes", self.error_codes), members(ErrorCategory, "error_categories", self.error_categories)
        )
        return {
            "task_names": names("task_names", self.task_names),
            "queues": names("queues", self.queues),
            "workers": names("workers", self.workers),
            # The condition is not repeated: the planner would take it for two, each of which leaves few rows.
            "statuses": None if statuses in _SAID_BY_A_FACT else sorted(status.value for status in statuses or ()),
            "codes": codes,
            "codes_other_than": other_than,
            "retried_only": bool(self.retried_only),
            "plain_only": self.plain_only,
            "sent_after": checked_moment("sent_after", self.sent_after),
            "sent_before": checked_moment("sent_before", self.sent_before),
            "id_prefix": None if self.id_prefix is None else checked_text("id_prefix", self.id_prefix) or None,
            "id_suffix": None if self.id_suffix is None else checked_text("id_suffix", self.id_suffix) or None,
            "uncoded_only": bool(self.uncoded_only),
            **id_bounds(self.sent_after, self.sent_before, self.id_prefix),
            "ids": None,
            "only_waiting": _is_within(statuses, WAITING),
            "only_in_flight": _is_within(statuses, IN_FLIGHT),
            "only_ended": _is_within(statuses, TASK_TERMINAL_STATES),
        }


def id_bounds(
    sent_after: datetime | None, sent_before: datetime | None, id_prefix: str | None
) -> dict[str, str | None]:
    """Between which ids a walk along the ids finds what was sent in this time, and what begins like this. Ids that we
    make begin with the time of sending, or with that of a schedule's slot; others are not found by it (M-46b)."""
    least = [] if sent_after is None else [_id_at(sent_after, -SKEW_MS)]
    most = [] if sent_before is None else [_id_at(sent_before, SKEW_MS)]
    if id_prefix and NIL.startswith(re.sub("[0-9a-f]", "0", id_prefix)):
        least.append(id_prefix + NIL[len(id_prefix) :])
        most.append(id_prefix + LAST[len(id_prefix) :])
    return {"id_from": max(least, default=None), "id_to": min(most, default=None)}


def _id_at(moment: datetime, more_ms: int) -> str:
    """The first id of that time, give or take so many milliseconds."""
    text = f"{max(0, int(moment.timestamp() * 1000) + more_ms):012x}"
    return f"{text[:8]}-{text[8:]}{NIL[13:]}"


def order(sort_by: str, sort_dir: str, statuses: Sequence[TaskStatus | str]) -> dict[str, Any]:
    """The parameters of a sort order that has an index for these states."""
    if not isinstance(sort_by, str) or sort_by not in _SORTABLE:
        raise BadQuestion(f"sort_by must be one of {', '.join(_SORTABLE)}, not {sort_by!r}")
    if sort_dir not in ("asc", "desc"):
        raise BadQuestion(f"sort_dir must be asc or desc, not {sort_dir!r}")
    needed = _SORTABLE[sort_by]
    if needed is not None and not _is_within(members(TaskStatus, "statuses", statuses), needed):
        allowed = ", ".join(sorted(status.value for status in needed))
        raise BadQuestion(
            f"sort_by={sort_by!r} needs statuses out of {allowed}: there is no index with that order for other statuses"
        )
    return {"sort_by": sort_by, "descending": sort_dir == "desc"}


def page(offset: int, limit: int) -> dict[str, int]:
    """The parameters of a page."""
    if not _is_int(offset) or not 0 <= offset <= DEEPEST_OFFSET:
        raise BadQuestion(
            f"offset must be a whole number from 0 to {DEEPEST_OFFSET:,}, not {offset!r}: "
            "the next_cursor of a page leads further"
        )
    return {"offset": offset, "limit": checked_limit(limit)}


def checked_limit(limit: int) -> int:
    if not _is_int(limit) or not 1 <= limit <= MOST:
        raise BadQuestion(f"limit must be a whole number from 1 to {MOST}, not {limit!r}")
    return limit


def names(what: str, values: Sequence[str]) -> list[str] | None:
    """The list, or None for an empty one."""
    refuse_text(what, values)
    for value in values:
        checked_text(f"a value of {what}", value)
    return [str(value) for value in values] or None


def checked_text(what: str, value: str) -> str:
    if not can_be_stored(value):
        raise BadQuestion(f"{what} must be a string, not {value!r}")
    return value


def checked_moment(what: str, value: datetime | None) -> datetime | None:
    if value is not None and (not isinstance(value, datetime) or value.tzinfo is None):
        raise BadQuestion(f"{what} must be a datetime with a time zone, not {value!r}")
    return value


def checked_seconds(what: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise BadQuestion(f"{what} must be a number of seconds of at least 0, not {value!r}")
    return value


def members(kind: type[E], what: str, values: Sequence[E | str]) -> frozenset[E] | None:
    """The named members, or None for an empty list."""
    refuse_text(what, values)
    try:
        return frozenset(kind(value) for value in values) or None
    except ValueError:
        allowed = ", ".join(kind)
        raise BadQuestion(f"{what} may contain only {allowed}, not {[str(value) for value in values]}") from None


def refuse_text(what: str, values: object) -> None:
    if isinstance(values, str) or not isinstance(values, Collection):
        raise BadQuestion(f"{what} must be a list, not {values!r}")


def _codes(
    codes: list[str] | None, categories: frozenset[ErrorCategory] | None
) -> tuple[list[str] | None, list[str] | None]:
    """The codes that are wanted or, if DOMAIN is among the families, those that are not."""
    if categories is None:
        return codes, None
    if codes is not None:
        return [code for code in codes if category_of(code) in categories], None
    if ErrorCategory.DOMAIN in categories:
        return None, sorted(code for code in BUILTIN_CODE_REGISTRY if category_of(code) not in categories)
    return sorted(code for code in BUILTIN_CODE_REGISTRY if category_of(code) in categories), None


def _is_within(statuses: frozenset[TaskStatus] | None, states: frozenset[TaskStatus]) -> bool:
    return statuses is not None and statuses <= states


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
