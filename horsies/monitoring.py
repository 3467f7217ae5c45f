"""Read the queue and act on it: async functions whose first parameter is the broker."""

from horsies.core.models.tasks import TaskAttemptInfo
from horsies.core.monitoring.actions import (
    TaskActionError,
    TaskActionErrorCode,
    TaskActionResult,
    TaskCancelled,
    cancel_task,
)
from horsies.core.monitoring.detail import (
    get_task_detail,
    get_worker_history,
    list_active_workers,
    list_schedules,
    list_workers,
    ping,
)
from horsies.core.monitoring.explain import explain_task
from horsies.core.monitoring.models.answers import (
    MonitoringErrorCode,
    MonitoringQueryError,
    MonitoringResult,
    to_jsonable,
)
from horsies.core.monitoring.models.explanations import Explanation, Why
from horsies.core.monitoring.models.snapshots import DatabaseFacts, QueueInfo, ScheduleStateInfo, Snapshot, TaskCount
from horsies.core.monitoring.models.tasks import (
    Breakdown,
    ErrorCategory,
    ErrorFacet,
    Facets,
    FacetValue,
    GroupBy,
    GroupRow,
    SortBy,
    SortDir,
    StatusCount,
    TaskDetail,
    TaskListPage,
    TaskSummary,
)
from horsies.core.monitoring.models.workers import (
    ActiveWorkerInfo,
    LivenessReport,
    WorkerHistoryPoint,
    WorkerPingInfo,
    WorkerStateInfo,
)
from horsies.core.monitoring.models.workflows import (
    WorkflowEdge,
    WorkflowNodeInfo,
    WorkflowRunDetail,
    WorkflowRunSummary,
    WorkflowTaskDetail,
)
from horsies.core.monitoring.queries import list_tasks, task_breakdown, task_facets, task_stats
from horsies.core.monitoring.reruns import TaskRerun, TaskRerunResult, rerun_task
from horsies.core.monitoring.snapshot import take_snapshot
from horsies.core.monitoring.workflow_queries import (
    get_workflow_node,
    get_workflow_run,
    list_workflow_names,
    list_workflow_runs,
)

__all__ = [
    "ActiveWorkerInfo",
    "Breakdown",
    "DatabaseFacts",
    "ErrorCategory",
    "ErrorFacet",
    "Explanation",
    "FacetValue",
    "Facets",
    "GroupBy",
    "GroupRow",
    "LivenessReport",
    "MonitoringErrorCode",
    "MonitoringQueryError",
    "MonitoringResult",
    "QueueInfo",
    "ScheduleStateInfo",
    "Snapshot",
    "SortBy",
    "SortDir",
    "StatusCount",
    "TaskActionError",
    "TaskActionErrorCode",
    "TaskActionResult",
    "TaskAttemptInfo",
    "TaskCancelled",
    "TaskCount",
    "TaskDetail",
    "TaskListPage",
    "TaskRerun",
    "TaskRerunResult",
    "TaskSummary",
    "Why",
    "WorkerHistoryPoint",
    "WorkerPingInfo",
    "WorkerStateInfo",
    "WorkflowEdge",
    "WorkflowNodeInfo",
    "WorkflowRunDetail",
    "WorkflowRunSummary",
    "WorkflowTaskDetail",
    "cancel_task",
    "explain_task",
    "get_task_detail",
    "get_worker_history",
    "get_workflow_node",
    "get_workflow_run",
    "list_active_workers",
    "list_schedules",
    "list_tasks",
    "list_workers",
    "list_workflow_names",
    "list_workflow_runs",
    "ping",
    "rerun_task",
    "take_snapshot",
    "task_breakdown",
    "task_facets",
    "task_stats",
    "to_jsonable",
]
