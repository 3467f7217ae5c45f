"""What the query API returns (M-47): frozen values with plain fields. `to_jsonable` converts any of them to JSON."""

from horsies.core.monitoring.models.answers import (
    MonitoringErrorCode,
    MonitoringQueryError,
    MonitoringResult,
    to_jsonable,
)
from horsies.core.monitoring.models.explanations import (
    Explanation,
    Why,
)
from horsies.core.monitoring.models.snapshots import (
    DatabaseFacts,
    QueueInfo,
    ScheduleStateInfo,
    Snapshot,
    TaskCount,
)
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
    "TaskCount",
    "TaskDetail",
    "TaskListPage",
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
    "to_jsonable",
]
