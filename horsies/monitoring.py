"""Read the queue and act on it: async functions whose first parameter is the broker."""

# fmt: off
from horsies.core.brokers.actions import (
    TaskActionError as TaskActionError, TaskActionErrorCode as TaskActionErrorCode,
    TaskActionResult as TaskActionResult, TaskCancelled as TaskCancelled, TaskDue as TaskDue,
    TaskDueResult as TaskDueResult, TaskRerun as TaskRerun, TaskRerunResult as TaskRerunResult,
    WorkerActionError as WorkerActionError, WorkerActionErrorCode as WorkerActionErrorCode,
    WorkerActionResult as WorkerActionResult, WorkerDraining as WorkerDraining, cancel_task as cancel_task,
    drain_worker as drain_worker, rerun_task as rerun_task, run_task_now as run_task_now,
)
from horsies.core.models.monitoring.bulk import BulkResult as BulkResult
from horsies.core.models.monitoring.cluster import (
    ActiveWorkerInfo as ActiveWorkerInfo, Alert as Alert, DatabaseFacts as DatabaseFacts, Explanation as Explanation,
    LivenessReport as LivenessReport, QueueInfo as QueueInfo, ScheduleStateInfo as ScheduleStateInfo,
    Snapshot as Snapshot, TaskCount as TaskCount, Why as Why, WorkerHistoryPoint as WorkerHistoryPoint,
    WorkerPingInfo as WorkerPingInfo, WorkerStateInfo as WorkerStateInfo,
)
from horsies.core.models.monitoring.history import (
    AuditEntry as AuditEntry, AuditOutcome as AuditOutcome, AuditPage as AuditPage, FailureGroup as FailureGroup,
    FailureReport as FailureReport, RollupPoint as RollupPoint, RollupSeries as RollupSeries,
)
from horsies.core.models.monitoring.tasks import (
    Breakdown as Breakdown, ErrorCategory as ErrorCategory, ErrorFacet as ErrorFacet, Facets as Facets,
    FacetValue as FacetValue, GroupBy as GroupBy, GroupRow as GroupRow, MonitoringErrorCode as MonitoringErrorCode,
    MonitoringQueryError as MonitoringQueryError, MonitoringResult as MonitoringResult, SortBy as SortBy,
    SortDir as SortDir, StatusCount as StatusCount, TaskArguments as TaskArguments, TaskDetail as TaskDetail,
    TaskListPage as TaskListPage, TaskSummary as TaskSummary, WorkflowEdge as WorkflowEdge,
    WorkflowNodeInfo as WorkflowNodeInfo, WorkflowRunDetail as WorkflowRunDetail,
    WorkflowRunSummary as WorkflowRunSummary, WorkflowTaskDetail as WorkflowTaskDetail, to_jsonable as to_jsonable,
)
from horsies.core.models.tasks import TaskAttemptInfo as TaskAttemptInfo
from horsies.core.monitoring.audit import (
    Deed as Deed, audited as audited, list_audit as list_audit, record_audit as record_audit,
)
from horsies.core.monitoring.explain import explain_task as explain_task
from horsies.core.monitoring.many import (
    cancel_tasks as cancel_tasks, move_tasks as move_tasks, rerun_tasks as rerun_tasks,
)
from horsies.core.monitoring.queries import (
    get_worker_history as get_worker_history, get_workflow_node as get_workflow_node,
    get_workflow_run as get_workflow_run, list_active_workers as list_active_workers, list_schedules as list_schedules,
    list_workers as list_workers, list_workflow_names as list_workflow_names, list_workflow_runs as list_workflow_runs,
    ping as ping,
)
from horsies.core.monitoring.rollups import list_failures as list_failures, read_rollup as read_rollup
from horsies.core.monitoring.snapshot import take_snapshot as take_snapshot
from horsies.core.monitoring.task_queries import (
    get_task_arguments as get_task_arguments, get_task_detail as get_task_detail,
    get_task_summaries as get_task_summaries, list_tasks as list_tasks, task_breakdown as task_breakdown,
    task_facets as task_facets, task_stats as task_stats,
)
from horsies.core.monitoring.troubles import list_alerts as list_alerts
