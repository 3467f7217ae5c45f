"""Read the queue and act on it: async functions whose first parameter is the broker."""

# fmt: off
from horsies.core.brokers.actions import (
    TaskActionError, TaskActionErrorCode, TaskActionResult, TaskCancelled, TaskDue, TaskDueResult, TaskRerun,
    TaskRerunResult, WorkerActionError, WorkerActionErrorCode, WorkerActionResult, WorkerDraining, cancel_task,
    drain_worker, rerun_task, run_task_now,
)
from horsies.core.models.monitoring.bulk import BulkResult
from horsies.core.models.monitoring.cluster import (
    ActiveWorkerInfo, Alert, DatabaseFacts, Explanation, LivenessReport, QueueInfo, ScheduleStateInfo, Snapshot,
    TaskCount, Why, WorkerHistoryPoint, WorkerPingInfo, WorkerStateInfo,
)
from horsies.core.models.monitoring.history import (
    AuditEntry, AuditOutcome, AuditPage, FailureGroup, FailureReport, RollupPoint, RollupSeries,
)
from horsies.core.models.monitoring.tasks import (
    Breakdown, ErrorCategory, ErrorFacet, Facets, FacetValue, GroupBy, GroupRow, MonitoringErrorCode,
    MonitoringQueryError, MonitoringResult, SortBy, SortDir, StatusCount, TaskArguments, TaskDetail, TaskListPage,
    TaskSummary, WorkflowEdge, WorkflowNodeInfo, WorkflowRunDetail, WorkflowRunSummary, WorkflowTaskDetail, to_jsonable,
)
from horsies.core.models.tasks import TaskAttemptInfo
from horsies.core.monitoring.audit import Deed, audited, list_audit, record_audit
from horsies.core.monitoring.explain import explain_task
from horsies.core.monitoring.many import cancel_tasks, move_tasks, rerun_tasks
from horsies.core.monitoring.queries import (
    get_worker_history, get_workflow_node, get_workflow_run, list_active_workers, list_schedules, list_workers,
    list_workflow_names, list_workflow_runs, ping,
)
from horsies.core.monitoring.rollups import list_failures, read_rollup
from horsies.core.monitoring.snapshot import take_snapshot
from horsies.core.monitoring.task_queries import (
    get_task_arguments, get_task_detail, get_task_summaries, list_tasks, task_breakdown, task_facets, task_stats,
)
from horsies.core.monitoring.troubles import list_alerts
# fmt: on

__all__ = [
    "ActiveWorkerInfo",
    "Alert",
    "AuditEntry",
    "AuditOutcome",
    "AuditPage",
    "Breakdown",
    "BulkResult",
    "DatabaseFacts",
    "Deed",
    "ErrorCategory",
    "ErrorFacet",
    "Explanation",
    "FacetValue",
    "Facets",
    "FailureGroup",
    "FailureReport",
    "GroupBy",
    "GroupRow",
    "LivenessReport",
    "MonitoringErrorCode",
    "MonitoringQueryError",
    "MonitoringResult",
    "QueueInfo",
    "RollupPoint",
    "RollupSeries",
    "ScheduleStateInfo",
    "Snapshot",
    "SortBy",
    "SortDir",
    "StatusCount",
    "TaskActionError",
    "TaskActionErrorCode",
    "TaskActionResult",
    "TaskAttemptInfo",
    "TaskArguments",
    "TaskCancelled",
    "TaskCount",
    "TaskDetail",
    "TaskDue",
    "TaskDueResult",
    "TaskListPage",
    "TaskRerun",
    "TaskRerunResult",
    "TaskSummary",
    "Why",
    "WorkerActionError",
    "WorkerActionErrorCode",
    "WorkerActionResult",
    "WorkerDraining",
    "WorkerHistoryPoint",
    "WorkerPingInfo",
    "WorkerStateInfo",
    "WorkflowEdge",
    "WorkflowNodeInfo",
    "WorkflowRunDetail",
    "WorkflowRunSummary",
    "WorkflowTaskDetail",
    "audited",
    "cancel_task",
    "cancel_tasks",
    "drain_worker",
    "explain_task",
    "get_task_arguments",
    "get_task_detail",
    "get_task_summaries",
    "get_worker_history",
    "get_workflow_node",
    "get_workflow_run",
    "list_active_workers",
    "list_alerts",
    "list_audit",
    "list_failures",
    "list_schedules",
    "list_tasks",
    "list_workers",
    "list_workflow_names",
    "list_workflow_runs",
    "move_tasks",
    "ping",
    "read_rollup",
    "record_audit",
    "rerun_task",
    "rerun_tasks",
    "run_task_now",
    "take_snapshot",
    "task_breakdown",
    "task_facets",
    "task_stats",
    "to_jsonable",
]
