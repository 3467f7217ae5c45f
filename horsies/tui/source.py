"""What the tabs ask, and how: each question is one or a few calls of `horsies.monitoring`, none of which reads a whole
table (M-46a). `DataSource` is the list of questions; `BrokerSource` asks a broker. `dashboard_of` asks once, for
`--once`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from horsies import monitoring
from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.models.monitoring import cluster, tasks
from horsies.core.models.notes import LogPlace
from horsies.core.monitoring.alerts import judge
from horsies.core.store.notes import LOGGED_ROWS, Page
from horsies.core.types import TASK_TERMINAL_STATES, Err, Ok, TaskStatus
from horsies.tui.lines import Line
from horsies.tui.view_dashboard import TREND, Trend, dashboard

IN_FLIGHT = frozenset({TaskStatus.CLAIMED, TaskStatus.RUNNING})
CLAIMED_ONCE = frozenset({TaskStatus.CLAIMED, TaskStatus.RUNNING, TaskStatus.COMPLETED})
MOST_GROUPS = 200
MOST_MATCHES = 50
PAGE = 100
RUNS = 200
NAMES = 8  # workflows of so many names are looked for in one search
TREND_WORKERS = 20
TREND_POINTS = 60
LOOKS = 5  # pages that are read at once in search of a task that nobody has claimed


@dataclass(frozen=True, slots=True)
class TaskSearch:
    """What a text was found in: names of tasks, queues, error codes or workers."""

    text: str
    field: str
    values: tuple[str, ...]

    @property
    def filters(self) -> dict[str, Sequence[str]]:
        return {self.field: self.values}

    def sentence(self) -> str:
        """`task name contains "pay": charge.pay, pay.refund`."""
        if not self.values:
            return f'"{self.text}" is in no task name, queue, error or worker'
        word = {"task_names": "task name", "queues": "queue", "error_codes": "error", "workers": "worker"}[self.field]
        more = f" and {len(self.values) - 3} more" if len(self.values) > 3 else ""
        return f'{word} contains "{self.text}": {", ".join(self.values[:3])}{more}'


class DataSource(Protocol):
    """Whoever answers the questions of the tabs."""

    async def snapshot(self) -> tasks.MonitoringResult[cluster.Snapshot]: ...

    async def held(self) -> tasks.MonitoringResult[Mapping[str, int]]: ...

    async def trend(self, workers: Sequence[str]) -> tasks.MonitoringResult[Trend]: ...

    async def workers(self) -> tasks.MonitoringResult[tuple[cluster.WorkerStateInfo, ...]]: ...

    async def history(
        self, worker_id: str, seconds: float, points: int
    ) -> tasks.MonitoringResult[tuple[cluster.WorkerHistoryPoint, ...]]: ...

    async def registry(self) -> tasks.MonitoringResult[tuple[cluster.ActiveWorkerInfo, ...]]: ...

    async def schedules(self) -> tasks.MonitoringResult[tuple[cluster.ScheduleStateInfo, ...]]: ...

    async def search_tasks(self, text: str) -> tasks.MonitoringResult[TaskSearch]: ...

    async def groups(
        self, states: Collection[TaskStatus], search: TaskSearch | None
    ) -> tasks.MonitoringResult[tasks.Breakdown]: ...

    async def page(
        self, worker: str | None, states: Collection[TaskStatus], search: TaskSearch | None, after: str | None
    ) -> tasks.MonitoringResult[tasks.TaskListPage]: ...

    async def task(self, task_id: str) -> tasks.MonitoringResult[tasks.TaskDetail | None]: ...

    async def why(self, subject: str) -> tasks.MonitoringResult[cluster.Explanation | None]: ...

    async def logs(self, task_id: str, after: LogPlace) -> tasks.MonitoringResult[Page]: ...

    async def runs(self, text: str) -> tasks.MonitoringResult[tuple[tasks.WorkflowRunSummary, ...]]: ...

    async def run(self, workflow_id: str) -> tasks.MonitoringResult[tasks.WorkflowRunDetail | None]: ...

    async def node(self, workflow_id: str, index: int) -> tasks.MonitoringResult[tasks.WorkflowTaskDetail | None]: ...


class BrokerSource:
    """Asks the database of a broker."""

    def __init__(self, broker: PostgresBroker) -> None:
        self._broker = broker

    async def snapshot(self) -> tasks.MonitoringResult[cluster.Snapshot]:
        return await monitoring.take_snapshot(self._broker)

    async def held(self) -> tasks.MonitoringResult[Mapping[str, int]]:
        """How many tasks each worker holds, also one that is not registered."""
        found = await monitoring.task_breakdown(
            self._broker, group_by="worker", statuses=sorted(IN_FLIGHT), limit=MOST_GROUPS
        )
        if isinstance(found, Err):
            return found
        return Ok({group.value: group.total for group in found.ok_value.rows if group.value is not None})

    async def trend(self, workers: Sequence[str]) -> tasks.MonitoringResult[Trend]:
        """The last hour of these workers, or of the first of them if they are many."""
        histories = {}
        for worker_id in workers[:TREND_WORKERS]:
            found = await self.history(worker_id, TREND.total_seconds(), TREND_POINTS)
            if isinstance(found, Err):
                return found
            histories[worker_id] = found.ok_value
        return Ok(Trend(histories, max(0, len(workers) - TREND_WORKERS)))

    async def workers(self) -> tasks.MonitoringResult[tuple[cluster.WorkerStateInfo, ...]]:
        return await monitoring.list_workers(self._broker)

    async def history(
        self, worker_id: str, seconds: float, points: int
    ) -> tasks.MonitoringResult[tuple[cluster.WorkerHistoryPoint, ...]]:
        return await monitoring.get_worker_history(self._broker, worker_id, limit=points, window_seconds=seconds)

    async def registry(self) -> tasks.MonitoringResult[tuple[cluster.ActiveWorkerInfo, ...]]:
        return await monitoring.list_active_workers(self._broker)

    async def schedules(self) -> tasks.MonitoringResult[tuple[cluster.ScheduleStateInfo, ...]]:
        return await monitoring.list_schedules(self._broker)

    async def search_tasks(self, text: str) -> tasks.MonitoringResult[TaskSearch]:
        """What contains the text: the first of names, queues, error codes and workers of which some do."""
        facets = await monitoring.task_facets(self._broker)
        if isinstance(facets, Err):
            return facets
        found = facets.ok_value
        known = {
            "task_names": [one.value for one in found.task_names],
            "queues": [one.value for one in found.queues],
            "error_codes": [one.code for one in found.error_codes],
            "workers": [one.value for one in found.workers],
        }
        for field, values in known.items():
            if matches := [value for value in values if text.casefold() in value.casefold()]:
                return Ok(TaskSearch(text, field, tuple(matches[:MOST_MATCHES])))
        return Ok(TaskSearch(text, "task_names", ()))

    async def groups(
        self, states: Collection[TaskStatus], search: TaskSearch | None
    ) -> tasks.MonitoringResult[tasks.Breakdown]:
        if search is not None and not search.values:
            return Ok(tasks.Breakdown("worker", (), 0, 0))
        filters: dict[str, Any] = {} if search is None else search.filters
        return await monitoring.task_breakdown(
            self._broker, group_by="worker", statuses=sorted(states), limit=MOST_GROUPS, **filters
        )

    async def page(
        self, worker: str | None, states: Collection[TaskStatus], search: TaskSearch | None, after: str | None
    ) -> tasks.MonitoringResult[tasks.TaskListPage]:
        """A page of the tasks that a worker holds or held, or of those that nobody has claimed."""
        filters: dict[str, Any] = {} if search is None else search.filters
        if worker is not None:
            asked = {**filters, "workers": [worker]}
            return await monitoring.list_tasks(self._broker, limit=PAGE, after=after, **_order(states), **asked)
        return await self._unclaimed(frozenset(states or TaskStatus) - CLAIMED_ONCE, filters, after)

    async def _unclaimed(
        self, states: frozenset[TaskStatus], filters: Mapping[str, Any], after: str | None
    ) -> tasks.MonitoringResult[tasks.TaskListPage]:
        """No filter says "claimed by nobody", so pages are read until there is one with such a task."""
        for _ in range(LOOKS):
            found = await monitoring.list_tasks(self._broker, limit=PAGE, after=after, **_order(states), **filters)
            if isinstance(found, Err):
                return found
            page = found.ok_value
            page = replace(page, items=tuple(one for one in page.items if one.worker_id is None))
            after = page.next_cursor
            if page.items or after is None:
                return Ok(page)
        return Ok(replace(page, is_partial=True))

    async def task(self, task_id: str) -> tasks.MonitoringResult[tasks.TaskDetail | None]:
        return await monitoring.get_task_detail(self._broker, task_id)

    async def why(self, subject: str) -> tasks.MonitoringResult[cluster.Explanation | None]:
        return await monitoring.explain_task(self._broker, subject)

    async def logs(self, task_id: str, after: LogPlace) -> tasks.MonitoringResult[Page]:
        """What a task has logged since that place. Tables of an older version have no logs."""
        found = await self._broker.read_logs_async(task_id, after, LOGGED_ROWS)
        if isinstance(found, Ok):
            return found
        problem = found.err_value
        if not problem.retryable:
            return Ok(Page([], after, is_last=True))
        code = tasks.MonitoringErrorCode.DB_OPERATION_FAILED
        return Err(tasks.MonitoringQueryError(code, self._broker.config.redact(problem.message), retryable=True))

    async def runs(self, text: str) -> tasks.MonitoringResult[tuple[tasks.WorkflowRunSummary, ...]]:
        """Workflows whose names contain the text; if there is none, the last ones."""
        names = await monitoring.list_workflow_names(self._broker) if text else Ok(())
        if isinstance(names, Err):
            return names
        wanted = [name for name in names.ok_value if text.casefold() in name.casefold()][:NAMES]
        if not wanted:
            return await monitoring.list_workflow_runs(self._broker, limit=RUNS)
        found: list[tasks.WorkflowRunSummary] = []
        for name in wanted:
            some = await monitoring.list_workflow_runs(self._broker, name=name, limit=RUNS // NAMES)
            if isinstance(some, Err):
                return some
            found += some.ok_value
        return Ok(tuple(found))

    async def run(self, workflow_id: str) -> tasks.MonitoringResult[tasks.WorkflowRunDetail | None]:
        return await monitoring.get_workflow_run(self._broker, workflow_id)

    async def node(self, workflow_id: str, index: int) -> tasks.MonitoringResult[tasks.WorkflowTaskDetail | None]:
        return await monitoring.get_workflow_node(self._broker, workflow_id, index)


async def dashboard_of(broker: PostgresBroker, width: int) -> tasks.MonitoringResult[list[Line]]:
    """The lines of the first tab, from one round of questions (M-82)."""
    source = BrokerSource(broker)
    snapshot = await source.snapshot()
    if isinstance(snapshot, Err):
        return snapshot
    held = await source.held()
    if isinstance(held, Err):
        return held
    found = snapshot.ok_value
    trend = await source.trend([worker.worker_id for worker in reversed(found.workers) if worker.is_live])
    if isinstance(trend, Err):
        return trend
    rows = dashboard(found, judge(found, held.ok_value), trend.ok_value, width, found.taken_at)
    return Ok([row.line for row in rows])


def _order(states: Collection[TaskStatus]) -> dict[str, Any]:
    """The order in which tasks of these states are looked for."""
    chosen = frozenset(states)
    if chosen and chosen <= IN_FLIGHT:
        order = {"sort_by": "started_at", "sort_dir": "asc"}
    elif chosen and chosen <= TASK_TERMINAL_STATES:
        order = {"sort_by": "ended_at", "sort_dir": "desc"}
    elif chosen == {TaskStatus.PENDING}:
        order = {"sort_by": "claim_order", "sort_dir": "asc"}
    else:  # it has none, so this list ends after about 10,000 tasks; those of one state go on
        order = {"sort_by": "sent_at", "sort_dir": "desc"}
    return {"statuses": sorted(chosen), **order}
