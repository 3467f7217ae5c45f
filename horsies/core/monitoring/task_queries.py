"""The query API about tasks (M-45, M-46): pages, counts, facets and groups, and one task. `filters.py` says which tasks
a query is about, and `windows.py` how much of the table it looks at: a query costs about the same however many tasks
there are, unless it is asked to be exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from horsies.core.db import Connection
from horsies.core.models.monitoring import tasks
from horsies.core.monitoring import filters, windows
from horsies.core.monitoring.queries import ask
from horsies.core.producer.hub import can_exist
from horsies.core.store import monitoring, notes
from horsies.core.store.monitoring import Tally
from horsies.core.types import TaskStatus

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker


MOST_FACETS = 200
MOST_SHOWN = 1_000  # characters of an argument in a list
MOST_KEYED = 2_000  # names of tasks of which one may have the key
_GROUPS = ("worker", "task_name", "queue")
_FACETS = ("task_name", "queue", "worker", "error_code")


async def task_stats(
    broker: PostgresBroker,
    *,
    task_names: Sequence[str] = (),
    queues: Sequence[str] = (),
    workers: Sequence[str] = (),
    error_codes: Sequence[str] = (),
    error_categories: Sequence[tasks.ErrorCategory | str] = (),
    retried_only: bool = False,
    exact: bool = False,
) -> tasks.MonitoringResult[tuple[tasks.StatusCount, ...]]:
    """How many tasks are in each state; all seven, in the order of a task's life. With `exact`, every row is read."""
    wanted = filters.TaskFilter(task_names, queues, workers, (), error_codes, error_categories, retried_only)

    async def count(conn: Connection) -> tuple[tasks.StatusCount, ...]:
        found, cut = await _tallied(conn, wanted, ("status",), exact)
        counts = Counter({one.status: 0 for one in found})
        for one in found:
            counts[one.status] += one.number
        return tuple(tasks.StatusCount(status, counts[status], status not in cut) for status in TaskStatus)

    return await ask(broker, count, exact=exact)


async def task_facets(
    broker: PostgresBroker,
    *,
    statuses: Sequence[TaskStatus | str] = (),
    retried_only: bool = False,
    error_categories: Sequence[tasks.ErrorCategory | str] = (),
    exact: bool = False,
) -> tasks.MonitoringResult[tasks.Facets]:
    """The values that occur, the most frequent first, with their counts. With `exact`, every row is read."""
    wanted = filters.TaskFilter(statuses=statuses, error_categories=error_categories, retried_only=retried_only)

    async def find(conn: Connection) -> tasks.Facets:
        found, cut = await _tallied(conn, wanted, _FACETS, exact)
        plain = {
            name: tuple(tasks.FacetValue(*pair) for pair in _largest(found, facet))
            for name, facet in (("task_names", "task_name"), ("queues", "queue"), ("workers", "worker"))
        }
        codes = [(code, tasks.category_of(code), count) for code, count in _largest(found, "error_code")]
        return tasks.Facets(
            **plain,
            error_codes=tuple(tasks.ErrorFacet(code, kind, n) for code, kind, n in codes if kind is not None),
            is_exact=not cut,
        )

    return await ask(broker, find, exact=exact)


async def task_breakdown(
    broker: PostgresBroker,
    *,
    group_by: tasks.GroupBy,
    task_names: Sequence[str] = (),
    queues: Sequence[str] = (),
    workers: Sequence[str] = (),
    statuses: Sequence[TaskStatus | str] = (),
    error_codes: Sequence[str] = (),
    error_categories: Sequence[tasks.ErrorCategory | str] = (),
    retried_only: bool = False,
    limit: int = filters.DEFAULT_LIMIT,
    exact: bool = False,
) -> tasks.MonitoringResult[tasks.Breakdown]:
    """Tasks by worker, name or queue and their states, the largest groups first. With `exact`, every row is read."""
    wanted = filters.TaskFilter(task_names, queues, workers, statuses, error_codes, error_categories, retried_only)

    async def count(conn: Connection) -> tasks.Breakdown:
        if group_by not in _GROUPS:
            raise filters.BadQuestion(f"group_by must be one of {', '.join(_GROUPS)}, not {group_by!r}")
        most = filters.checked_limit(limit)
        found, cut = await _tallied(conn, wanted, (group_by,), exact)
        groups: dict[str | None, Counter[TaskStatus]] = {}
        for one in found:
            groups.setdefault(one.value, Counter())[one.status] += one.number
        ranked = sorted(groups.items(), key=lambda group: (-group[1].total(), group[0] is None, group[0] or ""))
        rows = tuple(tasks.GroupRow(value, counts.total(), _counts(counts, cut)) for value, counts in ranked[:most])
        return tasks.Breakdown(group_by, rows, len(groups), sum(one.number for one in found), not cut)

    return await ask(broker, count, exact=exact)


async def list_tasks(
    broker: PostgresBroker,
    *,
    task_names: Sequence[str] = (),
    queues: Sequence[str] = (),
    workers: Sequence[str] = (),
    statuses: Sequence[TaskStatus | str] = (),
    error_codes: Sequence[str] = (),
    error_categories: Sequence[tasks.ErrorCategory | str] = (),
    retried_only: bool = False,
    sent_after: datetime | None = None,
    sent_before: datetime | None = None,
    id_prefix: str | None = None,
    idempotency_key: str | None = None,
    id_suffix: str | None = None,
    uncoded_only: bool = False,
    sort_by: tasks.SortBy = "id",
    sort_dir: tasks.SortDir = "desc",
    offset: int = 0,
    limit: int = filters.DEFAULT_LIMIT,
    after: str | None = None,
    exact: bool = False,
) -> tasks.MonitoringResult[tasks.TaskListPage]:
    """A page of tasks and their number, both of the same moment.

    Ids grow with time, so by default the last sent tasks come first. `after` is the `next_cursor` of the page before.
    With `exact`, the search does not stop before the page is full, and all tasks are counted.
    """
    lists = (task_names, queues, workers, statuses, error_codes, error_categories, retried_only)
    wanted = filters.TaskFilter(*lists, sent_after, sent_before, id_prefix, idempotency_key)
    wanted = replace(wanted, id_suffix=id_suffix, uncoded_only=uncoded_only)
    return await find_tasks(
        broker, wanted, sort_by=sort_by, sort_dir=sort_dir, offset=offset, limit=limit, after=after, exact=exact
    )


async def find_tasks(
    broker: PostgresBroker,
    wanted: filters.TaskFilter,
    *,
    sort_by: tasks.SortBy = "id",
    sort_dir: tasks.SortDir = "desc",
    offset: int = 0,
    limit: int = filters.DEFAULT_LIMIT,
    after: str | None = None,
    exact: bool = False,
    counted: bool = True,
) -> tasks.MonitoringResult[tasks.TaskListPage]:
    """A page of the tasks that a filter leaves. If it is not `counted`, neither their number nor their progress is
    looked for."""

    async def find(conn: Connection) -> tasks.TaskListPage:
        order = filters.order(sort_by, sort_dir, wanted.statuses)
        place = {**filters.page(offset, limit), **windows.after(after, sort_by, order["descending"])}
        params = {**wanted.params(), **order, **place}
        if wanted.idempotency_key is None:
            rare = await _rare(conn, params, sort_by)
        else:
            key = filters.checked_text("idempotency_key", wanted.idempotency_key)
            params["ids"] = await monitoring.keyed(conn, key, params["task_names"], most=MOST_KEYED)
            rare = windows.of_source("ids", exact=True)
        looks = [rare] if rare is not None else windows.of_page(params, sort_by, exact=exact)
        page = await (_page(conn, params, looks[0]) if len(looks) == 1 else _merged_page(conn, params, looks))
        if not counted:
            return page
        sources = [rare] if rare is not None else _counted(wanted.statuses, exact)
        total, is_exact = await _count(conn, params, sources, None if exact else windows.LOOK)
        items = await _with_progress(conn, page.items)
        return replace(page, items=items, total=total, total_is_exact=is_exact)

    return await ask(broker, find, exact=exact)


async def summaries(conn: Connection, ids: Sequence[str]) -> tuple[tasks.TaskSummary, ...]:
    """These tasks as lines of a list, in this order; those that do not exist are left out."""
    found = {one.task_id: one for one in await monitoring.tasks_by_id(conn, ids)} if ids else {}
    return tuple(found[task_id] for task_id in ids if task_id in found)


async def get_task_summaries(
    broker: PostgresBroker, task_ids: Sequence[str]
) -> tasks.MonitoringResult[tuple[tasks.TaskSummary, ...]]:
    """These tasks as lines of a list, in this order, at most `filters.MOST`; those that do not exist are left out."""

    async def look(conn: Connection) -> tuple[tasks.TaskSummary, ...]:
        return await summaries(conn, _checked_ids(task_ids))

    return await ask(broker, look)


def _checked_ids(task_ids: Sequence[str]) -> list[str]:
    """Those that a task can have, each once."""
    filters.refuse_text("task_ids", task_ids)
    if len(task_ids) > filters.MOST:
        raise filters.BadQuestion(f"task_ids may have at most {filters.MOST} ids, not {len(task_ids):,}")
    return list(dict.fromkeys(filter(can_exist, task_ids)))


async def get_task_arguments(
    broker: PostgresBroker, task_ids: Sequence[str]
) -> tasks.MonitoringResult[tuple[tasks.TaskArguments, ...]]:
    """The arguments of these tasks, at most `filters.MOST`, each cut to `MOST_SHOWN` characters; in no order."""

    async def look(conn: Connection) -> tuple[tasks.TaskArguments, ...]:
        return await monitoring.arguments(conn, _checked_ids(task_ids), most=MOST_SHOWN)

    return await ask(broker, look)


async def get_task_detail(broker: PostgresBroker, task_id: str) -> tasks.MonitoringResult[tasks.TaskDetail | None]:
    """A task with all its columns and attempts; `Ok(None)` if there is no such row."""

    async def look(conn: Connection) -> tasks.TaskDetail | None:
        found = await monitoring.task_detail(conn, task_id) if can_exist(task_id) else None
        if found is None or found.started_at is None:
            return found
        return replace(found, progress=(await notes.progress(conn, [task_id])).get(task_id))

    return await ask(broker, look)


async def _with_progress(conn: Connection, items: tuple[tasks.TaskSummary, ...]) -> tuple[tasks.TaskSummary, ...]:
    """The same tasks; those that have said how far they have come, with that."""
    started = [one.task_id for one in items if one.started_at is not None]
    found = await notes.progress(conn, started) if started else {}
    return tuple(replace(one, progress=found.get(one.task_id)) for one in items) if found else items


async def _rare(conn: Connection, params: Mapping[str, Any], sort_by: str = "") -> windows.Window | None:
    """All tasks of a source that contains what is wanted, if there is one that has few enough."""
    for source in windows.rare_sources(params, sort_by):
        if await monitoring.has_few(conn, {**params, "source": source, "few": windows.LOOK}):
            return windows.of_source(source, exact=True)
    return None


async def _page(conn: Connection, params: Mapping[str, Any], window: windows.Window) -> tasks.TaskListPage:
    """A page out of one window."""
    limit = params["limit"]
    found = await monitoring.list_tasks(conn, {**params, **window.params(), "limit": limit + 1})
    is_full, sort_by = len(found) > limit, params["sort_by"]
    full = _as_page(found[:limit], params, found[limit - 1] if is_full else None)
    if window.look is None or (is_full and sort_by != "ended_at"):
        return full
    end = await monitoring.list_tasks(conn, {**params, **windows.end_of(window, sort_by)})
    if not end:
        return full
    if window.walk != sort_by:
        return replace(full, is_partial=True)
    # The search can go on at the end of the window.
    last = windows.before_ties(end[0], params)
    whole = [one for one in found if last.task_id or one.ended_at != last.ended_at]
    return full if len(whole) >= limit and is_full else _as_page(whole, params, last, is_partial=True)


async def _merged_page(
    conn: Connection, params: Mapping[str, Any], looks: Sequence[windows.Window]
) -> tasks.TaskListPage:
    """A page out of several windows, none of which has the order of the page."""
    first, behind = params["offset"], params["offset"] + params["limit"]
    found: dict[str, tasks.TaskSummary] = {}
    for window in looks:
        some = await monitoring.list_tasks(conn, {**params, **window.params(), "offset": 0, "limit": behind + 1})
        found |= {one.task_id: one for one in some}
    ranked = sorted(found.values(), key=lambda one: windows.place_of(one, params["sort_by"]))
    if params["descending"]:
        ranked.reverse()
    items = ranked[first:behind]
    last = items[-1] if len(ranked) > behind else None
    return _as_page(items, params, last, is_partial=last is None)


def _as_page(
    items: Sequence[tasks.TaskSummary],
    params: Mapping[str, Any],
    last: tasks.TaskSummary | None,
    *,
    is_partial: bool = False,
) -> tasks.TaskListPage:
    """Without the total. The next page begins after `last`."""
    cursor = None if last is None else windows.cursor_of(last, params["sort_by"], params["descending"])
    return tasks.TaskListPage(
        tuple(items), 0, params["offset"], params["limit"], next_cursor=cursor, is_partial=is_partial
    )


def _counted(statuses: Sequence[TaskStatus | str], exact: bool) -> list[windows.Window]:
    if statuses or exact:
        return windows.of_kinds(statuses, exact=exact)
    return [windows.of_source("all")]


async def _count(
    conn: Connection, params: Mapping[str, Any], looks: Iterable[windows.Window], most: int | None
) -> tuple[int, bool]:
    """How many tasks match, and whether these are all."""
    total, is_exact = 0, True
    for window in looks:
        room = None if most is None else most - total + 1
        count, is_cut = await monitoring.count_tasks(conn, {**params, **window.params(), "most": room})
        total, is_exact = total + count, is_exact and not is_cut
        if most is not None and total > most:
            return most, False
    return total, is_exact


async def _tallied(
    conn: Connection, wanted: filters.TaskFilter, facets: Sequence[str], exact: bool
) -> tuple[list[Tally], frozenset[TaskStatus]]:
    """What was found, and the states of which there may be more."""
    params = wanted.params()
    rare = await _rare(conn, params)
    looks = [rare] if rare is not None else windows.of_kinds(wanted.statuses, exact=exact)
    found: list[Tally] = []
    cut: set[TaskStatus] = set()
    for window in looks:
        some = await monitoring.tally_tasks(conn, {**params, **window.params()}, facets)
        found += [one for one in some if one.number]
        if any(one.is_cut for one in some):
            cut |= windows.states_of(window.source)
    return found, frozenset(cut)


def _largest(found: Iterable[Tally], facet: str) -> list[tuple[str, int]]:
    counts: Counter[str] = Counter()
    for one in found:
        if one.facet == facet and one.value is not None:
            counts[one.value] += one.number
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:MOST_FACETS]


def _counts(counts: Mapping[TaskStatus, int], cut: frozenset[TaskStatus]) -> tuple[tasks.StatusCount, ...]:
    """In the order of a task's life."""
    return tuple(
        tasks.StatusCount(status, counts[status], status not in cut) for status in TaskStatus if status in counts
    )
