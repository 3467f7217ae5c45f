"""A workflow as it was given, before its checks: the checks read it, and the plan is made from it.

Nodes are compared by identity: a copy counts as its original.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from horsies.core.errors import ErrorCode, HorsiesError, SourceLocation, WorkflowValidationError
from horsies.core.models.workflow.nodes import MapNode, Node, NodeKey, TaskNode, automatic_id

if TYPE_CHECKING:
    from horsies.core.models.workflow.enums import OnError
    from horsies.core.models.workflow.policies import SuccessPolicy


@dataclass(frozen=True)
class Draft:
    """What was given; `declared` is the declared type of a definition's output."""

    name: Any
    nodes: tuple[Node[Any], ...]
    ids: tuple[str, ...]
    on_error: OnError | str
    output: Any
    success_policy: SuccessPolicy | None
    definition_key: Any
    app: Any
    location: SourceLocation | None
    declared: tuple[Any, ...] = ()
    kwargs_json: dict[int, str | None] = field(default_factory=dict)  # by index, written while they are checked

    @classmethod
    def of(
        cls,
        name: Any,
        tasks: Iterable[Node[Any]],
        on_error: OnError | str,
        output: Any,
        success_policy: SuccessPolicy | None,
        definition_key: str | None,
        app: Any,
        location: SourceLocation | None,
        declared: tuple[Any, ...],
    ) -> Draft:
        """A draft of what was given. Something that is not a node is refused at once, because nothing else can be
        checked about it."""
        nodes = tuple(tasks)
        for index, node in enumerate(nodes):
            if not isinstance(node, Node):
                raise _not_a_node(name, index, node, location)
        ids = tuple(
            node.given_id if node.given_id is not None else automatic_id(node.name, index)
            for index, node in enumerate(nodes)
        )
        owner = app if app is not None else _app_of(nodes)
        return cls(name, nodes, ids, on_error, output, success_policy, definition_key, owner, location, declared)

    @cached_property
    def places(self) -> Mapping[int, int]:
        """The index of each node, by the `id()` of its original."""
        return {id(node.origin): index for index, node in enumerate(self.nodes)}

    @cached_property
    def by_id(self) -> Mapping[str, int]:
        return {node_id: index for index, node_id in enumerate(self.ids)}

    @cached_property
    def dependencies(self) -> tuple[tuple[int, ...], ...]:
        """For each node, the indexes of its dependencies; nodes that are not in the workflow are left out."""
        return tuple(
            tuple(found for other in node.waits_for if (found := self.index_of(other)) is not None)
            for node in self.nodes
        )

    @cached_property
    def queues(self) -> Mapping[str, int]:
        """The queues of the app and the priorities that tasks get there."""
        return {} if self.app is None else {queue.name: queue.priority for queue in self.app.config.queues()}

    @property
    def output_index(self) -> int | None:
        return None if self.output is None else self.index_of(self.output)

    def index_of(self, node: Any) -> int | None:
        """The place of a node, given as an object, by its key or by its id; None if it is not in the workflow."""
        if isinstance(node, Node):
            return self.places.get(id(node.origin))
        if isinstance(node, NodeKey):
            return self.by_id.get(node.node_id)
        return self.by_id.get(node) if isinstance(node, str) else None

    def label(self, index: int) -> str:
        return f"workflow {self.name!r}, node {self.ids[index]!r}"

    def error(self, code: ErrorCode, text: str, help_text: str | None = None) -> WorkflowValidationError:
        """A mistake in the workflow as a whole."""
        message = f"workflow {self.name!r}: {text}"
        return WorkflowValidationError(message, code=code, location=self.location, help_text=help_text)

    def node_error(
        self, index: int, code: ErrorCode, text: str, help_text: str | None = None
    ) -> WorkflowValidationError:
        """A mistake in one node, at the place where the node was made."""
        location = self.nodes[index].location or self.location
        return WorkflowValidationError(
            f"{self.label(index)}: {text}", code=code, location=location, help_text=help_text
        )


def map_param(node: MapNode[Any]) -> str | None:
    """The parameter that gets the elements: the named one, or else the first parameter without an argument."""
    if node.param is not None:
        return node.param
    signature = node.fn.codec.signature
    taken = {*node.kwargs, *node.args_from}
    return next((name for name in signature.kinds if name in signature.keyword and name not in taken), None)


def type_of(node: Any) -> Any:
    """The type that a node gives; `Any` if it cannot be known, which is reported separately."""
    try:
        return node.ok_type()
    except (HorsiesError, AttributeError):
        return Any


def _app_of(nodes: Iterable[Node[Any]]) -> Any:
    return next((node.fn.app for node in nodes if isinstance(node, TaskNode) and hasattr(node.fn, "app")), None)


def _not_a_node(name: Any, index: int, given: Any, location: SourceLocation | None) -> WorkflowValidationError:
    is_task = hasattr(given, "task_name")
    return WorkflowValidationError(
        f"workflow {name!r}: tasks[{index}] is {'a task' if is_task else type(given).__name__}, not a node",
        code=ErrorCode.WORKFLOW_INVALID_DEPENDENCY,
        location=location,
        help_text="make a node from a task with task.node(...)(...)",
    )
