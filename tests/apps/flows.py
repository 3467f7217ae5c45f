"""The app whose workflows real workers run in tests. Tasks and builders leave traces in the directory `TRACES`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from horsies import (
    AppConfig,
    Horsies,
    PostgresConfig,
    RetryPolicy,
    SubWorkflowNode,
    TaskError,
    TaskResult,
    WorkflowContext,
    WorkflowDefinition,
    WorkflowMeta,
    WorkflowSpec,
    from_node,
)
from horsies.core.models.recovery import RecoveryConfig, WorkerResilienceConfig

app = Horsies(
    AppConfig(
        broker=PostgresConfig(database_url=os.environ.get("DATABASE_URL", "postgresql://nobody@localhost:1/none")),
        recovery=RecoveryConfig(
            check_interval_ms=1_000,
            crashed_worker_recovery_grace_ms=0,
            runner_heartbeat_interval_ms=1_000,
            claimer_heartbeat_interval_ms=1_000,
            worker_state_snapshot_interval_ms=60_000,
        ),
        resilience=WorkerResilienceConfig(db_retry_initial_ms=100, db_retry_max_ms=500, notify_poll_interval_ms=1_000),
    )
)

Number = TaskResult[int, TaskError]
AGAIN = RetryPolicy.fixed([1], auto_retry_for=["WORKER_CRASHED", "FLAKY"], jitter=False)


def trace(name: str, text: str = "") -> int:
    """One line in the file of this name; how many there are now."""
    path = Path(os.environ["TRACES"]) / name
    with path.open("a") as file:
        file.write(f"{os.getpid()} {text}\n")
    return len(path.read_text().splitlines())


def stay(name: str, limit_s: float = 60.0) -> None:
    """As long as the test wants it: while the file `<name>.hold` is there."""
    until = time.monotonic() + limit_s
    while (Path(os.environ["TRACES"]) / f"{name}.hold").exists() and time.monotonic() < until:
        time.sleep(0.01)


@app.task("flows.number", retry_policy=AGAIN)
def number(name: str, value: int) -> Number:
    trace(name)
    stay(name)
    return TaskResult(ok=value)


@app.task("flows.plus", retry_policy=AGAIN)
def plus(name: str, a: Number, b: int = 1) -> Number:
    trace(name)
    stay(name)
    return TaskResult(ok=a.unwrap() + b)


@app.task("flows.aplus")
async def aplus(a: Number, b: Number) -> Number:
    return TaskResult(ok=a.unwrap() + b.unwrap())


@app.task("flows.flaky", retry_policy=AGAIN)
def flaky(name: str) -> Number:
    """Fails the first time."""
    if trace(name) == 1:
        return TaskResult(err=TaskError(error_code="FLAKY", message="not yet"))
    return TaskResult(ok=5)


@app.task("flows.broken")
def broken() -> Number:
    return TaskResult(err=TaskError(error_code="BROKEN", message="as told"))


@app.task("flows.report")
def report(
    workflow_ctx: WorkflowContext | None, *, workflow_meta: WorkflowMeta | None = None
) -> TaskResult[dict[str, Any], TaskError]:
    """What it has been told about its workflow."""
    assert workflow_ctx is not None and workflow_meta is not None
    return TaskResult(
        ok={
            "ids": [workflow_ctx.workflow_id, workflow_meta.workflow_id],
            "places": [workflow_ctx.task_index, workflow_meta.task_index],
            "names": [workflow_ctx.task_name, workflow_meta.task_name],
            "results": {
                node: result.ok
                if (result := workflow_ctx.result_for(REPORTED[node])).is_ok()
                else str(result.err_value.code)
                for node in REPORTED
                if workflow_ctx.has_result(REPORTED[node])
            },
            "total": workflow_ctx.summary_for(child).total_tasks,
        }
    )


class Child(WorkflowDefinition[int]):
    """As many steps as it is told, from what its parent knows so far."""

    name = "child"
    definition_key = "flows.child"

    @classmethod
    def build_with(cls, app: Horsies, *args: Any, label: str, steps: int, start: Number, **_: Any) -> WorkflowSpec[int]:
        trace(f"{label}.build")
        stay(f"{label}.build", 8.0)
        nodes = [number.node(node_id="first")(name=f"{label}.first", value=start.unwrap())]
        for step in range(1, steps):
            nodes.append(plus.node(node_id=f"step{step}")(name=f"{label}.step{step}", a=from_node(nodes[-1])))
        return app.workflow(cls.name, nodes, output=nodes[-1], definition_key=cls.definition_key)


@app.task("flows.add")
def add(a: int, b: int = 0) -> int:
    return a + b


@app.task("flows.upto")
async def upto(end: int) -> list[int]:
    return list(range(end))


@app.task("flows.total")
def total(values: list[int] | None = None, of_child: int = -1, nothing: int = -1) -> str:
    return f"{sum(values or ())} {of_child} {nothing}"


class Counted(WorkflowDefinition[int]):
    """Built from the plain value of a node."""

    name = "counted"
    definition_key = "flows.counted"

    @classmethod
    def build_with(cls, app: Horsies, *args: Any, steps: int, **_: Any) -> WorkflowSpec[int]:
        nodes = [add.node(node_id="n0")(a=1)]
        for step in range(1, steps):
            nodes.append(add.node(node_id=f"n{step}")(a=from_node(nodes[-1]), b=1))
        return app.workflow(cls.name, nodes, output=nodes[-1])


def of_plain_values() -> WorkflowSpec[str]:
    """Plain functions only: a map, a child workflow, and a source that fails."""
    three = add.node(node_id="three")(a=1, b=2)
    listed = upto.node(node_id="listed")(end=from_node(three))
    raised = add.map_node(node_id="raised", over=from_node(listed))(b=10)
    again = add.map_node(node_id="again", over=from_node(raised))(b=from_node(three))
    counted = SubWorkflowNode(Counted, kwargs={"steps": from_node(three)}, node_id="counted")
    failed = broken.node(node_id="failed")()
    last = total.node(node_id="last", allow_failed_deps=True)(
        values=from_node(again), of_child=from_node(counted), nothing=from_node(failed)
    )
    nodes: list[Any] = [three, listed, raised, again, counted, failed, last]
    return app.workflow("plain values", nodes, output=last, definition_key="flows.plain_values")


class Stubborn(WorkflowDefinition[int]):
    """Cannot be built."""

    name = "stubborn"
    definition_key = "flows.stubborn"

    @classmethod
    def build_with(cls, app: Horsies, *args: Any, how: str, after: Number, **_: Any) -> WorkflowSpec[int]:
        if how == "die":
            os._exit(3)
        raise RuntimeError("as told")


one = number.node(node_id="one")(name="one", value=1)
two = flaky.node(node_id="two")(name="two")
three = aplus.node(node_id="three")(a=from_node(one), b=from_node(two))
bad = broken.node(node_id="bad", waits_for=[one])()
never = number.node(node_id="never", waits_for=[bad])(name="never", value=0)
child: SubWorkflowNode[int] = SubWorkflowNode(
    Child, kwargs={"label": "sub", "steps": 3}, waits_for=[three], args_from={"start": three}, node_id="child"
)
told = report.node(
    node_id="told",
    waits_for=[one, three, bad, never, child],
    workflow_ctx_from=[one, three, bad, never, child],
    allow_failed_deps=True,
)()
REPORTED = {"one": one, "three": three, "bad": bad, "never": never, "child": child}
everything = app.workflow(
    "everything", [one, two, three, bad, never, child, told], output=told, definition_key="flows.everything"
)


def one_after_the_other(label: str, length: int) -> list[Any]:
    nodes: list[Any] = [number.node(node_id="n0")(name=f"{label}.n0", value=0)]
    for place in range(1, length):
        nodes.append(plus.node(node_id=f"n{place}")(name=f"{label}.n{place}", a=from_node(nodes[-1])))
    return nodes


def chain_of_tasks(label: str, length: int) -> WorkflowSpec[int]:
    """One after the other; the result is one less than their number."""
    nodes = one_after_the_other(label, length)
    return app.workflow(f"tasks {label}", nodes, output=nodes[-1], definition_key=f"flows.tasks.{label}")


def chain(label: str, length: int) -> WorkflowSpec[int]:
    """So many, then a child workflow of two steps, then one more; the result is one more than `length`."""
    nodes = one_after_the_other(label, length)
    sub: SubWorkflowNode[int] = SubWorkflowNode(
        Child, kwargs={"label": label, "steps": 2}, waits_for=[nodes[-1]], args_from={"start": nodes[-1]}, node_id="sub"
    )
    last = plus.node(node_id="last")(name=f"{label}.last", a=from_node(sub))
    return app.workflow(f"chain {label}", [*nodes, sub, last], output=last, definition_key=f"flows.chain.{label}")


def fan(label: str, width: int) -> WorkflowSpec[Any]:
    """So many side by side, and one that waits for all of them."""
    nodes = [number.node(node_id=f"n{place}")(name=f"{label}.n{place}", value=place) for place in range(width)]
    last = number.node(node_id="last", waits_for=nodes)(name=f"{label}.last", value=width)
    return app.workflow(f"fan {label}", [*nodes, last], output=last, definition_key=f"flows.fan.{label}")


def stubborn(how: str) -> WorkflowSpec[Any]:
    """A child that cannot be built, and a node that runs all the same."""
    first = number.node(node_id="first")(name=f"{how}.first", value=1)
    node: SubWorkflowNode[int] = SubWorkflowNode(
        Stubborn, kwargs={"how": how}, waits_for=[first], args_from={"after": first}, node_id="child"
    )
    return app.workflow(f"stubborn {how}", [first, node], definition_key=f"flows.stubborn.{how}")
