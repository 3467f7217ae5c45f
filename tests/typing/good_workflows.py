"""What a type checker must accept and infer about workflows (F-03, F-04, F-11, F-36, F-83, F-95)."""

from __future__ import annotations

from typing import Any, assert_type

from horsies import (
    AppConfig,
    Err,
    HandleOperationError,
    Horsies,
    MapNode,
    NodeKey,
    Ok,
    OnError,
    PostgresConfig,
    SubWorkflowNode,
    SubWorkflowSummary,
    SuccessCase,
    SuccessPolicy,
    TaskError,
    TaskNode,
    TaskResult,
    WorkflowContext,
    WorkflowDefinition,
    WorkflowHandle,
    WorkflowMeta,
    WorkflowSpec,
    WorkflowStartError,
    WorkflowTaskInfo,
    from_node,
)

app = Horsies(AppConfig(broker=PostgresConfig(database_url="postgresql+psycopg://h/d")))


@app.task("fetch")
def fetch(url: str, depth: int = 1) -> TaskResult[bytes, TaskError]:
    return TaskResult(ok=b"")


@app.task("pages")
async def pages(site: str) -> TaskResult[list[int], TaskError]:
    return TaskResult(ok=[1])


@app.task("scale")
def scale(page: float, factor: int, *, name: str = "") -> TaskResult[str, TaskError]:
    return TaskResult(ok="")


@app.task("store")
def store(
    page: TaskResult[bytes, TaskError],
    sizes: TaskResult[list[TaskResult[str, TaskError]], TaskError] | None = None,
    workflow_ctx: WorkflowContext | None = None,
    workflow_meta: WorkflowMeta | None = None,
) -> TaskResult[int, TaskError]:
    if workflow_ctx is not None:
        assert_type(workflow_ctx.result_for(fetched), TaskResult[bytes, TaskError])
        assert_type(workflow_ctx.result_for(fetched.key()).ok_value, bytes)
        assert_type(workflow_ctx.summary_for(SubWorkflowNode(Site)), SubWorkflowSummary[int])
        assert_type(workflow_ctx.has_result(fetched), bool)
    return TaskResult(ok=1)


fetched = fetch.node(node_id="fetched", queue=None, priority=3, flags=["big"])(url="u", depth=2)
assert_type(fetched, TaskNode[bytes])
assert_type(fetched.key(), NodeKey[bytes])
found = pages.node(waits_for=[fetched], allow_failed_deps=True)(site="s")
assert_type(found, TaskNode[list[int]])
scaled = scale.map_node(over=from_node(found), max_parallel=3, join="quorum", min_success=2)(factor=2, name="n")
assert_type(scaled, MapNode[str])
as_node: TaskNode[list[TaskResult[str, TaskError]]] = scaled
by_name = scale.map_node(over=from_node(found), param="factor")(page=1.0)
assert_type(by_name, MapNode[str])
stored = store.node(workflow_ctx_from=[fetched], join="all")(page=from_node(fetched), sizes=from_node(scaled))
assert_type(stored, TaskNode[int])
assert_type(TaskNode(fetch, {"url": "u"}), TaskNode[bytes])

spec = app.workflow("site", [fetched, found, scaled, by_name, stored], output=stored, definition_key="site")
assert_type(spec, WorkflowSpec[int])
policy = SuccessPolicy(cases=[SuccessCase(required=[fetched, "stored", stored.key()])], optional=[scaled])
without = app.workflow("w", [fetched], OnError.PAUSE, success_policy=policy, definition_key="w")
assert_type(without, WorkflowSpec[dict[str, TaskResult[Any, TaskError] | None]])

started = spec.start()
assert_type(started, Ok[WorkflowHandle[int]] | Err[WorkflowStartError])
handle = started.unwrap()
assert_type(handle.get(timeout_ms=5), TaskResult[int, TaskError])
assert_type(handle.result_for(fetched), TaskResult[bytes, TaskError])
assert_type(handle.result_for(fetched.key()), TaskResult[bytes, TaskError])
assert_type(handle.result_for(scaled), TaskResult[list[TaskResult[str, TaskError]], TaskError])
assert_type(handle.tasks(), Ok[list[WorkflowTaskInfo]] | Err[HandleOperationError])
assert_type(without.start().unwrap().get().ok_value, dict[str, TaskResult[Any, TaskError] | None])
handle.retry_node(fetched)


class Site(WorkflowDefinition[int]):
    name = "site"
    definition_key = "site"
    first = fetch.node()(url="u")
    last = store.node()(page=from_node(first))

    class Meta:
        output = "last"


class Sites(WorkflowDefinition[int]):
    name = "sites"
    definition_key = "sites"

    @classmethod
    def build_with(cls, app: Horsies, count: int, *, label: str = "") -> WorkflowSpec[int]:
        nodes = [SubWorkflowNode(Site) for _ in range(count)]
        return app.workflow("sites", nodes, output=nodes[0])


assert_type(Site.build(app), WorkflowSpec[int])
assert_type(Site.first, TaskNode[bytes])
assert_type(Sites.build_with(app, 3, label="l"), WorkflowSpec[int])
assert_type(Site.build(app).start().unwrap().get(), TaskResult[int, TaskError])
child = SubWorkflowNode(Site)
assert_type(child, SubWorkflowNode[int])
assert_type(handle.result_for(child), TaskResult[int, TaskError])


@app.workflow_builder(cases=[{"count": 3}])
def sites(count: int) -> WorkflowSpec[int]:
    return Sites.build_with(app, count)


assert_type(sites(3), WorkflowSpec[int])


async def awaiting() -> None:
    running = (await spec.start_async()).unwrap()
    assert_type(await running.get_async(), TaskResult[int, TaskError])
    assert_type(await running.result_for_async(found), TaskResult[list[int], TaskError])
