"""Nodes: the two ways to make them, their ids, and that they do not change (F-07 to F-12, F-38)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from horsies import (
    MapNode,
    NodeKey,
    SubWorkflowNode,
    TaskError,
    TaskNode,
    TaskResult,
    WorkflowContextMissingIdError,
    WorkflowDefinition,
    WorkflowValidationError,
    from_node,
    slugify,
)
from horsies.core.task_decorator import NodeFactory
from tests.each import each
from tests.unit.workflows.sample import APP, anything, codes_of, maybe, number, numbers, take, words, workflow

LATER = datetime(2999, 1, 1, tzinfo=UTC)


class Small(WorkflowDefinition[int]):
    name = "small"
    definition_key = "nodes.small"
    one = number.node()(x=1)

    class Meta:
        output = "one"


def test_f08_a_task_node_has_what_it_was_given() -> None:
    before = number.node()()
    node = TaskNode(
        take,
        {"y": 2.5},
        [before],
        {"a": before},
        [before],
        "fast",
        7,
        True,
        "quorum",
        1,
        LATER,
        "mine",
        {"big": False},
    )
    assert (node.fn, node.name, dict(node.kwargs)) == (take, "take", {"y": 2.5})
    assert node.waits_for == (before,) and dict(node.args_from) == {"a": before}
    assert node.workflow_ctx_from == (before,) and node.allow_failed_deps
    assert (node.queue, node.priority, node.join, node.min_success) == ("fast", 7, "quorum", 1)
    assert (node.good_until, node.node_id, node.flags) == (LATER, "mine", {"big": False})
    plain = TaskNode(number)
    assert (dict(plain.kwargs), plain.waits_for, dict(plain.args_from), plain.workflow_ctx_from) == ({}, (), {}, None)
    assert (plain.queue, plain.priority, plain.join, plain.min_success) == (None, None, "all", None)
    assert (plain.good_until, plain.node_id, plain.flags, plain.index) == (None, None, None, None)


def test_f09_a_sub_workflow_node_has_no_queue_priority_or_deadline() -> None:
    before = number.node()()
    node = SubWorkflowNode(Small, {"k": 1}, [before], {"a": before}, [before], "any", None, True, "mine")
    assert (node.workflow_def, node.name, node.node_id) == (Small, "small", "mine")
    assert (node.join, node.min_success, node.allow_failed_deps) == ("any", None, True)
    for option in ("queue", "priority", "good_until"):
        with pytest.raises(TypeError):
            SubWorkflowNode(Small, **{option: None})  # type: ignore[arg-type]


def test_f10_slugs() -> None:
    assert slugify("give me  a number!") == "give_me__a_number"
    assert slugify("ab/c:d.e-f_g é") == "abc:d.e-f_g_"


def test_f10_ids_in_the_functional_form() -> None:
    spec = workflow(number.node()(), take.node(node_id="own")(a=from_node(n := number.node()())), n)
    assert [node.node_id for node in spec.tasks] == ["give_number:0", "own", "give_number:2"]
    assert [node.index for node in spec.tasks] == [0, 1, 2]


def test_f10_an_automatic_id_is_never_too_long() -> None:
    long = APP.task("x" * 255, queue_name="fast")(words.fn)
    spec = workflow(number.node()(), long.node()())
    node_id = spec.tasks[1].node_id
    assert len(node_id) == 128 and node_id.endswith("x:1")


@each("node_id", ["a b", "", "x" * 129, "ü", "a[0]", "a\n", 5])
def test_f10_ids_that_are_refused(node_id: Any) -> None:
    assert codes_of(lambda: workflow(number.node(node_id=node_id)())) == ["HRS-003"]


@each("node_id", ["a", "A-Z_0:9.x", "x" * 128])
def test_f10_ids_that_are_accepted(node_id: str) -> None:
    assert workflow(number.node(node_id=node_id)()).tasks[0].node_id == node_id


def test_f10_ids_are_unique() -> None:
    assert codes_of(lambda: workflow(number.node(node_id="a")(), number.node(node_id="a")())) == ["HRS-004"]
    assert codes_of(lambda: workflow(number.node(node_id="words:1")(), words.node()())) == ["HRS-004"]
    node = number.node()()
    assert codes_of(lambda: workflow(node, node)) == ["HRS-004"]


def test_f11_the_two_steps_give_the_same_node() -> None:
    before = number.node()()
    factory = take.node(
        waits_for=[before],
        workflow_ctx_from=[before],
        node_id="mine",
        queue="fast",
        priority=7,
        allow_failed_deps=True,
        join="any",
        min_success=None,
        good_until=LATER,
        flags=["big"],
    )
    assert isinstance(factory, NodeFactory)
    node = factory(a=from_node(before), y=2.5)
    assert isinstance(node, TaskNode) and node.fn is take
    assert dict(node.kwargs) == {"y": 2.5} and dict(node.args_from) == {"a": before}
    assert (node.queue, node.priority, node.allow_failed_deps, node.join) == ("fast", 7, True, "any")
    assert (node.good_until, node.flags, node.node_id) == (LATER, ["big"], "mine")
    assert node.waits_for == (before,), "it waits for it once, however often it is named"


def test_f11_from_node_adds_an_edge() -> None:
    one, two = number.node()(), number.node()()
    node = take.node(waits_for=[one])(a=from_node(two))
    assert node.waits_for == (one, two) and dict(node.args_from) == {"a": two} and dict(node.kwargs) == {}
    assert dict(take.node(args_from={"a": one}, waits_for=[one])().args_from) == {"a": one}  # type: ignore[call-arg]
    assert TaskNode(take, kwargs={"a": from_node(two)}).waits_for == (two,)
    with pytest.raises(WorkflowValidationError, match="HRS-021"):
        take.node(args_from={"a": one})(a=from_node(two))


@each("other", [number, 5, None, "a", NodeKey("a"), TaskResult(ok=1)])
def test_f11_from_node_takes_nodes_only(other: Any) -> None:
    with pytest.raises(WorkflowValidationError) as raised:
        from_node(other)
    assert raised.value.code == "HRS-008" and raised.value.location is not None


def test_f11_an_option_that_does_not_exist() -> None:
    with pytest.raises(TypeError, match="second call"):
        number.node(x=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="max_parallel"):
        number.node(max_parallel=1)  # type: ignore[call-arg]


def test_f12_arguments_go_by_name() -> None:
    with pytest.raises(WorkflowValidationError) as raised:
        number.node()(1)
    assert raised.value.code == "HRS-026" and str(raised.value.location).startswith(__file__)
    with pytest.raises(WorkflowValidationError, match="HRS-026"):
        number.map_node(over=from_node(numbers.node()()))(1)  # type: ignore[call-arg]


def test_f07_nodes_do_not_change() -> None:
    node = number.node()(x=1)
    for attribute in ("kwargs", "waits_for", "node_id", "index", "new"):
        with pytest.raises(AttributeError):
            setattr(node, attribute, None)
    with pytest.raises(AttributeError):
        del node.kwargs  # type: ignore[misc]
    with pytest.raises(TypeError):
        node.kwargs["x"] = 2  # type: ignore[index]
    given: dict[str, Any] = {"x": 1}
    waits: list[Any] = []
    node = TaskNode(number, given, waits)
    given["x"] = 2
    waits.append(node)
    assert dict(node.kwargs) == {"x": 1} and node.waits_for == ()


def test_f07_a_node_may_be_used_in_several_workflows() -> None:
    shared = number.node()()
    first = workflow(shared, take.node()(a=from_node(shared)))
    second = workflow(words.node()(), shared, maybe.node()(a=from_node(shared)))
    assert [node.node_id for node in first.tasks] == ["give_number:0", "take:1"]
    assert [node.node_id for node in second.tasks] == ["words:0", "give_number:1", "maybe:2"]
    assert first.tasks[0] is not second.tasks[1]
    assert first.tasks[1].waits_for == (first.tasks[0],) and second.tasks[2].args_from["a"] is second.tasks[1]
    assert first.plan().nodes[1].dependencies == (0,) and second.plan().nodes[2].dependencies == (1,)


def test_f08_f38_a_node_knows_its_place_as_long_as_it_has_one() -> None:
    node = number.node()()
    assert node.node_id is None and node.index is None
    with pytest.raises(WorkflowContextMissingIdError):
        node.key()
    workflow(node)
    assert (node.node_id, node.index, node.key()) == ("give_number:0", 0, NodeKey("give_number:0"))
    workflow(node, words.node()())
    assert node.key() == NodeKey("give_number:0")
    workflow(words.node()(), node)
    assert node.node_id is None, "it is give_number:0 here and give_number:1 there"
    with pytest.raises(WorkflowContextMissingIdError):
        node.key()


def test_f38_keys_are_values() -> None:
    key: NodeKey[int] = NodeKey("a")
    assert key == NodeKey("a") == number.node(node_id="a")().key() and hash(key) == hash(NodeKey("a"))
    with pytest.raises(AttributeError):
        key.node_id = "b"  # type: ignore[misc]
    assert repr(key) == "NodeKey(node_id='a')"


def test_f95_a_map_node() -> None:
    source = numbers.node()()
    node = number.map_node(over=from_node(source), max_parallel=3, join="quorum", min_success=2, node_id="m")()
    assert isinstance(node, MapNode) and node.over is source and node.waits_for == (source,)
    assert (node.max_parallel, node.join, node.min_success, node.node_id, node.name) == (
        3,
        "quorum",
        2,
        "m",
        "give number",
    )
    assert node.ok_type() == list[TaskResult[int, TaskError]]
    read = node.result_codec().decode('{"ok": [{"ok": 1}, {"err": {"error_code": "X"}}]}')
    assert [one.is_ok() for one in read.ok_value] == [True, False] and read.ok_value[0].ok_value == 1
    for wrong in (number, None, [1], TaskResult(ok=[1])):
        with pytest.raises(WorkflowValidationError, match="HRS-008"):
            number.map_node(over=wrong)  # type: ignore[call-overload]


def test_the_result_of_each_kind_of_node_is_read_by_its_type() -> None:
    assert number.node()().result_codec().decode('{"ok": 3}').ok_value == 3
    assert SubWorkflowNode(Small).result_codec().decode('{"ok": 3}').ok_value == 3
    assert SubWorkflowNode(Small).ok_type() is int
    assert anything.node(node_id="a")().key().result_codec() is anything.codec.result
    assert NodeKey("a").result_codec() is None
