"""A workflow as it was given (`Draft`), and as plain values that can be written (`WorkflowPlan`).

The checks look at the draft, before anybody knows whether it makes sense; in a draft, a copy of a node counts as that
node. `plan_of` makes the plan, which has no objects of the user. A start writes it, and it travels as JSON from the
helper child that has called a `build_with` (F-60).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import TypeAdapter

from horsies.core.errors import ErrorCode, HorsiesError, SourceLocation, WorkflowValidationError
from horsies.core.models.workflow.nodes import MapNode, Node, NodeKey, SubWorkflowNode, TaskNode, automatic_id
from horsies.core.models.workflow.results import Join, OnError
from horsies.core.tasks.definition import flags_of

if TYPE_CHECKING:
    from horsies.core.models.workflow.nodes import SuccessPolicy


NodeType: TypeAlias = Literal["TASK", "SUBWORKFLOW", "MAP"]

# What a parameter takes of its source (F-33): the whole result, its value, or the values of all elements of a map.
Form: TypeAlias = Literal["result", "value", "values"]


@dataclass(frozen=True, slots=True)
class MapOptions:
    """How a map node becomes elements (F-95): which source, which parameter, how many at once, and whether the elements
    are the values of the results in the list."""

    over: int
    param: str
    max_parallel: int | None = None
    takes_values: bool = False


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One node: the columns of its row that are known before it runs (D-50). Its index is its place in the plan."""

    node_id: str
    node_type: NodeType
    task_name: str  # or the name of the child workflow
    kwargs_json: str | None = None  # what was given, as a JSON object
    queue_name: str | None = None
    priority: int | None = None
    task_options: str | None = None
    flags_json: str | None = None
    good_until: datetime | None = None
    dependencies: tuple[int, ...] = ()
    args_from: Mapping[str, int] = field(default_factory=dict)  # parameter -> index; not the source of a map
    forms: Mapping[str, Form] = field(default_factory=dict)  # of parameters that do not take the whole result
    ctx_from: tuple[int, ...] | None = None
    join: Join = "all"
    min_success: int | None = None  # of the dependencies (quorum), or of a map's elements (None: all)
    allow_failed_deps: bool = False
    wants_meta: bool = False  # the task declares `workflow_meta`
    sub_workflow_key: str | None = None
    map_options: MapOptions | None = None


@dataclass(frozen=True, slots=True)
class WorkflowPlan:
    """A whole workflow. `children` are the plans of the sub-workflow nodes without dependencies, made by
    `build_with`."""

    name: str
    definition_key: str
    nodes: tuple[NodePlan, ...]
    on_error: Literal["FAIL", "PAUSE"] = "FAIL"
    output_index: int | None = None
    success_policy: Mapping[str, Any] | None = None  # {"cases": [[index, …], …], "optional": [index, …]}
    children: Mapping[int, WorkflowPlan] = field(default_factory=dict)

    def dependents(self) -> list[list[int]]:
        """The same edges in the other direction: for each node, the indexes of the nodes that wait for it."""
        found: list[list[int]] = [[] for _ in self.nodes]
        for index, node in enumerate(self.nodes):
            for source in node.dependencies:
                found[source].append(index)
        return found


@dataclass(frozen=True)
class Draft:
    """What was given; `declared` is the declared type of a definition's output. Something that is not a node is refused
    immediately, because nothing else can be checked about it."""

    name: Any
    nodes: tuple[Node[Any], ...]
    on_error: OnError | str
    output: Any
    success_policy: SuccessPolicy | None
    definition_key: Any
    given_app: Any
    location: SourceLocation | None
    declared: tuple[Any, ...] = ()
    # By index, written while the arguments are checked: what was given, and what each parameter takes of its source.
    kwargs_json: dict[int, str | None] = field(default_factory=dict)
    forms: dict[int, dict[str, Form]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for index, node in enumerate(self.nodes):
            if not isinstance(node, Node):
                raise _not_a_node(self.name, index, node, self.location)

    @cached_property
    def ids(self) -> tuple[str, ...]:
        return tuple(
            node.given_id if node.given_id is not None else automatic_id(node.name, index)
            for index, node in enumerate(self.nodes)
        )

    @cached_property
    def app(self) -> Any:
        """The app with whose queues and tasks it is checked: the given one, or that of the first task."""
        if self.given_app is not None:
            return self.given_app
        return next((one.fn.app for one in self.nodes if isinstance(one, TaskNode) and hasattr(one.fn, "app")), None)

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


def plan_of(draft: Draft) -> WorkflowPlan:
    """The plan of a valid draft, without children."""
    return WorkflowPlan(
        name=draft.name,
        definition_key=draft.definition_key,
        nodes=tuple(_node(draft, index, node) for index, node in enumerate(draft.nodes)),
        on_error=OnError(draft.on_error).name,  # type: ignore[arg-type]
        output_index=draft.output_index,
        success_policy=_policy(draft),
    )


@cache
def _plans() -> TypeAdapter[WorkflowPlan]:
    return TypeAdapter(WorkflowPlan)


def plan_to_json(plan: WorkflowPlan) -> bytes:
    return _plans().dump_json(plan)


def plan_from_json(text: bytes) -> WorkflowPlan:
    """The inverse of `plan_to_json`."""
    return _plans().validate_json(text)


def _not_a_node(name: Any, index: int, given: Any, location: SourceLocation | None) -> WorkflowValidationError:
    is_task = hasattr(given, "task_name")
    return WorkflowValidationError(
        f"workflow {name!r}: tasks[{index}] is {'a task' if is_task else type(given).__name__}, not a node",
        code=ErrorCode.WORKFLOW_INVALID_DEPENDENCY,
        location=location,
        help_text="make a node from a task with task.node(...)(...)",
    )


def _node(draft: Draft, index: int, node: Node[Any]) -> NodePlan:
    fields: dict[str, Any] = {
        "node_id": draft.ids[index],
        "task_name": node.name,
        "kwargs_json": draft.kwargs_json[index],
        "dependencies": draft.dependencies[index],
        "args_from": {name: draft.index_of(source) for name, source in node.args_from.items()},
        "forms": {name: form for name in node.args_from if (form := _form(draft, index, name)) != "result"},
        "ctx_from": None if node.workflow_ctx_from is None else tuple(map(draft.index_of, node.workflow_ctx_from)),
        "allow_failed_deps": node.allow_failed_deps,
        "join": node.join,
        "min_success": node.min_success,
    }
    if isinstance(node, SubWorkflowNode):
        return NodePlan(node_type="SUBWORKFLOW", sub_workflow_key=node.workflow_def.definition_key, **fields)
    assert isinstance(node, TaskNode)
    fields |= _task(draft, node, draft.kwargs_json[index])
    if not isinstance(node, MapNode):
        return NodePlan(node_type="TASK", **fields)
    param = map_param(node) or ""
    takes_values = _form(draft, index, param) == "values"
    options = MapOptions(draft.index_of(node.over) or 0, param, node.max_parallel, takes_values)
    least = 1 if node.join == "any" else node.min_success  # of its elements; its dependencies it needs all
    return NodePlan(node_type="MAP", map_options=options, **{**fields, "join": "all", "min_success": least})


def _form(draft: Draft, index: int, name: str) -> Form:
    return draft.forms.get(index, {}).get(name, "result")


def _task(draft: Draft, node: TaskNode[Any], kwargs_json: str | None) -> dict[str, Any]:
    fn = node.fn
    fn.sizes.watch(fn.task_name, "arguments", kwargs_json or "")  # T-17: a node that is too large is only warned about
    queue = fn.queue_name if node.queue is None else node.queue
    priority = fn.priority if node.queue is None else draft.queues[queue]
    flags = fn.flags_json
    if node.flags is not None:
        flags = json.dumps({**fn.flags, **flags_of(node.flags)}, separators=(",", ":"), sort_keys=True)
    return {
        "queue_name": queue,
        "priority": priority if node.priority is None else node.priority,
        "task_options": fn.options_json,
        "flags_json": flags,
        "good_until": node.good_until,
        "wants_meta": "workflow_meta" in fn.codec.signature.injected,
    }


def _policy(draft: Draft) -> dict[str, Any] | None:
    policy = draft.success_policy
    if policy is None:
        return None
    return {
        "cases": [[draft.index_of(node) for node in case.required] for case in policy.cases],
        "optional": [draft.index_of(node) for node in policy.optional],
    }
