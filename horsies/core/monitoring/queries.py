"""Queries about tasks (M-45): lists, counts, facets and groups. `filters.py` defines the filters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from horsies.core.monitoring.asking import ask
from horsies.core.monitoring.filters import DEFAULT_LIMIT, BadQuestion, TaskFilter, checked_limit, order, page
from horsies.core.monitoring.models.answers import MonitoringResult
from horsies.core.monitoring.models.tasks import (
    Breakdown,
    ErrorCategory,
    Facets,
    GroupBy,
    SortBy,
    SortDir,
    StatusCount,
    TaskListPage,
)
from horsies.core.store import monitoring
from horsies.core.store.tasks import Connection
from horsies.core.types.status import TaskStatus

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker

MOST_FACETS = 200
_GROUPS = ("worker", "task_name", "queue")


async def task_stats(
    broker: PostgresBroker,
    *,
    task_names: Sequence[str] = (),
    queues: Sequence[str] = (),
    workers: Sequence[str] = (),
    error_codes: Sequence[str] = (),
    error_categories: Sequence[ErrorCategory | str] = (),
    retried_only: bool = False,
) -> MonitoringResult[tuple[StatusCount, ...]]:
    """How many tasks are in each state; all seven, in the order of a task's life. Reads every row."""
    wanted = TaskFilter(task_names, queues, workers, (), error_codes, error_categories, retried_only)

    async def count(conn: Connection) -> tuple[StatusCount, ...]:
        return await monitoring.task_stats(conn, wanted.params())

    return await ask(broker, count)


async def task_facets(
    broker: PostgresBroker,
    *,
    statuses: Sequence[TaskStatus | str] = (),
    retried_only: bool = False,
    error_categories: Sequence[ErrorCategory | str] = (),
) -> MonitoringResult[Facets]:
    """The values that occur, the most frequent first, with their counts. Reads every row of these states."""
    wanted = TaskFilter(statuses=statuses, error_categories=error_categories, retried_only=retried_only)

    async def find(conn: Connection) -> Facets:
        return await monitoring.task_facets(conn, wanted.params(), most=MOST_FACETS)

    return await ask(broker, find)


async def task_breakdown(
    broker: PostgresBroker,
    *,
    group_by: GroupBy,
    task_names: Sequence[str] = (),
    queues: Sequence[str] = (),
    workers: Sequence[str] = (),
    statuses: Sequence[TaskStatus | str] = (),
    error_codes: Sequence[str] = (),
    error_categories: Sequence[ErrorCategory | str] = (),
    retried_only: bool = False,
    limit: int = DEFAULT_LIMIT,
) -> MonitoringResult[Breakdown]:
    """Tasks by worker, name or queue and their states, the largest groups first. Reads every row of these states."""
    wanted = TaskFilter(task_names, queues, workers, statuses, error_codes, error_categories, retried_only)

    async def count(conn: Connection) -> Breakdown:
        if group_by not in _GROUPS:
            raise BadQuestion(f"group_by must be one of {', '.join(_GROUPS)}, not {group_by!r}")
        most = checked_limit(limit)
        rows, groups, total = await monitoring.task_breakdown(conn, wanted.params(), group_by=group_by, limit=most)
        return Breakdown(group_by, rows, groups, total)

    return await ask(broker, count)


async def list_tasks(
    broker: PostgresBroker,
    *,
    task_names: Sequence[str] = (),
    queues: Sequence[str] = (),
    workers: Sequence[str] = (),
    statuses: Sequence[TaskStatus | str] = (),
    error_codes: Sequence[str] = (),
    error_categories: Sequence[ErrorCategory | str] = (),
    retried_only: bool = False,
    sort_by: SortBy = "id",
    sort_dir: SortDir = "desc",
    offset: int = 0,
    limit: int = DEFAULT_LIMIT,
) -> MonitoringResult[TaskListPage]:
    """A page of tasks and the total number, both of the same moment.

    Ids grow with time, so by default the last sent tasks come first. A large offset reads the rows that it skips.
    """
    wanted = TaskFilter(task_names, queues, workers, statuses, error_codes, error_categories, retried_only)

    async def find(conn: Connection) -> TaskListPage:
        params = {**wanted.params(), **order(sort_by, sort_dir, statuses), **page(offset, limit)}
        items = await monitoring.list_tasks(conn, params)
        return TaskListPage(items, await monitoring.count_tasks(conn, params), offset, limit)

    return await ask(broker, find)
