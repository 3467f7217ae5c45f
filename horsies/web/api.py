"""The routes of the JSON API that read (M-63), as a table; those that change something are in `actions.py`. Each
answers with what the query API returns (M-45).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from horsies import monitoring
from horsies.core import distribution
from horsies.core.models.monitoring import cluster, history, tasks
from horsies.core.models.notes import LogPlace, TaskLogLine
from horsies.core.monitoring import filters
from horsies.core.schema.install import SCHEMA_VERSION
from horsies.core.store.notes import LOGGED_ROWS
from horsies.core.types import Ok, TaskStatus, WorkflowStatus
from horsies.web.answers import Refusal, not_done
from horsies.web.endpoints import EVENTS, Asked, Endpoint, Param, Text, Texts, answered, query
from horsies.web.events import LiveChange, LiveStream
from horsies.web.schema_state import SchemaState

LONGEST_PING_S = 10.0
LONGEST_THRESHOLD_S = 365 * 86_400.0
LONGEST_STEP_S = 366 * 86_400


@dataclass(frozen=True, slots=True)
class WebMeta:
    """What this dashboard can do, and for whom. `actions_disabled_reason` says why the one who asks cannot act now."""

    schema_version: int | None
    expected_schema_version: int
    schema_compatible: bool
    schema_state: SchemaState
    actions_enabled: bool
    can_act: bool
    actions_disabled_reason: str | None
    has_app: bool
    payloads_hidden: bool
    title: str
    version: str


@dataclass(frozen=True, slots=True)
class QueueList:
    """The queues at one moment; `missing` has the parts that could not be read, and why."""

    taken_at: datetime
    queues: tuple[cluster.QueueInfo, ...]
    missing: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TaskLogPage:
    """What a task has logged, the oldest first. `next_cursor`, as `after`, continues, also when the task has logged
    more; it is None if there was nothing yet. `is_last`: there are no more lines at the moment; `is_hidden`: this
    dashboard does not show them."""

    task_name: str
    lines: tuple[TaskLogLine, ...]
    next_cursor: str | None
    is_last: bool = True
    is_hidden: bool = False


async def meta(asked: Asked) -> WebMeta:
    board = asked.dashboard
    facts = await board.schema.look()
    reason = None
    if not board.config.enable_actions:
        reason = "actions are not enabled (--enable-actions, enable_actions)"
    elif not await board.policy.can_act(asked.request):
        reason = "you may look, but not act"
    else:
        try:
            facts.refuse_acting()
        except Refusal as refusal:
            reason = refusal.message
    return WebMeta(
        schema_version=facts.version,
        expected_schema_version=SCHEMA_VERSION,
        schema_compatible=facts.state is SchemaState.MATCH,
        schema_state=facts.state,
        actions_enabled=board.config.enable_actions,
        can_act=reason is None,
        actions_disabled_reason=reason,
        has_app=board.has_app,
        payloads_hidden=board.config.hide_payloads,
        title=board.config.title,
        version=distribution.version(),
    )


async def events(asked: Asked) -> LiveStream:
    board, request = asked.dashboard, asked.request

    async def may_stay() -> bool:
        return bool(await board.policy.can_view(request))

    return await board.streams.open(may_stay)


async def queues(asked: Asked, *, exact: bool) -> QueueList:
    found = await snapshot(asked, exact=exact)
    return QueueList(found.taken_at, found.queues, found.missing)


async def snapshot(asked: Asked, *, exact: bool) -> cluster.Snapshot:
    if exact:
        with asked.dashboard.place_for_exact():
            return answered(await monitoring.take_snapshot(asked.dashboard.broker, exact=True))
    return answered(await monitoring.take_snapshot(asked.dashboard.broker))


async def node(asked: Asked, *, workflow_id: str, index: int) -> tasks.WorkflowTaskDetail:
    return answered(await monitoring.get_workflow_node(asked.dashboard.broker, workflow_id, index))


async def explanation(asked: Asked, *, id: str) -> cluster.Explanation:
    return answered(await monitoring.explain_task(asked.dashboard.broker, id))


async def logs(asked: Asked, *, task_id: str, after: str | None) -> TaskLogPage:
    board = asked.dashboard
    known = answered(Ok(answered(await monitoring.get_task_summaries(board.broker, [task_id])) or None))
    name = known[0].task_name
    if board.config.hide_payloads:
        return TaskLogPage(name, (), after, is_hidden=True)
    place = LogPlace() if after is None else LogPlace(*map(int, after.split(":")))
    read = await board.broker.read_logs_async(task_id, place, LOGGED_ROWS)
    if not isinstance(read, Ok):
        raise not_done(read.error.code, board.database.redact(read.error.message), retryable=read.error.retryable)
    found = read.value
    cursor = after if found.place == place else f"{found.place.claim_seq}:{found.place.line}"
    return TaskLogPage(name, tuple(found.lines), cursor, found.is_last)


async def statistics(
    asked: Asked,
    *,
    since: datetime | None,
    until: datetime | None,
    step_seconds: int,
    queues: list[str],
    task_names: list[str],
) -> history.RollupSeries:
    first = since or (until or datetime.now(UTC)) - timedelta(hours=1)
    chosen: dict[str, Any] = {"queues": queues, "task_names": task_names, "step": timedelta(seconds=step_seconds)}
    return answered(await monitoring.read_rollup(asked.dashboard.broker, since=first, until=until, **chosen))


def _within_reach(moment: datetime) -> datetime:
    """A time from which one can go a little further, in any time zone."""
    if not 1900 <= moment.year < 9000:
        raise ValueError("a year from 1900 to 8999 is possible")
    return moment


Limit = Annotated[int, Field(ge=1, le=filters.MOST)]
Seconds = Annotated[float, Field(ge=0, le=LONGEST_THRESHOLD_S, allow_inf_nan=False)]
Moment = Annotated[datetime, AfterValidator(_within_reach)]
TASK_ID = Param("task_id", Text, "the id of the task")
WORKFLOW_ID = Param("workflow_id", Text, "the id of the workflow")
EXACT = Param("exact", bool, "read every row, however long it takes", False)
STATUSES = Param("statuses", list[TaskStatus], "only tasks in one of these states", [])
CATEGORIES = Param("error_categories", list[tasks.ErrorCategory], "only error codes of these families", [])
RETRIED = Param("retried_only", bool, "only tasks that were retried", False)
LIMIT = Param("limit", Limit, "how many", filters.DEFAULT_LIMIT)
FILTERS = (
    Param("task_names", Texts, "only tasks with one of these names", []),
    Param("queues", Texts, "only tasks of these queues", []),
    Param("workers", Texts, "only tasks of these workers", []),
    Param("error_codes", Texts, "only tasks with one of these error codes", []),
    CATEGORIES,
    RETRIED,
)
AGES_AND_KEYS = (
    Param("sent_after", Moment | None, "only tasks that were sent then or later", None),
    Param("sent_before", Moment | None, "only tasks that were sent before", None),
    Param("id_prefix", Text | None, "only tasks whose id begins like this", None),
    Param("idempotency_key", Text | None, "only tasks with this idempotency key", None),
    Param("id_suffix", Text | None, "only tasks whose id ends like this", None),
    Param("uncoded_only", bool, "only tasks without an error code", False),
)
PAGE = (
    Param("sort_by", tasks.SortBy, "the order; some need certain statuses", "id"),
    Param("sort_dir", tasks.SortDir, "the direction", "desc"),
    Param("offset", Annotated[int, Field(ge=0, le=filters.DEEPEST_OFFSET)], "how many are skipped", 0),
    LIMIT,
    Param("after", Text | None, "the next_cursor of the page before", None),
)


def _get(path: str, doc: str, answer: Any, ask: Any, *params: Param, **more: Any) -> Endpoint:
    return Endpoint("GET", path, doc, answer, ask, params, **more)


READS: tuple[Endpoint, ...] = (
    _get("meta", "What this dashboard can do, and for whom.", WebMeta, meta, needs_tables=False),
    _get(
        "events",
        "Live updates as server-sent events: what has changed, as ids. Nothing is sent twice or kept.",
        LiveChange,
        events,
        media_type=EVENTS,
    ),
    _get(
        "tasks/stats",
        "How many tasks are in each state.",
        tuple[tasks.StatusCount, ...],
        query(monitoring.task_stats),
        *FILTERS,
        EXACT,
    ),
    _get(
        "tasks/facets",
        "The names, queues, workers and error codes that occur, with counts.",
        tasks.Facets,
        query(monitoring.task_facets),
        STATUSES,
        CATEGORIES,
        RETRIED,
        EXACT,
    ),
    _get(
        "tasks/breakdown",
        "Tasks by worker, name or queue and their states.",
        tasks.Breakdown,
        query(monitoring.task_breakdown),
        Param("group_by", tasks.GroupBy, "what the groups are"),
        *FILTERS,
        STATUSES,
        LIMIT,
        EXACT,
    ),
    _get(
        "tasks",
        "A page of tasks.",
        tasks.TaskListPage,
        query(monitoring.list_tasks),
        *FILTERS,
        STATUSES,
        *AGES_AND_KEYS,
        *PAGE,
        EXACT,
    ),
    _get(
        "tasks/{task_id}",
        "A task with all its columns and attempts; its payloads are JSON texts.",
        tasks.TaskDetail,
        query(monitoring.get_task_detail),
        TASK_ID,
    ),
    _get(
        "tasks/{task_id}/logs",
        "What a task has logged and is kept, of all attempts.",
        TaskLogPage,
        logs,
        TASK_ID,
        Param(
            "after",
            Annotated[str, Field(pattern="^[0-9]{1,9}:[0-9]{1,9}$")] | None,
            "the next_cursor of the page before",
            None,
        ),
    ),
    _get("workflows/names", "The names of all workflows.", tuple[str, ...], query(monitoring.list_workflow_names)),
    _get(
        "workflows",
        "Workflows: active ones first, then the last ended.",
        tuple[tasks.WorkflowRunSummary, ...],
        query(monitoring.list_workflow_runs),
        Param("name", Text | None, "only workflows with this name", None),
        Param("status", WorkflowStatus | None, "only workflows in this state", None),
        LIMIT,
    ),
    _get(
        "workflows/{workflow_id}",
        "A workflow with its nodes and edges.",
        tasks.WorkflowRunDetail,
        query(monitoring.get_workflow_run),
        WORKFLOW_ID,
    ),
    _get(
        "workflows/{workflow_id}/nodes/{index}",
        "One node in full, with its current task.",
        tasks.WorkflowTaskDetail,
        node,
        WORKFLOW_ID,
        Param("index", int, "the index of the node"),
    ),
    _get(
        "workers",
        "Every registered worker with its newest snapshot.",
        tuple[cluster.WorkerStateInfo, ...],
        query(monitoring.list_workers),
    ),
    _get(
        "workers/ping",
        "Which workers answer right now.",
        cluster.LivenessReport,
        query(monitoring.ping),
        Param(
            "timeout_seconds",
            Annotated[float, Field(ge=0, le=LONGEST_PING_S, allow_inf_nan=False)],
            "how long to wait for them",
            2.0,
        ),
    ),
    _get(
        "workers/{worker_id}/history",
        "The newest snapshots of a worker, oldest first.",
        tuple[cluster.WorkerHistoryPoint, ...],
        query(monitoring.get_worker_history),
        Param("worker_id", Text, "the id of the worker"),
        Param("limit", Limit, "how many", filters.MOST),
        Param("window_seconds", Seconds | None, "so many that are spread over that time, as for a chart", None),
    ),
    _get(
        "recovery/workers",
        "Every registered worker, and whether it has been silent for too long.",
        tuple[cluster.ActiveWorkerInfo, ...],
        query(monitoring.list_active_workers),
        Param("threshold_seconds", Seconds, "the silence after which a worker is stale", 300.0),
    ),
    _get(
        "schedules",
        "The state of each schedule.",
        tuple[cluster.ScheduleStateInfo, ...],
        query(monitoring.list_schedules),
    ),
    _get(
        "statistics",
        "What became of tasks, how long they waited and ran, and what was waiting, by time, as for a chart.",
        history.RollupSeries,
        statistics,
        Param("since", Moment | None, "from then on; otherwise from an hour before the end", None),
        Param("until", Moment | None, "until then; otherwise until now", None),
        Param("step_seconds", Annotated[int, Field(ge=60, le=LONGEST_STEP_S, multiple_of=60)], "whole minutes", 60),
        Param("queues", Texts, "only of these queues", []),
        Param("task_names", Texts, "only of tasks with one of these names", []),
    ),
    _get(
        "failures",
        "Which tasks failed with which codes, the most frequent first.",
        monitoring.FailureReport,
        query(monitoring.list_failures),
        Param("since", datetime | None, "from then on; otherwise of the last day", None),
        LIMIT,
    ),
    _get(
        "audit",
        "What people did, the newest first.",
        monitoring.AuditPage,
        query(monitoring.list_audit),
        Param("target_id", Text | None, "only what was done to this task, worker, workflow or schedule", None),
        Param("actor", Text | None, "only what this person did", None),
        Param("action", Text | None, "only actions of this kind", None),
        LIMIT,
        Param("after", Text | None, "the next_cursor of the page before", None),
    ),
    _get("alerts", "What is wrong now, the worst first.", tuple[cluster.Alert, ...], query(monitoring.list_alerts)),
    _get("queues", "Each queue right now.", QueueList, queues, EXACT),
    _get("snapshot", "Everything at one moment.", cluster.Snapshot, snapshot, EXACT),
    _get(
        "explain/{id}",
        "Why a task, or a node (workflow_id:index), is not running.",
        cluster.Explanation,
        explanation,
        Param("id", Text, "the id of the task, or of the workflow and the index of the node"),
    ),
)
