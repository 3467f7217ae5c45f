"""Values for the terminal dashboard that never change, a source that answers with them, and the text that is on its
screen."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import sin
from pathlib import Path
from typing import Any

from textual.app import App

from horsies.core.models.monitoring import cluster, tasks
from horsies.core.models.notes import LogPlace, TaskLogLine
from horsies.core.models.tasks import TaskAttemptInfo
from horsies.core.store.notes import Page
from horsies.core.types import Ok
from horsies.core.types.status import TaskAttemptOutcome, TaskStatus, WorkflowStatus, WorkflowTaskStatus
from horsies.tui.polls import ServerClock
from horsies.tui.source import TaskSearch
from horsies.tui.view_dashboard import Trend

SCREENS = Path(__file__).parent / "services" / "tui" / "screens"
NOW = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)
WEB, DEAD = "web-1:4242:9f3a11c0", "web-2:17:00c0ffee"
TASK = "0198c5de-0001-7000-8000-000000000001"
RUN = "0198c5de-0002-7000-8000-000000000002"


def ago(**span: float) -> datetime:
    return NOW - timedelta(**span)


def a_worker(worker_id: str = WEB, **fields: Any) -> cluster.WorkerStateInfo:
    known: dict[str, Any] = {
        "worker_id": worker_id,
        "is_live": True,
        "hostname": worker_id.partition(":")[0],
        "pid": 4242,
        "started_at": ago(hours=3),
        "last_heartbeat_at": ago(seconds=4),
        "silence_seconds": 4.0,
        "queues": ("default", "mail"),
        "task_names": ("mail.send", "report.build"),
        "processes": 4,
        "tasks_running": 3,
        "tasks_claimed": 1,
        "cpu_percent": 12.5,
        "memory_usage_mb": 80.0,
        "memory_percent": 2.0,
        "children_memory_mb": 240.0,
        "max_claim_per_worker": 0,
        "cluster_wide_cap": None,
        "queue_priorities": {"default": 100, "mail": 1},
        "queue_max_concurrency": {"mail": 5},
        "prefetch_buffer": 0,
        "snapshot_at": ago(seconds=20),
        "concurrency": 1,
    }
    return cluster.WorkerStateInfo(**{**known, **fields})


def a_dead_worker(**fields: Any) -> cluster.WorkerStateInfo:
    gone = {"is_live": False, "silence_seconds": 400.0, "last_heartbeat_at": ago(seconds=400), "pid": 17}
    return a_worker(DEAD, **{**gone, "snapshot_at": ago(seconds=410), **fields})


def a_queue(name: str = "default", **fields: Any) -> cluster.QueueInfo:
    known: dict[str, Any] = {
        "waiting": 12,
        "due": 10,
        "scheduled": 2,
        "claimed": 1,
        "running": 3,
        "oldest_due_seconds": 5.0,
        "ended_last_minute": 120,
        "live_workers": 1,
    }
    return cluster.QueueInfo(name, **{**known, **fields})


def a_schedule(name: str = "nightly", **fields: Any) -> cluster.ScheduleStateInfo:
    known: dict[str, Any] = {
        "source": "code",
        "paused": False,
        "last_run_at": ago(hours=9),
        "next_run_at": NOW + timedelta(hours=15),
        "last_task_id": TASK,
        "run_count": 41,
        "lag_seconds": 0.0,
        "config_hash": "h",
        "updated_at": ago(hours=9),
        "definition": None,
    }
    return cluster.ScheduleStateInfo(name, **{**known, **fields})


COUNTS = {
    TaskStatus.PENDING: 12,
    TaskStatus.CLAIMED: 1,
    TaskStatus.RUNNING: 3,
    TaskStatus.COMPLETED: 4_900,
    TaskStatus.FAILED: 61,
    TaskStatus.CANCELLED: 2,
}


def a_snapshot(**fields: Any) -> cluster.Snapshot:
    known: dict[str, Any] = {
        "taken_at": NOW,
        "queues": (a_queue(), a_queue("mail", max_concurrency=5, waiting=0, due=0, scheduled=0)),
        "task_counts": tuple(cluster.TaskCount(state, "default", "a", number) for state, number in COUNTS.items()),
        "ended_window_seconds": 3_600.0,
        "workers": (a_worker(),),
        "schedules": (a_schedule(),),
        "workflow_counts": {"RUNNING": 2, "PAUSED": 1},
        "database": cluster.DatabaseFacts("18.1", 10, "always", 0.0, 9, 2, 0.1),
    }
    return cluster.Snapshot(**{**known, **fields})


def points(number: int = 60, every: timedelta = timedelta(minutes=1)) -> tuple[cluster.WorkerHistoryPoint, ...]:
    """A history that goes up and down, the oldest first."""
    return tuple(
        cluster.WorkerHistoryPoint(
            NOW - every * back, 2 + round(2 * wave), 1, 40.0 + 30 * wave, 80.0, 2.0, 200.0 + number - back
        )
        for back in range(number - 1, -1, -1)
        for wave in [sin(back / 8)]
    )


def a_task(task_id: str = TASK, **fields: Any) -> tasks.TaskSummary:
    known: dict[str, Any] = {
        "task_name": "mail.send",
        "queue_name": "mail",
        "priority": 1,
        "status": TaskStatus.FAILED,
        "sent_at": ago(minutes=2),
        "enqueued_at": ago(minutes=2),
        "claimed_at": ago(seconds=70),
        "started_at": ago(seconds=70),
        "ended_at": ago(seconds=69),
        "next_retry_at": None,
        "good_until": None,
        "retry_count": 1,
        "max_retries": 3,
        "error_code": "MAILBOX_FULL",
        "error_category": tasks.ErrorCategory.DOMAIN,
        "worker_id": WEB,
        "worker_hostname": "web-1",
        "worker_pid": 4243,
        "workflow_id": None,
    }
    return tasks.TaskSummary(task_id, **{**known, **fields})


def an_attempt(**fields: Any) -> TaskAttemptInfo:
    known: dict[str, Any] = {
        "id": 1,
        "task_id": TASK,
        "attempt": 1,
        "outcome": TaskAttemptOutcome.FAILED,
        "will_retry": True,
        "started_at": ago(seconds=90),
        "finished_at": ago(seconds=89),
        "error_code": "MAILBOX_FULL",
        "error_message": "the mailbox is full",
        "failed_reason": None,
        "worker_id": WEB,
        "worker_hostname": "web-1",
        "worker_pid": 4243,
        "worker_process_name": "child-1",
        "created_at": ago(seconds=89),
    }
    return TaskAttemptInfo(**{**known, **fields})


def a_detail(**fields: Any) -> tasks.TaskDetail:
    known: dict[str, Any] = {
        "task_id": TASK,
        "task_name": "mail.send",
        "queue_name": "mail",
        "priority": 1,
        "args": None,
        "kwargs": '{"to": "someone@example.org"}',
        "status": TaskStatus.FAILED,
        "sent_at": ago(minutes=2),
        "enqueued_at": ago(minutes=2),
        "claimed_at": ago(seconds=70),
        "started_at": ago(seconds=70),
        "completed_at": None,
        "failed_at": ago(seconds=69),
        "ended_at": ago(seconds=69),
        "result": '{"err": {"error_code": "MAILBOX_FULL", "message": "the mailbox is full", "data": {"size": 2000}}}',
        "failed_reason": None,
        "error_code": "MAILBOX_FULL",
        "error_category": tasks.ErrorCategory.DOMAIN,
        "claimed": False,
        "claimed_by_worker_id": WEB,
        "good_until": None,
        "retry_count": 1,
        "max_retries": 3,
        "next_retry_at": None,
        "task_options": None,
        "worker_pid": 4243,
        "worker_hostname": "web-1",
        "worker_process_name": "child-1",
        "claim_expires_at": None,
        "enqueue_sha": None,
        "created_at": ago(minutes=2),
        "updated_at": ago(seconds=69),
        "finalizing_at": None,
        "claim_seq": 2,
        "flags": {},
        "recovery_enrolled": False,
        "start_failures": 0,
        "workflow_id": None,
        "idempotency_key": None,
        "sent_by": None,
        "attempts": (an_attempt(attempt=2, will_retry=False), an_attempt()),
    }
    return tasks.TaskDetail(**{**known, **fields})


def a_run(workflow_id: str = RUN, **fields: Any) -> tasks.WorkflowRunSummary:
    known: dict[str, Any] = {
        "name": "order",
        "definition_key": "shop.order",
        "status": WorkflowStatus.RUNNING,
        "open_nodes": 2,
        "error_code": None,
        "parent_workflow_id": None,
        "root_workflow_id": None,
        "depth": 0,
        "good_until": None,
        "sent_at": ago(seconds=95),
        "started_at": ago(seconds=95),
        "paused_at": None,
        "completed_at": None,
        "nodes": 6,
        "nodes_ended": 3,
    }
    return tasks.WorkflowRunSummary(workflow_id, **{**known, **fields})


def a_node(index: int, node_id: str, **fields: Any) -> tasks.WorkflowNodeInfo:
    known: dict[str, Any] = {
        "node_type": "TASK",
        "task_name": "order.step",
        "queue_name": "default",
        "status": WorkflowTaskStatus.COMPLETED,
        "task_id": f"task-{index}",
        "sub_workflow_id": None,
        "map_index": None,
        "map_position": None,
        "join_type": "all",
        "deps_total": 0,
        "deps_completed": 0,
        "deps_failed": 0,
        "deps_skipped": 0,
        "error_code": None,
        "ready_at": ago(seconds=95),
        "enqueued_at": ago(seconds=95),
        "started_at": ago(seconds=90),
        "completed_at": ago(seconds=60),
    }
    return tasks.WorkflowNodeInfo(index, node_id, **{**known, **fields})


NODES = (
    a_node(0, "charge"),
    a_node(1, "items", node_type="MAP", status=WorkflowTaskStatus.RUNNING, task_id=None, completed_at=None),
    a_node(2, "ship", node_type="SUBWORKFLOW", status=WorkflowTaskStatus.PENDING, sub_workflow_id="the-child",
           task_id=None, started_at=None, completed_at=None),
    a_node(3, "items[0]", map_index=1, map_position=0),
    a_node(4, "items[1]", map_index=1, map_position=1, status=WorkflowTaskStatus.FAILED, error_code="SOLD_OUT"),
    a_node(5, "items[2]", map_index=1, map_position=2, status=WorkflowTaskStatus.RUNNING, completed_at=None),
)  # fmt: skip


def a_run_detail(**fields: Any) -> tasks.WorkflowRunDetail:
    known: dict[str, Any] = {
        "run": a_run(),
        "on_error": "FAIL",
        "output_index": 2,
        "success_policy": None,
        "result": None,
        "error": None,
        "nodes": NODES,
        "edges": (tasks.WorkflowEdge(0, 1), tasks.WorkflowEdge(1, 2)),
        "failed_indexes": (4,),
        "total_nodes": len(NODES),
        "total_edges": 2,
    }
    return tasks.WorkflowRunDetail(**{**known, **fields})


def a_node_detail(node: tasks.WorkflowNodeInfo = NODES[0], **fields: Any) -> tasks.WorkflowTaskDetail:
    known: dict[str, Any] = {
        "workflow_id": RUN,
        "node": node,
        "priority": 100,
        "task_kwargs": '{"order": 7}',
        "task_options": None,
        "dependencies": (),
        "dependents": (1,),
        "args_from": {},
        "workflow_ctx_from": None,
        "min_success": None,
        "allow_failed_deps": False,
        "good_until": None,
        "sub_workflow_key": None,
        "sub_workflow_summary": None,
        "previous_task_ids": (),
        "result": None,
        "task": a_detail(task_id="task-0", status=TaskStatus.COMPLETED, result='{"ok": 5}', error_code=None,
                         attempts=()),
    }  # fmt: skip
    return tasks.WorkflowTaskDetail(**{**known, **fields})


def why_it_waits() -> cluster.Explanation:
    return cluster.Explanation(TASK, cluster.Why.IN_LINE, "3 due tasks of its queue come before it", TASK)


def a_group(worker: str | None, **counts: int) -> tasks.GroupRow:
    found = tuple(tasks.StatusCount(state, counts[state.name]) for state in TaskStatus if state.name in counts)
    return tasks.GroupRow(worker, sum(counts.values()), found)


@dataclass
class FixedSource:
    """Answers at once, always the same; `asked` are the questions."""

    the_snapshot: cluster.Snapshot = field(default_factory=a_snapshot)
    the_held: Mapping[str, int] = field(default_factory=dict)
    the_workers: tuple[cluster.WorkerStateInfo, ...] = (a_worker(), a_dead_worker())
    the_groups: tuple[tasks.GroupRow, ...] = (
        a_group(WEB, RUNNING=3, COMPLETED=4_900, FAILED=61),
        a_group(None, PENDING=12, CANCELLED=2),
    )
    the_tasks: tuple[tasks.TaskSummary, ...] = (
        a_task(),
        a_task("0198c5de-0001-7000-8000-000000000003", status=TaskStatus.COMPLETED, error_code=None, retry_count=0),
    )
    the_task: tasks.TaskDetail | None = field(default_factory=a_detail)
    the_runs: tuple[tasks.WorkflowRunSummary, ...] = (
        a_run(),
        a_run("0198c5de-0002-7000-8000-000000000009", name="import", status=WorkflowStatus.FAILED, nodes_ended=6,
              completed_at=ago(minutes=20), error_code="NO_FILE"),
    )  # fmt: skip
    the_run: tasks.WorkflowRunDetail | None = field(default_factory=a_run_detail)
    the_log: list[TaskLogLine] = field(
        default_factory=lambda: [
            TaskLogLine(1, 1, ago(seconds=70), "INFO", "mail", "connecting"),
            TaskLogLine(1, 2, ago(seconds=69), "WARNING", "mail", "the mailbox is full\nits size is 2000", dropped=3),
        ]
    )
    cursors: Mapping[str | None, str | None] = field(default_factory=dict)
    asked: list[tuple[Any, ...]] = field(default_factory=list)

    async def snapshot(self) -> tasks.MonitoringResult[cluster.Snapshot]:
        return Ok(self.the_snapshot)

    async def held(self) -> tasks.MonitoringResult[Mapping[str, int]]:
        return Ok(self.the_held)

    async def trend(self, workers: Sequence[str]) -> tasks.MonitoringResult[Trend]:
        self.asked.append(("trend", *workers))
        return Ok(Trend({worker: points() for worker in workers}))

    async def workers(self) -> tasks.MonitoringResult[tuple[cluster.WorkerStateInfo, ...]]:
        return Ok(self.the_workers)

    async def history(
        self, worker_id: str, seconds: float, number: int
    ) -> tasks.MonitoringResult[tuple[cluster.WorkerHistoryPoint, ...]]:
        self.asked.append(("history", worker_id, seconds))
        return Ok(points(number, timedelta(seconds=seconds) / number))

    async def registry(self) -> tasks.MonitoringResult[tuple[cluster.ActiveWorkerInfo, ...]]:
        return Ok(
            tuple(
                cluster.ActiveWorkerInfo(
                    one.worker_id, not one.is_live, one.started_at, one.last_heartbeat_at, one.hostname, one.pid
                )
                for one in self.the_workers
            )
        )

    async def schedules(self) -> tasks.MonitoringResult[tuple[cluster.ScheduleStateInfo, ...]]:
        return Ok(self.the_snapshot.schedules)

    async def search_tasks(self, text: str) -> tasks.MonitoringResult[TaskSearch]:
        return Ok(TaskSearch(text, "task_names", ("mail.send",) if text in "mail.send" else ()))

    async def groups(
        self, states: Collection[TaskStatus], search: TaskSearch | None
    ) -> tasks.MonitoringResult[tasks.Breakdown]:
        self.asked.append(("groups", frozenset(states), search and search.text))
        total = sum(group.total for group in self.the_groups)
        return Ok(tasks.Breakdown("worker", self.the_groups, len(self.the_groups), total))

    async def page(
        self, worker: str | None, states: Collection[TaskStatus], search: TaskSearch | None, after: str | None
    ) -> tasks.MonitoringResult[tasks.TaskListPage]:
        self.asked.append(("page", worker, after))
        return Ok(tasks.TaskListPage(self.the_tasks, 2, 0, 100, next_cursor=self.cursors.get(after)))

    async def task(self, task_id: str) -> tasks.MonitoringResult[tasks.TaskDetail | None]:
        self.asked.append(("task", task_id))
        return Ok(self.the_task)

    async def why(self, subject: str) -> tasks.MonitoringResult[cluster.Explanation | None]:
        return Ok(why_it_waits())

    async def logs(self, task_id: str, after: LogPlace) -> tasks.MonitoringResult[Page]:
        self.asked.append(("logs", task_id, after.line))
        return Ok(Page(self.the_log if after.line == 0 else [], LogPlace(1, 2), is_last=True))

    async def runs(self, text: str) -> tasks.MonitoringResult[tuple[tasks.WorkflowRunSummary, ...]]:
        self.asked.append(("runs", text))
        return Ok(tuple(run for run in self.the_runs if text in run.name) or self.the_runs)

    async def run(self, workflow_id: str) -> tasks.MonitoringResult[tasks.WorkflowRunDetail | None]:
        self.asked.append(("run", workflow_id))
        return Ok(self.the_run)

    async def node(self, workflow_id: str, index: int) -> tasks.MonitoringResult[tasks.WorkflowTaskDetail | None]:
        return Ok(a_node_detail(NODES[index]))


def a_still_clock() -> ServerClock:
    return ServerClock(lambda: NOW)


def screen_of(app: App[Any]) -> str:
    """What stands on the screen, line by line, without colours."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)
