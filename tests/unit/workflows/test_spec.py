"""Specs: what a workflow is made of, and the plan that a start writes (F-02, F-03, F-07, F-30 to F-42, F-95)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from horsies import (
    AppConfig,
    Horsies,
    NodeKey,
    OnError,
    PayloadPolicy,
    SuccessCase,
    SuccessPolicy,
    TaskError,
    TaskNode,
    TaskResult,
    WorkflowSpec,
    from_node,
)
from horsies.core.models.workflow.plan import MapOptions, plan_from_json, plan_to_json
from tests.unit.workflows.sample import APP, URL, codes_of, maybe, number, numbers, see, take, where, words, workflow

LATER = datetime(2999, 1, 1, tzinfo=UTC)


def test_f02_f03_a_workflow_is_its_nodes_and_edges() -> None:
    a, b = number.node(node_id="a")(x=5), words.node(node_id="b")()
    c = take.node(node_id="c", waits_for=[b])(a=from_node(a), y=1.5)
    spec = APP.workflow("graph", [a, b, c], output=c, definition_key="key")
    assert (spec.name, spec.definition_key, spec.on_error) == ("graph", "key", OnError.FAIL)
    assert spec.tasks == spec.nodes and spec.output is spec.tasks[2]
    plan = spec.plan()
    assert (plan.name, plan.definition_key, plan.on_error, plan.output_index) == ("graph", "key", "FAIL", 2)
    assert [node.node_id for node in plan.nodes] == ["a", "b", "c"]
    assert [node.node_type for node in plan.nodes] == ["TASK"] * 3
    assert [node.dependencies for node in plan.nodes] == [(), (), (1, 0)]
    assert plan.dependents() == [[2], [2], []]
    assert plan.nodes[2].args_from == {"a": 0} and json.loads(plan.nodes[2].kwargs_json or "") == {"y": 1.5}
    assert plan.nodes[1].kwargs_json is None and plan.children == {} and plan.success_policy is None


def test_f03_queue_priority_options_and_flags_are_resolved() -> None:
    plain = take.node()(a=from_node(n := number.node()()))
    moved = TaskNode(take, args_from={"a": n}, waits_for=[n], queue="fast", flags={"slow": False, "red": True})
    ahead = TaskNode(take, args_from={"a": n}, waits_for=[n], priority=1, good_until=LATER)
    _, first, second, third = workflow(n, plain, moved, ahead).plan().nodes
    assert (first.queue_name, first.priority) == ("slow", 50)
    assert (second.queue_name, second.priority) == ("fast", 5)
    assert (third.queue_name, third.priority) == ("slow", 1)
    assert first.task_options == take.options_json and "BUSY" in str(first.task_options)
    assert json.loads(first.flags_json or "") == {"big": True, "slow": True}
    assert json.loads(second.flags_json or "") == {"big": True, "slow": False, "red": True}
    assert (first.good_until, third.good_until) == (None, LATER)


def test_f03_errors_may_be_named_by_text() -> None:
    assert workflow(number.node()(), on_error="pause").plan().on_error == "PAUSE"
    assert workflow(number.node()(), on_error="fail").on_error is OnError.FAIL
    assert workflow(number.node()(), on_error=OnError.PAUSE).on_error is OnError.PAUSE
    for wrong in ("FAIL", "stop", None, 1):
        assert codes_of(lambda wrong=wrong: workflow(number.node()(), on_error=wrong)) == ["HRS-215"]


def test_f03_the_apps_broker_and_resend_are_attached() -> None:
    app = Horsies(AppConfig.for_database_url(URL, resend_on_transient_err=True))

    @app.task("t")
    def t() -> TaskResult[int, TaskError]:
        return TaskResult(ok=1)

    spec = app.workflow("w", [t.node()()], definition_key="k")
    assert spec.broker is app.get_broker() and spec.resend_on_transient_err and spec.starter is app.workflow_starter
    bare = WorkflowSpec("w", [t.node()()], definition_key="k")
    assert bare.broker is None and not bare.resend_on_transient_err
    assert bare.start().err_value.code == "BROKER_NOT_CONFIGURED"
    assert bare.plan().nodes[0].queue_name == "default" and bare.plan().nodes[0].priority == 100


def test_f07_specs_do_not_change() -> None:
    spec = workflow(number.node()())
    for attribute in ("name", "tasks", "output", "new"):
        with pytest.raises(AttributeError):
            setattr(spec, attribute, None)
    with pytest.raises(AttributeError):
        del spec.name
    with pytest.raises(AttributeError):
        spec.tasks.append(number.node()())


def test_f30_f31_f34_joins_reach_the_plan() -> None:
    a, b = number.node()(), number.node()()
    any_one = maybe.node(join="any")(a=from_node(a))
    two = words.node(join="quorum", min_success=2, waits_for=[a, b])()
    both = words.node(waits_for=[a, b], allow_failed_deps=True)()
    nodes = workflow(a, b, any_one, two, both).plan().nodes
    assert [(node.join, node.min_success, node.allow_failed_deps) for node in nodes[2:]] == [
        ("any", None, False),
        ("quorum", 2, False),
        ("all", None, True),
    ]


def test_f36_f37_context_and_meta_reach_the_plan() -> None:
    a = number.node()()
    nodes = workflow(a, see.node(waits_for=[a], workflow_ctx_from=[a])(), where.node()(), see.node()()).plan().nodes
    assert [node.ctx_from for node in nodes] == [None, (0,), None, None]
    assert [node.wants_meta for node in nodes] == [False, False, True, False]


def test_f42_the_success_policy_reaches_the_plan() -> None:
    a, b, c = number.node(node_id="a")(), number.node(node_id="b")(), number.node(node_id="c")()
    cases = [SuccessCase(required=[a, NodeKey("c")]), SuccessCase(required=["b"])]
    policy = SuccessPolicy(cases=cases, optional=[c])
    assert workflow(a, b, c, success_policy=policy).plan().success_policy == {"cases": [[0, 2], [1]], "optional": [2]}


def test_f42_policies_are_values() -> None:
    nodes = ["a"]
    case = SuccessCase(required=nodes)
    nodes.append("b")
    assert case.required == ("a",) and SuccessCase(required="abc").required == ("abc",)
    assert SuccessPolicy(cases=[case]).optional == ()


def test_f95_a_map_reaches_the_plan() -> None:
    source, before = numbers.node()(), words.node()()
    one = number.map_node(over=from_node(source), waits_for=[before])()
    two = number.map_node(over=from_node(source), param="x", max_parallel=7, join="quorum", min_success=3)()
    three = number.map_node(over=from_node(source), join="any")()
    four = number.map_node(over=from_node(source), min_success=4)()
    spec = workflow(before, source, one, two, three, four)
    assert spec.tasks[2].over is spec.tasks[1] is not source
    nodes = spec.plan().nodes
    assert [node.node_type for node in nodes[2:]] == ["MAP"] * 4
    assert nodes[2].dependencies == (0, 1) and nodes[2].args_from == {}
    assert [node.map_options for node in nodes[2:]] == [
        MapOptions(1, "x", None),
        MapOptions(1, "x", 7),
        MapOptions(1, "x", None),
        MapOptions(1, "x", None),
    ]
    # What is said about elements is not said about the nodes it waits for.
    assert [(node.join, node.min_success) for node in nodes[2:]] == [("all", None), ("all", 3), ("all", 1), ("all", 4)]


def test_f95_elements_go_to_the_first_parameter_that_is_not_given() -> None:
    app = Horsies(AppConfig.for_database_url(URL))

    @app.task("source")
    def source() -> TaskResult[list[int], TaskError]:
        return TaskResult(ok=[])

    @app.task("t")
    def t(a: TaskResult[list[int], TaskError], b: int, *, c: int = 0) -> TaskResult[int, TaskError]:
        return TaskResult(ok=1)

    def param_of(**kwargs: Any) -> str:
        s = source.node()()
        node = t.map_node(over=from_node(s), param=kwargs.pop("param", None))(  # type: ignore[call-overload]
            a=from_node(s), **kwargs
        )
        options = app.workflow("w", [s, node], definition_key="k").plan().nodes[1].map_options
        assert options is not None
        return options.param

    assert param_of() == "b"
    assert param_of(b=1) == "c"
    assert param_of(b=1, param="c") == "c"


def test_t17_large_arguments_are_only_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    app = Horsies(AppConfig.for_database_url(URL, payload=PayloadPolicy(warn_bytes=10, reject_bytes=20)))

    @app.task("t")
    def t(text: str) -> TaskResult[int, TaskError]:
        return TaskResult(ok=1)

    assert app.workflow("w", [t.node()(text="x" * 100)], definition_key="k").plan().nodes[0].kwargs_json is not None
    assert [record.getMessage() for record in caplog.records if "arguments of" in record.getMessage()] != []


def test_a_plan_travels_as_json() -> None:
    source = numbers.node()()
    spec = workflow(
        source,
        number.map_node(over=from_node(source), max_parallel=2)(),
        see.node(waits_for=[source], workflow_ctx_from=[source], good_until=LATER)(k=3),
        success_policy=SuccessPolicy(cases=[SuccessCase(required=[source])]),
    )
    assert plan_from_json(plan_to_json(spec.plan())) == spec.plan()
