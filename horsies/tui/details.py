"""What `Enter` opens (M-80): a worker, a task, a workflow with its nodes, a node; and the help of `?` (M-81)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any

from horsies.cli.one_task import as_values
from horsies.core.models.monitoring.cluster import Explanation, WorkerHistoryPoint, WorkerStateInfo
from horsies.core.models.monitoring.tasks import (
    MonitoringResult,
    TaskDetail,
    WorkflowNodeInfo,
    WorkflowRunDetail,
    WorkflowTaskDetail,
)
from horsies.core.models.notes import LogPlace, TaskLogLine
from horsies.core.types import TASK_TERMINAL_STATES, WORKFLOW_TASK_TERMINAL_STATES, Err, Ok
from horsies.tui import view_tasks, view_workers, view_workflows
from horsies.tui.lines import Line, ListRow, line, named
from horsies.tui.polls import Poll
from horsies.tui.source import DataSource
from horsies.tui.views import LIST_S, Room, Screenful, View, nothing_yet

WHY_S = 5.0
HISTORY_S = 10.0
MOST_LOGGED = 500  # lines
LOOKS = 20  # reads of a log at once; the next question goes on
POINTS = 120  # of a chart


class History:
    """The charts of one worker; `[` and `]` change their window."""

    def __init__(self, source: DataSource) -> None:
        self._source = source
        self.window = view_workers.FIRST_WINDOW
        self._subject: tuple[str, str] | None = None
        self._poll: Poll[tuple[WorkerHistoryPoint, ...]] | None = None

    def polls(self, worker_id: str | None) -> Sequence[Poll[Any]]:
        if worker_id is None:
            return ()
        if self._poll is None or self._subject != (worker_id, self.window):
            seconds = view_workers.WINDOWS[self.window].total_seconds()
            self._subject = (worker_id, self.window)
            self._poll = Poll(partial(self._source.history, worker_id, seconds, POINTS), HISTORY_S)
        return (self._poll,)

    def press(self, key: str) -> bool:
        names = list(view_workers.WINDOWS)
        step = {"[": -1, "]": 1}.get(key)
        if step is None:
            return False
        self.window = names[min(len(names) - 1, max(0, names.index(self.window) + step))]
        return True

    def lines(self, worker: WorkerStateInfo, room: Room, now: datetime) -> list[Line]:
        """In at most half of the room; nothing if that is too little."""
        height = min(room.height // 2, 3 * view_workers.HIGHEST + 3)
        if height < 3 * view_workers.LOWEST + 3:
            return []
        [poll] = self.polls(worker.worker_id)
        return [(), *view_workers.history(worker, poll.value, self.window, now, room.width, height - 1)]


class WorkerView(View):
    """Everything about one worker, as its list knows it."""

    def __init__(self, source: DataSource, poll: Poll[tuple[WorkerStateInfo, ...]], worker: WorkerStateInfo) -> None:
        super().__init__()
        self.title = f"worker {worker.worker_id}"
        self._poll = poll
        self._worker = worker
        self.history = History(source)

    def polls(self) -> Sequence[Poll[Any]]:
        return (self._poll, *self.history.polls(self._worker.worker_id))

    def lines(self, room: Room, now: datetime) -> Screenful:
        rows = view_workers.worker_detail(self._newest(), room.width, now)
        return Screenful([], rows, self.history.lines(self._worker, room, now))

    def press(self, key: str) -> bool:
        return self.history.press(key)

    def value(self, row: ListRow | None) -> Any:
        return self._newest()

    def _newest(self) -> WorkerStateInfo:
        found = [one for one in self._poll.value or () if one.worker_id == self._worker.worker_id]
        self._worker = found[0] if found else self._worker
        return self._worker


class LogTail:
    """The last lines that a task has logged; each question reads only what is new."""

    def __init__(self, source: DataSource, task_id: str) -> None:
        self._source = source
        self._task_id = task_id
        self._place = LogPlace()
        self._lines: deque[TaskLogLine] = deque(maxlen=MOST_LOGGED)
        self.poll: Poll[Sequence[TaskLogLine]] = Poll(self._ask, LIST_S)

    async def _ask(self) -> MonitoringResult[Sequence[TaskLogLine]]:
        for _ in range(LOOKS):
            found = await self._source.logs(self._task_id, self._place)
            if isinstance(found, Err):
                return found
            self._place = found.ok_value.place
            self._lines += found.ok_value.lines
            if found.ok_value.is_last:
                break
        return Ok(tuple(self._lines))


class TaskView(View):
    """A task in full, why it is not running, and what it has logged."""

    def __init__(self, source: DataSource, task_id: str) -> None:
        super().__init__()
        self.title = f"task {task_id}"
        self._task_id = task_id
        self._task: Poll[TaskDetail | None] = Poll(partial(source.task, task_id), LIST_S)
        self._why: Poll[Explanation | None] = Poll(partial(source.why, task_id), WHY_S)
        self._logs = LogTail(source, task_id)

    def polls(self) -> Sequence[Poll[Any]]:
        found = self._task.value
        if found is None:
            return (self._task,)
        is_open = found.status not in TASK_TERMINAL_STATES
        return (self._task, *((self._why,) if is_open else ()), self._logs.poll)

    def lines(self, room: Room, now: datetime) -> Screenful:
        if self._task.value is None:
            return Screenful([], [_absent(self._task, f"there is no task {self._task_id}")])
        rows = view_tasks.task_detail(self._task.value, self._why.value, room.width, now)
        return Screenful([], [*rows, *view_tasks.logged(self._logs.poll.value or (), room.width)])

    def value(self, row: ListRow | None) -> Any:
        return None if self._task.value is None else as_values(self._task.value)


class RunView(View):
    """A workflow with its nodes."""

    def __init__(self, source: DataSource, workflow_id: str) -> None:
        super().__init__()
        self.title = f"workflow {workflow_id}"
        self._source = source
        self._workflow_id = workflow_id
        self._run: Poll[WorkflowRunDetail | None] = Poll(partial(source.run, workflow_id), LIST_S)
        self._opened: frozenset[int] = frozenset()

    def polls(self) -> Sequence[Poll[Any]]:
        return (self._run,)

    def lines(self, room: Room, now: datetime) -> Screenful:
        found = self._run.value
        if found is None:
            return Screenful([], [_absent(self._run, f"there is no workflow {self._workflow_id}")])
        return Screenful([], view_workflows.run_detail(found, self._opened, self.search, room.width, now))

    def frame(self, room: Room, now: datetime) -> Screenful:
        return self.lines(room, now)  # what is folded is searched too

    def enter(self, row: ListRow) -> View | None:
        node = row.value
        if not isinstance(node, WorkflowNodeInfo):
            return None
        if node.node_type == "MAP":
            self._opened ^= {node.task_index}
            return None
        if node.sub_workflow_id is not None:
            return RunView(self._source, node.sub_workflow_id)
        return NodeView(self._source, self._workflow_id, node)

    def value(self, row: ListRow | None) -> Any:
        return row.value if row is not None and row.value is not None else self._run.value


class NodeView(View):
    """A node of a workflow, and the task that runs it."""

    def __init__(self, source: DataSource, workflow_id: str, node: WorkflowNodeInfo) -> None:
        super().__init__()
        self.title = f"node {node.node_id}"
        self._node: Poll[WorkflowTaskDetail | None] = Poll(partial(source.node, workflow_id, node.task_index), LIST_S)
        self._why: Poll[Explanation | None] = Poll(partial(source.why, f"{workflow_id}:{node.task_index}"), WHY_S)

    def polls(self) -> Sequence[Poll[Any]]:
        found = self._node.value
        is_open = found is not None and found.node.status not in WORKFLOW_TASK_TERMINAL_STATES
        return (self._node, self._why) if is_open else (self._node,)

    def lines(self, room: Room, now: datetime) -> Screenful:
        if self._node.value is None:
            return Screenful([], [_absent(self._node, "there is no such node")])
        return Screenful([], view_workflows.node_detail(self._node.value, self._why.value, room.width, now))

    def value(self, row: ListRow | None) -> Any:
        return self._node.value


# By what they are for, as the help shows them.
KEYS: dict[str, tuple[tuple[str, str], ...]] = {
    "Everywhere": (
        ("1 2 3 4 5", "the tabs: Dashboard, Workers, Tasks, Workflows, Maintenance"),
        ("↑ ↓", "select, or scroll where nothing can be selected; also k and j"),
        ("PgUp PgDn", "a screen up or down, at the end of a page the next page; also Home and End"),
        ("Enter", "open what is selected; → as well, and ← closes it"),
        ("/", "search on this tab; Enter searches, Esc forgets it. An id opens its task or workflow"),
        ("y", "copy what is selected as JSON, through the terminal (OSC 52), which must allow it"),
        ("r", "refresh now"),
        ("t", "theme: the terminal's own colours, dark, light"),
        ("?", "this help"),
        ("Esc", "close a detail, forget a search; otherwise quit"),
        ("q", "quit"),
    ),
    "Workers": (("[ ]", "shorter or longer window of the charts: 5m, 30m, 1h, 6h, 24h"),),
    "Tasks": (
        ("p c u o f", "show pending, claimed, running, completed, failed tasks; again: no longer"),
        ("x e", "the same for cancelled and expired tasks"),
        ("a", "all states"),
        ("n", "none, to begin a choice"),
    ),
}


class HelpView(View):
    """The keys."""

    title = "help"

    def lines(self, room: Room, now: datetime) -> Screenful:
        rows = [ListRow(line(("Keys", "bold"))), ListRow(())]
        for heading, keys in KEYS.items():
            rows.append(ListRow(line((heading, "head"))))
            rows += map(ListRow, named(((f"  {key}", meaning) for key, meaning in keys), room.width))
            rows.append(ListRow(()))
        return Screenful([], rows)


def _absent(poll: Poll[Any], sentence: str) -> ListRow:
    return nothing_yet(poll) if poll.answered_at is None else ListRow(line((sentence, "warn")))
