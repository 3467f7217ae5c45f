"""What a type checker must accept and infer about plain functions as tasks (X-01 to X-03, P-01), and about nodes that
take plain values (F-33, F-95)."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, assert_type

from fastapi import FastAPI

from horsies import (
    AppConfig,
    AsyncTaskContext,
    Err,
    Horsies,
    MapNode,
    Ok,
    PostgresConfig,
    SubWorkflowNode,
    TaskContext,
    TaskError,
    TaskHandle,
    TaskNode,
    TaskResult,
    TaskSendError,
    WorkflowDefinition,
    WorkflowSpec,
    from_node,
)
from horsies.contrib.asgi import Transactional, lifespan, mount_dashboard
from horsies.web import ViewOnly

app = Horsies(AppConfig(broker=PostgresConfig(database_url="postgresql+psycopg://h/d")))
Int = TaskResult[int, TaskError]


@app.task
def add(a: int, b: int = 1) -> int:
    return a + b


@app.task()
def forget(name: str) -> None:
    return None


@app.task("fetch", timeout_ms=1_000)
async def fetch(url: str) -> dict[str, int]:
    return {url: 1}


@app.task
async def whole(url: str) -> TaskResult[str, TaskError]:
    return TaskResult(ok=url)


@app.task
def watched(ctx: TaskContext, count: int) -> list[int]:
    return [ctx.attempt] * count


@app.task("followed")
async def followed(ctx: AsyncTaskContext, url: str) -> str | None:
    return url if ctx.attempt else None


@app.task(queue_name="slow")
def judged(ctx: TaskContext, count: int) -> TaskResult[bool, TaskError]:
    return TaskResult(ok=count > ctx.attempt)


assert_type(add(1, b=2), TaskResult[int, TaskError])
assert_type(add.send(1), Ok[TaskHandle[int]] | Err[TaskSendError])
assert_type(add.send(1).unwrap().get(), TaskResult[int, TaskError])
assert_type(add.send_or_raise(1, 2), TaskHandle[int])
assert_type(add.send_or_raise(1).result(timeout_ms=5), int)
assert_type(forget.send("a"), Ok[TaskHandle[None]] | Err[TaskSendError])
assert_type(fetch.send_or_raise("u"), TaskHandle[dict[str, int]])
called = assert_type(fetch("u"), Coroutine[Any, Any, TaskResult[dict[str, int], TaskError]])
assert_type(whole.send_or_raise("u"), TaskHandle[str])
assert_type(watched.send_or_raise(3), TaskHandle[list[int]])
assert_type(watched.send_or_raise(count=3).result(), list[int])
assert_type(watched.schedule(5, count=3), Ok[TaskHandle[list[int]]] | Err[TaskSendError])
assert_type(followed.send_or_raise("u"), TaskHandle[str | None])
assert_type(judged.send_or_raise(1), TaskHandle[bool])
assert_type(watched(3), TaskResult[list[int], TaskError])


async def awaiting() -> None:
    handle = await followed.send_or_raise_async("u")
    assert_type(await handle.result_async(), str | None)
    assert_type(await handle.get_async(), TaskResult[str | None, TaskError])
    assert_type(await followed("u"), TaskResult[str | None, TaskError])


@app.task
def numbers() -> list[int]:
    return [1, 2]


@app.task
def halve(x: float, *, digits: int = 0) -> float:
    return round(x / 2, digits)


@app.task
def total(values: list[int]) -> int:
    return sum(values)


@app.task
def total_of_any(values: Sequence[float] | None = None) -> float:
    return sum(values or ())


@app.task
def maybe(value: int | None = None) -> int:
    return value or 0


@app.task
def checked(value: Int, several: TaskResult[list[Int], TaskError] | None = None) -> int:
    return value.ok or 0


@app.task
def all_checked(values: list[Int]) -> int:
    return sum(value.ok or 0 for value in values)


class Sum(WorkflowDefinition[int]):
    name = "sum"
    definition_key = "sum"
    first = add.node()(a=1)
    last = add.node()(a=from_node(first))

    class Meta:
        output = "last"


class Twice(WorkflowDefinition[int]):
    name = "twice"
    definition_key = "twice"

    @classmethod
    def build_with(cls, app: Horsies, value: int) -> WorkflowSpec[int]:
        first = add.node()(a=value, b=value)
        return app.workflow("twice", [first], output=first)


one = add.node()(a=1)
assert_type(one, TaskNode[int])
listed = numbers.node()()
child = SubWorkflowNode(Sum)
mapped = add.map_node(over=from_node(listed))(b=1)
assert_type(mapped, MapNode[int])

# The value, as it is, where it is optional, and where a wider type is wanted.
add.node()(a=from_node(one), b=from_node(child))
maybe.node(join="any")(value=from_node(one))
halve.node()(x=from_node(one), digits=from_node(one))
total.node()(values=from_node(listed))
total_of_any.node()(values=from_node(listed))
# The whole result.
checked.node()(value=from_node(one))
checked.node()(value=from_node(child), several=from_node(mapped))
# The elements of a map: their values, or their results.
total.node()(values=from_node(mapped))
total_of_any.node()(values=from_node(mapped))
all_checked.node()(values=from_node(mapped))
assert_type(halve.map_node(over=from_node(mapped))(digits=1), MapNode[float])
assert_type(checked.map_node(over=from_node(mapped))(), MapNode[int])
assert_type(add.map_node(over=from_node(mapped), param="b")(a=1), MapNode[int])

SubWorkflowNode(Twice, kwargs={"value": from_node(one)})
assert_type(TaskNode(add, {"a": from_node(one)}), TaskNode[int])


async def with_a_request(tasks: Transactional) -> None:
    assert_type(await tasks(add).send_or_raise_async(1, b=2), TaskHandle[int])
    assert_type(tasks(add).with_options(priority=1).send_or_raise(1), TaskHandle[int])
    FastAPI(lifespan=lifespan(app))
    mount_dashboard(FastAPI(), app, "/jobs", auth_policy=ViewOnly(), enable_actions=True)
