"""The workflows of the chaos: what a producer builds for each kind, and the definitions of child workflows, which the
workers build. The tasks are those of `app.py`; each gets a key of its own, so that its runs can be told apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from horsies import (
    Horsies,
    OnError,
    SubWorkflowNode,
    TaskError,
    TaskResult,
    WorkflowDefinition,
    WorkflowSpec,
    from_node,
)
from tests.chaos.flow_plan import FlowAct

Outcome = TaskResult[str, TaskError]


def spec_of(app: Horsies, act: FlowAct) -> WorkflowSpec[Any]:
    """The workflow of a planned act."""
    nodes = KINDS[act.kind](app, act.key, act)
    on_error = OnError.PAUSE if act.pauses_on_error else OnError.FAIL
    return app.workflow(act.kind, nodes, on_error, nodes[-1], definition_key=f"chaos.{act.kind}")


def _step(app: Horsies, key: str, node_id: str, act: FlowAct, number: int, **options: Any) -> Any:
    """A node that is a task; which, the act says."""
    task, seconds = act.steps[number % len(act.steps)]
    return app.tasks[task].node(node_id=node_id, **options)(key=f"{key}/{node_id}", seconds=seconds)


def _chain(app: Horsies, key: str, act: FlowAct) -> list[Any]:
    nodes = [_step(app, key, "n0", act, 0)]
    for number in range(1, act.width):
        task, seconds = act.steps[number % len(act.steps)]
        node = app.tasks[task].node(node_id=f"n{number}", waits_for=[nodes[-1]])
        nodes.append(node(key=f"{key}/n{number}", seconds=seconds, before=from_node(nodes[-1])))
    return nodes


def _fan(app: Horsies, key: str, act: FlowAct) -> list[Any]:
    """One, many, one: the last joins as the act says."""
    first = _step(app, key, "first", act, 0)
    many = [_step(app, key, f"m{number}", act, number, waits_for=[first]) for number in range(act.width)]
    options: dict[str, Any] = {"waits_for": many, "node_id": "join"}
    given: dict[str, Any] = {"key": f"{key}/join", "seconds": 0.01}
    match act.join:
        case "all":
            given["before"] = from_node(many[0])
        case "allow":
            options["allow_failed_deps"] = True
            given["before"] = from_node(many[0])
        case "any":
            options["join"] = "any"
        case _:
            options |= {"join": "quorum", "min_success": max(1, act.width // 2)}
    return [first, *many, app.tasks["step"].node(**options)(**given)]


def _map(app: Horsies, key: str, act: FlowAct) -> list[Any]:
    """A list whose members are the keys of the elements."""
    listing = app.tasks["listing"].node(node_id="list")(key=f"{key}/list", count=act.width)
    mapped = app.tasks["element"].map_node(
        node_id="map", over=from_node(listing), param="key", max_parallel=act.max_parallel
    )(seconds=act.steps[0][1])
    last = app.tasks["gather"].node(node_id="last", allow_failed_deps=True)(key=f"{key}/last", parts=from_node(mapped))
    return [listing, mapped, last]


def _nested(app: Horsies, key: str, act: FlowAct) -> list[Any]:
    """Two children side by side, one of which waits for a result, and a task after both."""
    first = _step(app, key, "first", act, 0)
    given = {"width": act.width, "seconds": act.steps[0][1], "is_deep": act.is_deep}
    waiting = SubWorkflowNode(
        Branch,
        kwargs={"key": f"{key}/one", **given},
        waits_for=[first],
        args_from={"before": first},
        node_id="one",
        allow_failed_deps=True,
    )
    at_once = SubWorkflowNode(Branch, kwargs={"key": f"{key}/two", **given}, node_id="two")
    last = _step(app, key, "last", act, 1, waits_for=[waiting, at_once], allow_failed_deps=True)
    return [first, waiting, at_once, last]


class Branch(WorkflowDefinition[str]):
    """Some steps, perhaps a child of its own, and one that takes the first result."""

    name = "branch"
    definition_key = "chaos.branch"

    @classmethod
    def build_with(
        cls, app: Horsies, key: str, width: int, seconds: float, is_deep: bool, before: Outcome | None = None
    ) -> WorkflowSpec[str]:
        step = app.tasks["step"]
        nodes: list[Any] = [
            step.node(node_id=f"b{number}")(key=f"{key}/b{number}", seconds=seconds) for number in range(width)
        ]
        if is_deep:
            inside = {"key": f"{key}/deep", "width": 1, "seconds": seconds, "is_deep": False}
            nodes.append(SubWorkflowNode(Branch, kwargs=inside, waits_for=[nodes[0]], node_id="deep"))
        last = step.node(node_id="last", waits_for=nodes, allow_failed_deps=True)(
            key=f"{key}/last", seconds=0.01, before=from_node(nodes[0])
        )
        return app.workflow("branch", [*nodes, last], output=last, definition_key=cls.definition_key)


KINDS: dict[str, Callable[[Horsies, str, FlowAct], list[Any]]] = {
    "chain": _chain,
    "fan": _fan,
    "map": _map,
    "nested": _nested,
}
