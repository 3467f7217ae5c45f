"""What happened to workflows in one round, as plain values; see `history`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

FLOW_TERMINAL = frozenset({"COMPLETED", "FAILED", "CANCELLED"})
NODE_TERMINAL = frozenset({"COMPLETED", "FAILED", "SKIPPED"})


@dataclass(frozen=True, slots=True)
class Started:
    """A workflow that a producer was told has been started."""

    key: str
    workflow_id: str
    at: float


@dataclass(frozen=True, slots=True)
class Control:
    """What was asked about a workflow: "pause", "resume" or "cancel"; `is_sure` if it was told that it has happened."""

    what: str
    workflow_id: str
    at: float
    is_sure: bool = True


@dataclass(frozen=True, slots=True)
class Flow:
    """A row of horsies_workflows in the end."""

    id: str
    kind: str
    status: str
    open_nodes: int = 0
    error_code: str | None = None
    parent_id: str | None = None
    parent_index: int | None = None
    on_error: str = "FAIL"
    has_deadline: bool = False

    @property
    def was_stopped(self) -> bool:
        """Its nodes did not all come to the ends that the rules of joins say."""
        return self.status == "CANCELLED" or self.error_code == "WORKFLOW_EXPIRED"


@dataclass(frozen=True, slots=True)
class Node:
    """A row of horsies_workflow_tasks in the end, with what its task says. `counts`: of the dependencies (or elements)
    that have completed, failed, been skipped; `kwargs` are those its task was given."""

    workflow_id: str
    index: int
    node_id: str
    status: str
    node_type: str = "TASK"
    task_id: str | None = None
    child_id: str | None = None
    error_code: str | None = None
    dependencies: tuple[int, ...] = ()
    dependents: tuple[int, ...] = ()
    total: int = 0
    counts: tuple[int, int, int] = (0, 0, 0)
    join: str = "all"
    min_success: int | None = None
    allow_failed: bool = False
    args_from: dict[str, int] = field(default_factory=dict)
    map_index: int | None = None
    map_position: int | None = None
    max_parallel: int | None = None
    result: Any = None  # as JSON
    task_status: str | None = None
    task_result: Any = None
    kwargs: dict[str, Any] | None = None

    @property
    def key(self) -> tuple[str, int]:
        return self.workflow_id, self.index


@dataclass(frozen=True, slots=True)
class FlowMove:
    """A change of the state of a workflow, or of a node if it has an index, as a trigger saw it."""

    number: int
    workflow_id: str
    index: int | None
    at: float
    was: str | None
    status: str
