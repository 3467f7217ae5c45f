"""Nodes that take the plain values of others, on a real database (F-33 to F-35, F-61, F-95)."""

from __future__ import annotations

import json
from typing import Any

from horsies import (
    Horsies,
    SubWorkflowNode,
    TaskError,
    TaskResult,
    WorkflowDefinition,
    WorkflowHandle,
    WorkflowSpec,
    from_node,
)
from horsies.core.task_decorator import TaskFunction
from tests.services.workflows.hand import Hand


class Values:
    """Tasks that are plain functions."""

    add: TaskFunction[..., int]
    listed: TaskFunction[[], list[int]]
    total: TaskFunction[..., int]
    seen: TaskFunction[..., str]

    def __init__(self, app: Horsies) -> None:
        @app.task("values.add")
        def add(a: int, b: int = 1) -> int:
            return a + b

        @app.task("values.listed")
        def listed() -> list[int]:
            return [1]

        @app.task("values.total")
        def total(values: list[int]) -> int:
            return sum(values)

        @app.task("values.seen")
        def seen(a: TaskResult[int, TaskError], b: int = -1) -> str:
            return f"{a} {b}"

        self.app, self.add, self.listed, self.total, self.seen = app, add, listed, total, seen

    def workflow(self, *nodes: Any, **options: Any) -> Any:
        spec = self.app.workflow("values", list(nodes), definition_key="values", **options)
        return spec.start().unwrap()


async def arguments(hand: Hand, handle: Any, node_id: str) -> Any:
    """What the task of a node is called with."""
    task_id = await hand.task_of(handle, node_id)
    return json.loads(await hand._one("SELECT kwargs FROM horsies_tasks WHERE id = %s", task_id))


async def test_f33_a_plain_parameter_gets_the_value_and_another_one_the_result(app: Horsies, hand: Hand) -> None:
    tasks = Values(app)
    a, b = tasks.add.node(node_id="a")(a=1), tasks.add.node(node_id="b")(a=2)
    c = tasks.seen.node(node_id="c")(a=from_node(a), b=from_node(b))
    handle = tasks.workflow(a, b, c, output=c)
    assert (await hand.node(handle, "c"))["args_from"] == {"a": 0, "b": {"node": 1, "takes": "value"}}
    await hand.finish(handle, "a", 5)
    await hand.finish(handle, "b", 7)
    assert await arguments(hand, handle, "c") == {"a": {"ok": 5}, "b": 7}


async def test_f33_f30_a_failed_source_skips_a_node_that_takes_its_value(app: Horsies, hand: Hand) -> None:
    tasks = Values(app)
    a = tasks.add.node(node_id="a")(a=1)
    b = tasks.add.node(node_id="b")(a=from_node(a))
    handle = tasks.workflow(a, b, output=b)
    await hand.fail(handle, "a")
    assert await hand.states(handle) == "FAILED a:FAILED b:SKIPPED"
    assert handle.retry_failed().unwrap() is True
    await hand.finish(handle, "a", 3)
    assert await arguments(hand, handle, "b") == {"a": 3}, "after a retry it gets the value"


async def test_f34_a_node_that_allows_failures_keeps_the_default_of_what_failed(app: Horsies, hand: Hand) -> None:
    tasks = Values(app)
    bad, good = tasks.add.node(node_id="bad")(a=1), tasks.add.node(node_id="good")(a=1)
    skipped = tasks.add.node(node_id="skipped")(a=from_node(bad))
    one = tasks.seen.node(node_id="one", allow_failed_deps=True)(a=from_node(bad), b=from_node(bad))
    two = tasks.seen.node(node_id="two", allow_failed_deps=True)(a=from_node(skipped), b=from_node(skipped))
    three = tasks.seen.node(node_id="three", allow_failed_deps=True)(a=from_node(bad), b=from_node(good))
    handle = tasks.workflow(bad, good, skipped, one, two, three)
    await hand.fail(handle, "bad")
    await hand.finish(handle, "good", 9)
    assert (await arguments(hand, handle, "one")).keys() == {"a"}
    assert (await arguments(hand, handle, "two")).keys() == {"a"}
    given = await arguments(hand, handle, "three")
    assert given["b"] == 9 and given["a"]["err"]["error_code"] == "BAD"


async def test_f35_a_node_that_waits_for_any_keeps_the_default_of_the_others(app: Horsies, hand: Hand) -> None:
    tasks = Values(app)

    @app.task("values.either")
    def either(a: int = 0, b: int = 0, c: int = 0) -> int:
        return a or b or c

    sources = [tasks.add.node(node_id=name)(a=1) for name in ("a", "b", "c")]
    joined = either.node(node_id="joined", join="any")(**{str(node.node_id): from_node(node) for node in sources})
    handle = tasks.workflow(*sources, joined, output=joined)
    await hand.fail(handle, "a")
    await hand.finish(handle, "b", 4)
    assert await arguments(hand, handle, "joined") == {"b": 4}


async def test_f33_f95_the_values_of_a_map_go_on_as_a_list_and_into_another_map(app: Horsies, hand: Hand) -> None:
    tasks = Values(app)
    source = tasks.listed.node(node_id="source")()
    first = tasks.add.map_node(node_id="first", over=from_node(source))(b=10)
    second = tasks.add.map_node(node_id="second", over=from_node(first))(b=20)
    total = tasks.total.node(node_id="total")(values=from_node(first))
    handle = tasks.workflow(source, first, second, total, output=total)
    await hand.finish(handle, "source", [1, 2])
    await hand.finish(handle, "first[0]", 11)
    await hand.finish(handle, "first[1]", 12)
    assert await arguments(hand, handle, "total") == {"values": [11, 12]}
    assert await arguments(hand, handle, "second[1]") == {"a": 12, "b": 20}
    known = WorkflowHandle[Any](handle.workflow_id, app.get_broker()).results().unwrap()
    assert known["first"].unwrap() == [TaskResult(ok=11), TaskResult(ok=12)], "known without the spec too"


class Sized(WorkflowDefinition[int]):
    """As large as its parameter says."""

    name = "values.sized"
    definition_key = "values.sized"

    @classmethod
    def build_with(cls, app: Horsies, size: int, more: TaskResult[int, TaskError]) -> WorkflowSpec[int]:
        add = app.tasks["values.add"]
        nodes = [add.node(node_id=f"n{place}")(a=place + more.unwrap()) for place in range(size)]
        return app.workflow(cls.name, nodes, output=nodes[-1])


async def test_f61_f33_a_child_workflow_is_built_from_the_value(app: Horsies, hand: Hand) -> None:
    tasks = Values(app)
    a = tasks.add.node(node_id="a")(a=1)
    child: SubWorkflowNode[int] = SubWorkflowNode(Sized, {"size": from_node(a), "more": from_node(a)}, node_id="child")
    last = tasks.add.node(node_id="last")(a=from_node(child))
    handle = tasks.workflow(a, child, last, output=last)
    await hand.finish(handle, "a", 3)
    inner = str((await hand.node(handle, "child"))["sub_workflow_id"])
    assert await arguments(hand, inner, "n2") == {"a": 5}
    for place in range(3):
        await hand.finish(inner, f"n{place}", 40 + place)
    assert await arguments(hand, handle, "last") == {"a": 42}
