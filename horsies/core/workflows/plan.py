"""A workflow as it is written to the database: plain values without user objects.

A spec makes one (`WorkflowSpec.plan`), a start writes it, and it is sent as JSON from the helper child that has called
a `build_with` (F-60).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Literal, TypeAlias

NodeType: TypeAlias = Literal["TASK", "SUBWORKFLOW", "MAP"]
Join: TypeAlias = Literal["all", "any", "quorum"]


@dataclass(frozen=True, slots=True)
class MapOptions:
    """How a map node becomes elements (F-95): which source, which parameter, how many at once."""

    over: int
    param: str
    max_parallel: int | None = None


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
    ctx_from: tuple[int, ...] | None = None
    join: Join = "all"
    min_success: int | None = None  # of the dependencies (quorum); of a map: of its elements, None: all of them
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


def plan_to_json(plan: WorkflowPlan) -> str:
    return json.dumps(_flat(plan), default=_plain)


def plan_from_json(text: str | bytes) -> WorkflowPlan:
    """The inverse of `plan_to_json`."""
    return _plan(json.loads(text))


def _flat(value: Any) -> dict[str, Any]:
    return {each.name: getattr(value, each.name) for each in fields(value)}


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else _flat(value)


def _plan(given: dict[str, Any]) -> WorkflowPlan:
    nodes = tuple(_node(node) for node in given.pop("nodes"))
    children = {int(index): _plan(child) for index, child in given.pop("children").items()}
    return WorkflowPlan(**given, nodes=nodes, children=children)


def _node(given: dict[str, Any]) -> NodePlan:
    good_until, options, context = given.pop("good_until"), given.pop("map_options"), given.pop("ctx_from")
    return NodePlan(
        **{**given, "dependencies": tuple(given["dependencies"])},
        good_until=None if good_until is None else datetime.fromisoformat(good_until),
        map_options=None if options is None else MapOptions(**options),
        ctx_from=None if context is None else tuple(context),
    )
