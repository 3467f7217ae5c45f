"""The five tabs (M-80), and the desk on which they lie: which tab is in front, and what has been opened above it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from horsies.core.models.monitoring.cluster import ActiveWorkerInfo, ScheduleStateInfo, WorkerStateInfo
from horsies.core.models.monitoring.tasks import (
    Breakdown,
    MonitoringResult,
    TaskListPage,
    TaskSummary,
    WorkflowRunSummary,
)
from horsies.core.types import Err, TaskStatus
from horsies.tui import view_dashboard, view_maintenance, view_tasks, view_workers, view_workflows
from horsies.tui.details import HelpView, History, RunView, TaskView, WorkerView
from horsies.tui.lines import ListRow, line
from horsies.tui.polls import Poll, ServerClock
from horsies.tui.source import DataSource, TaskSearch
from horsies.tui.view_dashboard import Trend
from horsies.tui.views import LIST_S, Overview, Room, Screenful, View, facts_view, nothing_yet

TREND_S = 30.0
REGISTRY_S = 5.0
AN_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class DashboardTab(View):
    """Everything at a glance."""

    title = "Dashboard"

    def __init__(self, source: DataSource, overview: Overview) -> None:
        super().__init__()
        self._overview = overview
        self._source = source
        self._trend: Poll[Trend] = Poll(self._ask_trend, TREND_S)

    def polls(self) -> Sequence[Poll[Any]]:
        known = self._overview.snapshot.value is not None
        return (self._overview.snapshot, self._overview.held, *((self._trend,) if known else ()))

    async def _ask_trend(self) -> MonitoringResult[Trend]:
        return await self._source.trend(self._overview.live_workers())

    def lines(self, room: Room, now: datetime) -> Screenful:
        snapshot = self._overview.snapshot.value
        if snapshot is None:
            return Screenful([], [nothing_yet(self._overview.snapshot)])
        alerts = self._overview.alerts()
        return Screenful([], view_dashboard.dashboard(snapshot, alerts, self._trend.value, room.width, now))

    def enter(self, row: ListRow) -> View | None:
        return facts_view(row)

    def value(self, row: ListRow | None) -> Any:
        return self._overview.snapshot.value if row is None else row.value


class WorkersTab(View):
    """The workers, and the history of the selected one."""

    title = "Workers"
    follows_cursor = True

    def __init__(self, source: DataSource) -> None:
        super().__init__()
        self._source = source
        self._workers: Poll[tuple[WorkerStateInfo, ...]] = Poll(source.workers, LIST_S)
        self.history = History(source)

    def polls(self) -> Sequence[Poll[Any]]:
        worker = self._worker()
        return (self._workers, *self.history.polls(None if worker is None else worker.worker_id))

    def _worker(self) -> WorkerStateInfo | None:
        found = self._workers.value or ()
        return next((one for one in found if one.worker_id == self.selected), found[0] if found else None)

    def lines(self, room: Room, now: datetime) -> Screenful:
        found = self._workers.value
        if found is None:
            return Screenful([], [nothing_yet(self._workers)])
        if not found:
            return Screenful([], [ListRow(line(("no worker is registered", "dim")))])
        head, rows = view_workers.workers(found, room.width, now)
        worker = self._worker()
        return Screenful([head], rows, [] if worker is None else self.history.lines(worker, room, now))

    def press(self, key: str) -> bool:
        return self.history.press(key)

    def enter(self, row: ListRow) -> View | None:
        if not isinstance(row.value, WorkerStateInfo):
            return None
        view = WorkerView(self._source, self._workers, row.value)
        view.history.window = self.history.window
        return view

    def value(self, row: ListRow | None) -> Any:
        return self._workers.value if row is None else row.value


class TasksTab(View):
    """Tasks by worker. One group is open at a time, with one page of its tasks."""

    title = "Tasks"

    def __init__(self, source: DataSource) -> None:
        super().__init__()
        self._source = source
        self.chosen: frozenset[TaskStatus] | None = None
        self.opened: str | None = None
        self._found: TaskSearch | None = None
        self._groups: Poll[Breakdown] = Poll(self._ask_groups, LIST_S)
        self._page: Poll[TaskListPage] | None = None
        self._cursors: list[str | None] = [None]

    def polls(self) -> Sequence[Poll[Any]]:
        if self.chosen == frozenset():
            return ()
        return (self._groups,) if self._page is None else (self._groups, self._page)

    async def _ask_groups(self) -> MonitoringResult[Breakdown]:
        if self.search and self._found is None:
            matched = await self._source.search_tasks(self.search)
            if isinstance(matched, Err):
                return matched
            self._found = matched.ok_value
        return await self._source.groups(self.chosen or (), self._found)

    def frame(self, room: Room, now: datetime) -> Screenful:
        return self.lines(room, now)  # the database searches

    def lines(self, room: Room, now: datetime) -> Screenful:
        searched = "" if not self.search else self._found.sentence() if self._found else f'searching "{self.search}"'
        is_none = self.chosen == frozenset()
        found = self._groups.value
        title = view_tasks.filter_line(self.chosen, searched, None if is_none else found)
        if is_none:
            return Screenful([title], [ListRow(line(("no state is chosen: p c u o f choose one, a all", "dim")))])
        if found is None:
            return Screenful([title], [nothing_yet(self._groups)])
        if not found.rows:
            return Screenful([title], [ListRow(line(("no tasks", "dim")))])
        head, rows = view_tasks.groups(found, self.opened, self._tasks(room, now), room.width)
        return Screenful([title, head], rows)

    def _tasks(self, room: Room, now: datetime) -> list[ListRow]:
        page = None if self._page is None else self._page.value
        return view_tasks.page_of(page, len(self._cursors) - 1, room.width, now)

    def enter(self, row: ListRow) -> View | None:
        if isinstance(row.value, TaskSummary):
            return TaskView(self._source, row.value.task_id)
        if row.key == view_tasks.NEXT and self._page is not None and self._page.value is not None:
            self._turn([*self._cursors, self._page.value.next_cursor])
        elif row.key == view_tasks.PREVIOUS and len(self._cursors) > 1:
            self._turn(self._cursors[:-1])
        elif row.key is not None:
            self._toggle(row.key)
        return None

    def _turn(self, cursors: list[str | None]) -> None:
        """Another page of the open group, with the cursor above it."""
        self._cursors = cursors
        self.selected = self.opened
        self._open_page()

    def _toggle(self, key: str) -> None:
        self.opened = None if self.opened == key else key
        self._cursors = [None]
        self._open_page()

    def _open_page(self) -> None:
        if self.opened is None:
            self._page = None
            return
        worker = None if self.opened == view_tasks.group_key(None) else self.opened.removeprefix("worker:")
        self._page = Poll(partial(self._source.page, worker, self.chosen or (), self._found, self._cursors[-1]), LIST_S)

    def press(self, key: str) -> bool:
        if key in view_tasks.KEYS:
            self._choose(view_tasks.toggled(self.chosen, view_tasks.KEYS[key]))
        elif key in ("a", "n"):
            self._choose(None if key == "a" else frozenset())
        else:
            return False
        return True

    def _choose(self, chosen: frozenset[TaskStatus] | None) -> None:
        self.chosen = None if chosen == frozenset(TaskStatus) else chosen
        self._again()

    def _again(self) -> None:
        """Ask anew; what is shown stays until the answer comes."""
        shown = self._groups.value
        self._groups = Poll(self._ask_groups, LIST_S)
        self._groups.value = shown
        self._cursors = [None]
        self._open_page()

    def find(self, text: str) -> View | None:
        if AN_ID.fullmatch(text.strip().lower()):
            return TaskView(self._source, text.strip().lower())
        self.search, self._found = text, None
        self._again()
        return None

    def value(self, row: ListRow | None) -> Any:
        return self._groups.value if row is None else row.value


class WorkflowsTab(View):
    """Workflows with their progress, active ones first."""

    title = "Workflows"

    def __init__(self, source: DataSource) -> None:
        super().__init__()
        self._source = source
        self._runs: Poll[tuple[WorkflowRunSummary, ...]] = Poll(partial(source.runs, ""), LIST_S)

    def polls(self) -> Sequence[Poll[Any]]:
        return (self._runs,)

    def lines(self, room: Room, now: datetime) -> Screenful:
        found = self._runs.value
        if found is None:
            return Screenful([], [nothing_yet(self._runs)])
        if not found:
            return Screenful([], [ListRow(line(("no workflows", "dim")))])
        head, rows = view_workflows.runs(found, room.width, now)
        return Screenful([head], rows)

    def enter(self, row: ListRow) -> View | None:
        return RunView(self._source, row.value.workflow_id) if isinstance(row.value, WorkflowRunSummary) else None

    def find(self, text: str) -> View | None:
        if AN_ID.fullmatch(text.strip().lower()):
            return RunView(self._source, text.strip().lower())
        shown = self._runs.value
        self.search = text
        self._runs = Poll(partial(self._source.runs, text), LIST_S)
        self._runs.value = shown
        return None

    def value(self, row: ListRow | None) -> Any:
        return self._runs.value if row is None else row.value


class MaintenanceTab(View):
    """Reports, dead workers, the registry, schedules."""

    title = "Maintenance"

    def __init__(self, source: DataSource, overview: Overview) -> None:
        super().__init__()
        self._workers: Poll[tuple[WorkerStateInfo, ...]] = Poll(source.workers, LIST_S)
        self._held: Poll[Mapping[str, int]] = overview.held
        self._registry: Poll[tuple[ActiveWorkerInfo, ...]] = Poll(source.registry, REGISTRY_S)
        self._schedules: Poll[tuple[ScheduleStateInfo, ...]] = Poll(source.schedules, REGISTRY_S)

    def polls(self) -> Sequence[Poll[Any]]:
        return (self._workers, self._held, self._registry, self._schedules)

    def lines(self, room: Room, now: datetime) -> Screenful:
        workers, registry, schedules = self._workers.value, self._registry.value, self._schedules.value
        if workers is None or registry is None or schedules is None:
            return Screenful([], [nothing_yet(self._workers)])
        held = self._held.value or {}
        rows = view_maintenance.maintenance(workers, held, registry, schedules, room.width, now)
        return Screenful([], rows)

    def enter(self, row: ListRow) -> View | None:
        return facts_view(row)


class Desk:
    """The tabs, and above each of them what has been opened."""

    def __init__(self, source: DataSource, clock: ServerClock) -> None:
        self.clock = clock
        self.overview = Overview(source, clock)
        self.tabs: tuple[View, ...] = (
            DashboardTab(source, self.overview),
            WorkersTab(source),
            TasksTab(source),
            WorkflowsTab(source),
            MaintenanceTab(source, self.overview),
        )
        self.tab = 0
        self._above: dict[int, list[View]] = {place: [] for place in range(len(self.tabs))}

    @property
    def view(self) -> View:
        """What is in front."""
        above = self._above[self.tab]
        return above[-1] if above else self.tabs[self.tab]

    @property
    def trail(self) -> list[str]:
        """The titles of what has been opened, the last one in front."""
        return [view.title for view in self._above[self.tab]]

    def polls(self) -> list[Poll[Any]]:
        """What is needed now. The snapshot is always wanted, because every tab says how many alerts there are."""
        return list(dict.fromkeys((*self.view.polls(), self.overview.snapshot, self.overview.held)))

    def go(self, tab: int) -> None:
        self.tab = tab
        self.overview.pace(is_in_front=tab == 0)

    def open(self, view: View | None) -> None:
        if view is not None:
            self._above[self.tab].append(view)

    def help(self) -> None:
        """Open the help, or close it."""
        if isinstance(self.view, HelpView):
            self.back()
        else:
            self.open(HelpView())

    def back(self) -> bool:
        """Close what was opened last, or forget the search; False if there is neither."""
        if self._above[self.tab]:
            self._above[self.tab].pop()
            return True
        if self.view.search:
            self.view.find("")
            return True
        return False
