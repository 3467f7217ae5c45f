"""Children of workflows: how `build_with` is called, and what happens when it cannot be (F-60, F-61, F-64, F-65)."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from horsies import (
    OperationalErrorCode,
    SubWorkflowNode,
    TaskError,
    TaskResult,
    WorkflowContext,
    WorkflowDefinition,
    WorkflowSpec,
    WorkflowValidationError,
    from_node,
)
from horsies.core.models.workflow.plan import plan_from_json, plan_to_json
from horsies.core.models.workflow.registry import MAX_DEPTH, BuildFailed, BuildRequest, LocalBuilder, build_plan
from tests.each import each
from tests.unit.workflows.sample import APP, number, words, workflow

CALLS: list[dict[str, Any]] = []


class Fan(WorkflowDefinition[None]):
    name = "fan"
    definition_key = "children.fan"

    @classmethod
    def build_with(
        cls,
        app: Any,
        size: int = 1,
        seed: TaskResult[int, TaskError] | None = None,
        workflow_ctx: WorkflowContext | None = None,
    ) -> WorkflowSpec[Any]:  # type: ignore[override]
        CALLS.append({"size": size, "seed": seed, "ctx": workflow_ctx, "thread": threading.get_ident()})
        if size == 0:
            raise ZeroDivisionError("nothing to do")
        return app.workflow("fan", [number.node()(x=at) for at in range(size)])  # type: ignore[no-any-return]


class Nest(WorkflowDefinition[None]):
    """One level more, as often as it is asked."""

    name = "nest"
    definition_key = "children.nest"

    @classmethod
    def build_with(cls, app: Any, levels: int) -> WorkflowSpec[Any]:  # type: ignore[override]
        inner = [SubWorkflowNode(Nest, {"levels": levels - 1})] if levels else [number.node()()]
        return app.workflow(f"level {levels}", inner)  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    CALLS.clear()


def depth_of(plan: Any) -> int:
    return 1 + max((depth_of(child) for child in plan.children.values()), default=-1)


def test_f60_children_that_wait_for_nothing_are_built_with_the_plan() -> None:
    first, later = SubWorkflowNode(Fan, {"size": 3}), number.node()()
    waiting = SubWorkflowNode(Fan, {"size": 5}, waits_for=[later])
    spec = workflow(later, first, waiting, SubWorkflowNode(Fan))
    assert CALLS == [], "building a spec calls no build_with"
    plan = spec.plan()
    assert {index: len(child.nodes) for index, child in plan.children.items()} == {1: 3, 3: 1}
    assert plan.children[1].definition_key == "children.fan" and plan.children[1].nodes[2].kwargs_json == '{"x":2}'
    assert [call["size"] for call in CALLS] == [3, 1]
    spec.plan()
    assert len(CALLS) == 4, "each run has a child of its own"
    assert plan_from_json(plan_to_json(plan)) == plan


def test_f60_f61_build_with_gets_what_was_given_and_what_was_injected() -> None:
    context = {"workflow_id": "w", "task_index": 0, "task_name": "t", "results": {"a": {"ok": 5}}, "summaries": {}}
    request = BuildRequest("children.fan", '{"size": 2}', {"seed": '{"ok": 7}', "workflow_ctx": json.dumps(context)})
    assert len(build_plan(APP, request).nodes) == 2
    [call] = CALLS
    assert call["seed"] == TaskResult(ok=7) and call["ctx"].workflow_id == "w"
    build_plan(APP, BuildRequest("children.fan", None, {"seed": '{"err": {"error_code": "X"}}'}))
    assert CALLS[1]["seed"].err_value.error_code == "X" and CALLS[1]["size"] == 1
    build_plan(APP, BuildRequest("children.fan", "{}", {}))
    assert CALLS[2]["seed"] is None


async def test_f60_the_loop_goes_on_meanwhile() -> None:
    plan = await LocalBuilder(APP).build(BuildRequest("children.fan", '{"size": 4}', {}))
    assert len(plan.nodes) == 4 and CALLS[0]["thread"] != threading.get_ident()


@each(
    ("key", "kwargs", "text"),
    [
        ("children.unknown", None, "no workflow definition with the key 'children.unknown'"),
        ("children.fan", '{"size": 0}', "ZeroDivisionError: nothing to do"),
        ("children.fan", '{"size": "many"}', "size"),
        ("children.fan", '{"sise": 1}', "sise"),
        ("children.fan", "[]", "cannot be built"),
        ("children.fan", '{"size": -1}', "HRS-002"),
    ],
)
def test_f64_what_cannot_be_built(key: str, kwargs: str | None, text: str) -> None:
    with pytest.raises(BuildFailed) as raised:
        build_plan(APP, BuildRequest(key, kwargs, {}))
    assert text in str(raised.value) and raised.value.code is OperationalErrorCode.SUBWORKFLOW_LOAD_FAILED


def test_f64_hrs_018_without_an_app() -> None:
    spec = WorkflowSpec("w", [SubWorkflowNode(Fan)], definition_key="k")
    with pytest.raises(WorkflowValidationError, match="HRS-018"):
        spec.plan()
    assert len(spec.plan(APP).children) == 1
    before = SubWorkflowNode(Fan)
    late = WorkflowSpec("w", [before, SubWorkflowNode(Fan, waits_for=[before])], definition_key="k")
    with pytest.raises(WorkflowValidationError, match="HRS-018"):
        late.plan()


def test_f64_a_child_that_cannot_be_built_stops_the_start() -> None:
    with pytest.raises(BuildFailed, match="nothing to do"):
        workflow(SubWorkflowNode(Fan, {"size": 0})).plan()


def test_f65_at_most_32_levels() -> None:
    assert MAX_DEPTH == 32
    plan = workflow(SubWorkflowNode(Nest, {"levels": 31})).plan()
    assert depth_of(plan) == 32
    with pytest.raises(BuildFailed, match="32 levels") as raised:
        workflow(SubWorkflowNode(Nest, {"levels": 32})).plan()
    assert raised.value.code is OperationalErrorCode.SUBWORKFLOW_LOAD_FAILED
    build_plan(APP, BuildRequest("children.fan", None, {}, depth=32))
    with pytest.raises(BuildFailed, match="32 levels"):
        build_plan(APP, BuildRequest("children.fan", None, {}, depth=33))
    with pytest.raises(BuildFailed, match="32 levels"):
        build_plan(APP, BuildRequest("children.nest", '{"levels": 1}', {}, depth=32))


def test_f60_a_source_that_is_a_child() -> None:
    child = SubWorkflowNode(Fan)
    other = words.node(waits_for=[child])()
    plan = workflow(child, other, SubWorkflowNode(Fan, {"seed": from_node(seed := number.node()())}), seed).plan()
    assert plan.nodes[2].args_from == {"seed": 3} and list(plan.children) == [0]
