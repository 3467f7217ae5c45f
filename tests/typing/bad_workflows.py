"""What a type checker must refuse about workflows: each line that ends in `E:` and a code, and no other."""

from __future__ import annotations

from horsies import (
    AppConfig,
    Horsies,
    NodeKey,
    PostgresConfig,
    SubWorkflowNode,
    SuccessCase,
    TaskError,
    TaskNode,
    TaskResult,
    WorkflowDefinition,
    WorkflowSpec,
    from_node,
)

app = Horsies(AppConfig(broker=PostgresConfig(database_url="postgresql+psycopg://h/d")))


@app.task("fetch")
def fetch(url: str, depth: int = 1) -> TaskResult[bytes, TaskError]:
    return TaskResult(ok=b"")


@app.task("pages")
def pages() -> TaskResult[list[str], TaskError]:
    return TaskResult(ok=[])


@app.task("store")
def store(page: TaskResult[int, TaskError]) -> TaskResult[int, TaskError]:
    return TaskResult(ok=1)


class Site(WorkflowDefinition[int]):
    name = "site"
    definition_key = "site"
    first = fetch.node()(url="u")


fetched = fetch.node()(url="u")
texts = pages.node()()
fetch.node()()  # E: call-arg
fetch.node()(url=5)  # E: arg-type
fetch.node()(url="u", height=3)  # E: call-arg
fetch.node(url="u")  # E: call-arg
fetch.node(priority="high")  # E: arg-type
fetch.node(join="most")  # E: arg-type
fetch.node(waits_for=[fetch])  # E: list-item
fetch.node(max_parallel=3)  # E: call-arg
store.node()(page=from_node(fetched))  # E: arg-type
store.node()(page=fetched)  # E: arg-type
from_node(fetch)  # E: call-overload
from_node(NodeKey("a"))  # E: call-overload
fetch.map_node(over=from_node(fetched), param=3)  # E: call-overload
fetch.map_node(over=texts)  # E: call-overload
fetch.map_node(over=from_node(texts))(depth="deep")  # E: arg-type
fetch.map_node(over=from_node(texts))(url="u")  # E: call-arg
SubWorkflowNode(fetch)  # E: arg-type
SubWorkflowNode(Site, queue="fast")  # E: call-arg
SuccessCase(required=[5])  # E: list-item

spec = app.workflow("w", [fetched], output=fetched, definition_key="w")
app.workflow("w", [fetch], definition_key="w")  # E: list-item
wrong_spec: WorkflowSpec[int] = spec  # E: assignment
handle = spec.start().unwrap()
number: int = handle.get().ok_value  # E: assignment
text: str = handle.result_for(fetched).ok_value  # E: assignment
handle.result_for("fetched")  # E: arg-type
wrong_node: TaskNode[str] = fetched  # E: assignment
spec.start(good_until="tomorrow")  # E: arg-type
built: WorkflowSpec[str] = Site.build(app)  # E: assignment


@app.workflow_builder()  # E: type-var
def not_a_workflow() -> int:
    return 1
