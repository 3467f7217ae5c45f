"""Random workflows: plain plans, as a spec would give them, and the definitions that their sub-workflow nodes name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from horsies.core.models.workflow.plan import MapOptions, NodePlan, NodeType, WorkflowPlan
from horsies.core.models.workflow.results import Join
from tests.proof_pairs.choices import Choices

SIZES = (3, 1, 2, 4, 5, 6, 8, 10, 14, 20, 60)
CHILD_SIZES = (1, 2, 3, 4)
QUEUES = ("default", "other")
UNKNOWN = "nobody knows it"
DEPTH = 2  # of sub-workflows below a root

# How a node takes part; few draws for each, as there are many nodes.
_JOINS: tuple[tuple[Join, bool], ...] = (
    *((("all", False),) * 5),
    ("all", True),
    ("all", True),
    ("any", False),
    ("quorum", False),
    ("any", True),
)
_KINDS: tuple[NodeType, ...] = ("TASK",) * 7 + ("SUBWORKFLOW", "MAP")
_DATA = [(args, ctx, meta) for meta in (False, True) for ctx in (None, 0, 2) for args in (1, 0, 3)]


class Library:
    """Definitions by their key: what a builder finds."""

    def __init__(self) -> None:
        self.plans: dict[str, WorkflowPlan] = {}

    def find(self, key: str) -> WorkflowPlan | None:
        return self.plans.get(key)


def library(pick: Choices) -> Library:
    """A few small definitions, each of which may use those before it."""
    made = Library()
    depths: dict[str, int] = {}
    for number in range(pick.of((2, 0, 1, 3))):
        usable = [key for key, depth in depths.items() if depth < DEPTH - 1]
        key = f"child{number}"
        plan = workflow(pick, key, pick.of(CHILD_SIZES), made, usable)
        depths[key] = 1 + max((depths[node.sub_workflow_key or ""] for node in _subs(plan)), default=-1)
        made.plans[key] = plan
    return made


def _subs(plan: WorkflowPlan) -> list[NodePlan]:
    return [node for node in plan.nodes if node.sub_workflow_key not in (None, UNKNOWN)]


def workflow(pick: Choices, key: str, size: int, made: Library, keys: Sequence[str]) -> WorkflowPlan:
    """A workflow of `size` nodes whose sub-workflows have these keys. Each node is given its name as `tag`."""
    is_pausing = pick.of((False, False, False, True))
    style = pick.of(("random", "random", "layers", "chain", "fan"))
    nodes: list[NodePlan] = []
    while len(nodes) < size:
        tag = json.dumps({"tag": f"{key}:n{len(nodes)}"})
        nodes.append(_node(pick, nodes, style, keys, tag, can_fail_at_once=not is_pausing))
    built = {n: made.plans[node.sub_workflow_key or ""] for n, node in enumerate(nodes) if _is_root_sub(node)}
    return WorkflowPlan(
        name=key,
        definition_key=key,
        nodes=tuple(nodes),
        on_error="PAUSE" if is_pausing else "FAIL",
        output_index=pick.of((None, len(nodes) - 1, 0)),
        success_policy=_policy(pick, len(nodes)),
        children=built,
    )


def _is_root_sub(node: NodePlan) -> bool:
    return node.node_type == "SUBWORKFLOW" and not node.dependencies


def _policy(pick: Choices, size: int) -> dict[str, Any] | None:
    if pick.of((True, True, True, False)):
        return None
    cases = [[pick.of(range(size)) for _ in range(pick.of((1, 2)))] for _ in range(pick.of((1, 2)))]
    return {"cases": [sorted(set(case)) for case in cases], "optional": []}


def _node(
    pick: Choices, before: Sequence[NodePlan], style: str, keys: Sequence[str], tag: str, *, can_fail_at_once: bool
) -> NodePlan:
    here = len(before)
    sources = _sources(pick, style, here)
    kind = pick.of(_KINDS)
    join, allows = pick.of(_JOINS) if sources else ("all", False)
    lists = [index for index in sources if before[index].node_type in ("TASK", "MAP")]
    usable = [*keys, UNKNOWN] if sources and can_fail_at_once else list(keys)
    if (kind == "MAP" and not lists) or (kind == "SUBWORKFLOW" and not usable):
        kind = "TASK"
    args, context, meta = pick.of(_DATA)
    common: dict[str, Any] = {
        "node_id": f"n{here}",
        "node_type": kind,
        "kwargs_json": tag,
        "dependencies": sources,
        "args_from": {f"p{index}": index for index in sources[:args]},
        "ctx_from": None if context is None else sources[:context],
        "allow_failed_deps": allows,
    }
    if kind == "SUBWORKFLOW":
        key = pick.of(usable)
        return NodePlan(
            **common, task_name=key, join=join, min_success=_quorum(pick, join, sources), sub_workflow_key=key
        )
    common |= {
        "task_name": f"task{here % 3}",
        "queue_name": pick.of(QUEUES),
        "priority": pick.of((100, 10)),
        "flags_json": pick.of((None, None, '{"slow": true}')),
        "wants_meta": meta,
    }
    if kind == "TASK":
        return NodePlan(**common, join=join, min_success=_quorum(pick, join, sources))
    options = MapOptions(over=pick.of(lists), param="element", max_parallel=pick.of((None, 1, 2)))
    if not can_fail_at_once:
        common["allow_failed_deps"] = False  # what it goes over is a list then
    return NodePlan(**common, min_success=pick.of((None, None, 1)), map_options=options)


def _quorum(pick: Choices, join: str, sources: Sequence[int]) -> int | None:
    return pick.of(range(1, len(sources) + 1)) if join == "quorum" and sources else None


def _sources(pick: Choices, style: str, here: int) -> tuple[int, ...]:
    if here == 0:
        return ()
    match style:
        case "chain":
            return (here - 1,)
        case "fan":  # into every sixth
            return tuple(range(here - 5, here)) if here % 6 == 5 else pick.of(((), (0,)))
        case "layers":
            first = here - here % 4
            return tuple(range(max(0, first - 4), first))[: pick.of((4, 3, 1))]
        case _:
            count = pick.of((1, 2, 2, 3, 0, 5))
            return tuple(sorted({pick.of(range(here)) for _ in range(count)}))


def goes_over_lists(plan: WorkflowPlan, index: int) -> bool:
    """Does a map go over what this node returns?"""
    return any(node.map_options is not None and node.map_options.over == index for node in plan.nodes)
