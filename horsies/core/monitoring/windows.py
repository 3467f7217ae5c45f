"""How much of the table a query about tasks looks at (M-46a). A table may have 10^7 tasks, and no index knows their
states and names, so every look has an end: it takes the tasks of one source, in the order of that source's index, and
stops after `LOOK` of them. The answer says whether that was all; a page says where the next look begins (its cursor).

A source with fewer tasks is read as a whole; then every order and every filter is exact. Pure.
"""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, TypeAlias

from horsies.core.codec.serde import can_be_stored
from horsies.core.models.monitoring.tasks import TaskSummary
from horsies.core.monitoring.filters import IN_FLIGHT, WAITING, BadQuestion, members
from horsies.core.types import TASK_TERMINAL_STATES, TaskStatus

LOOK = 10_000  # so many tasks of a source are looked at; a total counts up to here

Source: TypeAlias = Literal["all", "waiting", "in_flight", "ended", "coded", "ids"]
Walk: TypeAlias = Literal["id", "claim_order", "ended_at", "owner", "code", "any"]
_WALKS: dict[Source, Walk] = {
    "all": "id",
    "waiting": "claim_order",
    "in_flight": "owner",
    "ended": "ended_at",
    "coded": "code",
    "ids": "any",
}
_KINDS: dict[Source, frozenset[TaskStatus]] = {
    "waiting": WAITING,
    "in_flight": IN_FLIGHT,
    "ended": TASK_TERMINAL_STATES,
}


@dataclass(frozen=True, slots=True)
class Window:
    """The tasks that are looked at: of which source, in the order of which index, and how many at most (None: all)."""

    source: Source
    walk: Walk
    look: int | None

    def params(self) -> dict[str, Any]:
        """What the source says by itself is not asked of each task: an index may know all the rest."""
        said = {f"only_{self.source}": False} if self.source in _KINDS else {}
        # Not all ids tell when their task was sent: who looks at all of them needs no bounds (M-46b).
        bounds = dict.fromkeys(("id_from", "id_to")) if self.look is None else {}
        return {"source": self.source, "walk": self.walk, "look": self.look, **said, **bounds}


# The filter that belongs to a source itself, and those that do not.
_OWN_FILTER = {"waiting": "queues", "in_flight": "workers", "coded": "codes"}
_NO_FILTER: dict[str, Any] = {
    **dict.fromkeys(("task_names", "queues", "workers", "statuses", "codes", "codes_other_than")),
    **dict.fromkeys(("sent_after", "sent_before", "id_prefix", "id_suffix")),
    **dict.fromkeys(
        ("retried_only", "plain_only", "uncoded_only", "only_waiting", "only_in_flight", "only_ended"), False
    ),
}


def end_of(window: Window, sort_by: str) -> dict[str, Any]:
    """The parameters that make the last task of a window, whatever it is, a page of its own."""
    own = _OWN_FILTER.get(window.source)
    unfiltered = {name: value for name, value in _NO_FILTER.items() if name != own}
    if window.walk != sort_by:
        unfiltered["after_id"] = None  # a cursor does not move such a window: it is one more filter
    return {**unfiltered, **window.params(), "offset": (window.look or 0) - 1, "limit": 1}


def of_source(source: Source, *, exact: bool = False) -> Window:
    return Window(source, _WALKS[source], None if exact else LOOK)


def rare_sources(wanted: Mapping[str, Any], sort_by: str = "") -> list[Source]:
    """Sources that contain all that is wanted; if one of them has few tasks, it is read as a whole."""
    found: list[Source] = []
    if wanted["codes"] is not None or wanted["codes_other_than"] is not None:
        found.append("coded")
    if wanted["only_waiting"] and sort_by in ("id", "sent_at"):
        found.append("waiting")
    is_bounded = wanted["id_from"] is not None or wanted["id_to"] is not None
    if (sort_by == "sent_at" or (sort_by == "id" and is_bounded)) and not wanted["only_in_flight"]:
        found.append("all")
    return found


def of_page(wanted: Mapping[str, Any], sort_by: str, *, exact: bool) -> list[Window]:
    """Where a page looks if no source has only a few tasks: along the index that has the order of the page. No index
    has that of `sent_at`, and ids need not grow with time (those of your own do not): the newest tasks by id are
    taken, and those that ended last or are in flight."""
    if wanted["only_in_flight"]:
        return [of_source("in_flight", exact=exact)]
    if sort_by == "claim_order":
        return [of_source("waiting", exact=exact)]
    if sort_by == "ended_at":
        return [of_source("ended", exact=exact)]
    if sort_by == "id":
        return [of_source("all", exact=exact)]
    if exact:
        return [Window("all", "any", None)]
    others: list[Source] = ["ended", "in_flight"]
    if wanted["only_waiting"] or wanted["only_ended"]:
        others = ["ended"] if wanted["only_ended"] else []
    return [of_source(source) for source in ("all", *others)]


def of_kinds(statuses: Sequence[TaskStatus | str], *, exact: bool) -> list[Window]:
    """Where the tasks of these states are counted: those that wait, are in flight and have ended, each by its index."""
    named = members(TaskStatus, "statuses", statuses)
    if exact and named is None:
        return [Window("all", "any", None)]
    kinds = [kind for kind, states in _KINDS.items() if named is None or named & states]
    return [Window(kind, "any", None) if exact else of_source(kind) for kind in kinds]


def states_of(source: Source) -> frozenset[TaskStatus]:
    return _KINDS.get(source, frozenset(TaskStatus))


def before_ties(end: TaskSummary, params: Mapping[str, Any]) -> TaskSummary:
    """Where a search by `ended_at` goes on. Many tasks may have ended at the same moment as the last one of a window,
    and no index has the order of their ids: the next window begins with all of them, unless this one had nothing else.
    """
    if params["sort_by"] != "ended_at" or params["after_time"] == end.ended_at:
        return end
    return replace(end, task_id="")


def cursor_of(task: TaskSummary, sort_by: str, descending: bool) -> str:
    """The place after this task, in this order."""
    key = [sort_by, "desc" if descending else "asc", task.task_id]
    if (moment := _moment(task, sort_by)) is not None:
        key.append(moment.isoformat())
    if sort_by == "claim_order":
        key += [task.queue_name, str(task.priority)]
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode().rstrip("=")


def after(cursor: str | None, sort_by: str, descending: bool) -> dict[str, Any]:
    """The parameters of the place that a cursor names."""
    nowhere = dict.fromkeys(("after_id", "after_time", "after_queue", "after_priority"))
    if cursor is None:
        return nowhere
    try:
        order, direction, task_id, *rest = json.loads(base64.urlsafe_b64decode(f"{cursor}==").decode())
        if (order, direction) != (sort_by, "desc" if descending else "asc"):
            raise BadQuestion(f"this cursor belongs to a list that is sorted by {order!r}, {direction!r}")
        if not all(can_be_stored(part) for part in (task_id, *rest)):
            raise ValueError(cursor)
        place = {**nowhere, "after_id": task_id}
        if sort_by != "id":
            place["after_time"] = datetime.fromisoformat(rest[0])
        if sort_by == "claim_order":
            place |= {"after_queue": rest[1], "after_priority": int(rest[2])}
        return place
    except BadQuestion:
        raise
    except (ValueError, TypeError, IndexError, AttributeError, RecursionError, binascii.Error):
        raise BadQuestion(f"after must be the next_cursor of a page, not {cursor!r}") from None


def place_of(task: TaskSummary, sort_by: str) -> tuple[Any, ...]:
    """The key by which pages of several windows are put together."""
    return (_moment(task, sort_by), task.task_id)


def _moment(task: TaskSummary, sort_by: str) -> datetime | None:
    if sort_by == "started_at":
        return task.started_at or task.claimed_at
    moments = {"ended_at": task.ended_at, "sent_at": task.sent_at, "claim_order": task.enqueued_at}
    return moments.get(sort_by)
