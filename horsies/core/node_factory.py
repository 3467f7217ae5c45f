"""`task.node(...)(...)` and `task.map_node(...)(...)`: a node in two steps, first its options, then its arguments, so
that a type checker can check the arguments against the task (F-11, F-95).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from horsies.core.errors import ErrorCode, SourceLocation, WorkflowValidationError
from horsies.core.text import refuse_unknown

if TYPE_CHECKING:
    from horsies.core.models.tasks import TaskError, TaskResult
    from horsies.core.models.workflow import nodes, results
    from horsies.core.task_decorator import TaskFunction
    from horsies.core.tasks.definition import Flags

P = ParamSpec("P")
Q = ParamSpec("Q")
T = TypeVar("T")
E = TypeVar("E")

_ARGUMENTS = "; arguments of the task go into the second call"


class NodeOptions(TypedDict, total=False):
    """The options of a node, without its arguments."""

    waits_for: Iterable[nodes.Node[Any]]
    args_from: Mapping[str, nodes.Node[Any]] | None
    workflow_ctx_from: Iterable[nodes.Node[Any]] | None
    node_id: str | None
    queue: str | None
    priority: int | None
    allow_failed_deps: bool
    join: results.Join
    min_success: int | None
    good_until: datetime | None
    flags: Flags | None


class MapNodeOptions(NodeOptions, total=False):
    """The same for a map: `join` and `min_success` are about its elements."""

    max_parallel: int | None


@dataclass(frozen=True, slots=True)
class NodeFactory(Generic[P, T]):
    """A task with the options of a node; call it with the arguments, by name."""

    task: TaskFunction[P, T]
    options: NodeOptions = field(default_factory=lambda: NodeOptions())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> nodes.TaskNode[T]:
        """A node of the task. `from_node(n)` as an argument is the result of another node."""
        if args:
            raise _by_position(self.task.task_name)
        from horsies.core.models.workflow import nodes

        return nodes.TaskNode(self.task, kwargs, **self.options)


@dataclass(frozen=True, slots=True)
class MapNodeFactory(Generic[P, T]):
    """A task with the options of a map; call it with the arguments that all elements have in common, by name."""

    task: TaskFunction[..., T]
    over: nodes.Node[Any]
    param: str | None = None
    options: MapNodeOptions = field(default_factory=lambda: MapNodeOptions())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> nodes.MapNode[T]:
        """A node that runs the task for each element."""
        if args:
            raise _by_position(self.task.task_name)
        from horsies.core.models.workflow import nodes

        return nodes.MapNode(self.task, self.over, self.param, kwargs, **self.options)


class MakesNodes(Generic[P, T]):
    """The methods of a task that make nodes from it."""

    def node(self, **options: Unpack[NodeOptions]) -> NodeFactory[P, T]:
        """A node of a workflow that runs this task: `task.node(waits_for=[a])(x=1, y=from_node(a))`."""
        refuse_unknown("node", options, NodeOptions.__optional_keys__, _ARGUMENTS)
        return NodeFactory(cast("TaskFunction[P, T]", self), options)

    @overload
    def map_node(
        self: MakesNodes[Concatenate[E, Q], T],
        *,
        over: TaskResult[Sequence[E], TaskError],
        param: None = None,
        **options: Unpack[MapNodeOptions],
    ) -> MapNodeFactory[Q, T]: ...
    @overload
    def map_node(
        self: MakesNodes[Concatenate[E, Q], T],
        *,
        over: TaskResult[Sequence[TaskResult[E, TaskError]], TaskError],
        param: None = None,
        **options: Unpack[MapNodeOptions],
    ) -> MapNodeFactory[Q, T]: ...
    @overload
    def map_node(
        self, *, over: TaskResult[Sequence[Any], TaskError], param: str, **options: Unpack[MapNodeOptions]
    ) -> MapNodeFactory[..., T]: ...
    def map_node(self, *, over: Any, param: str | None = None, **options: Unpack[MapNodeOptions]) -> Any:
        """A node that runs this task for each element of a list from another node:
        `task.map_node(over=from_node(numbers), max_parallel=10)(y=1)`. The elements go to `param`, or to the first
        parameter without an argument."""
        from horsies.core.models.workflow import nodes

        refuse_unknown("map_node", options, MapNodeOptions.__optional_keys__, _ARGUMENTS)
        source = over.node if isinstance(over, nodes.FromNode) else over
        if not isinstance(source, nodes.Node):
            raise WorkflowValidationError(
                f"map_node must go over from_node(...), not {type(over).__name__}",
                code=ErrorCode.WORKFLOW_INVALID_ARGS_FROM,
                location=SourceLocation.of_caller(),
            )
        return MapNodeFactory(cast("TaskFunction[..., T]", self), source, param, options)


def _by_position(task_name: str) -> WorkflowValidationError:
    return WorkflowValidationError(
        f"a node of task {task_name!r} takes its arguments by name",
        code=ErrorCode.WORKFLOW_POSITIONAL_ARGS_NOT_SUPPORTED,
        location=SourceLocation.of_caller(),
        help_text="task.node()(name=value)",
    )
