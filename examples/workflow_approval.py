"""Approval: a workflow stops until a human has said yes, for as long as that takes, and holds nothing meanwhile.

Run it as `python examples/workflow_approval.py`. The task that asks pauses its own workflow: what has begun ends,
nothing new starts. Yes is `resume()`, no is `cancel()`; in a terminal `horsies workflow resume <id>` does the same.
"""

import asyncio
import os

from horsies import (
    AppConfig,
    Horsies,
    TaskError,
    TaskResult,
    Worker,
    WorkerConfig,
    WorkflowHandle,
    WorkflowMeta,
    from_node,
)
from horsies import pause_workflow_sync as pause_workflow

app = Horsies(AppConfig.for_database_url(os.environ.get("DATABASE_URL", "embedded:.horsies/postgres")))

Draft = TaskResult[str, TaskError]


@app.task("approval.write")
def write(title: str) -> Draft:
    return TaskResult(ok=f"{title}: all is well")


@app.task("approval.ask")
def ask(draft: Draft, workflow_meta: WorkflowMeta | None = None) -> TaskResult[None, TaskError]:
    assert workflow_meta is not None  # given to every task of a workflow that declares it
    pause_workflow(app.get_broker(), workflow_meta.workflow_id).unwrap()
    # Here a mail goes out with the draft, and with a link that resumes workflow_meta.workflow_id.
    return TaskResult(ok=None)


@app.task("approval.publish")
def publish(draft: Draft) -> TaskResult[str, TaskError]:
    return TaskResult(ok=f"published: {draft.unwrap()}")


draft = write.node(node_id="draft")(title="News")
asked = ask.node(node_id="asked")(draft=from_node(draft))
published = publish.node(node_id="published", waits_for=[asked])(draft=from_node(draft))
news = app.workflow("news", [draft, asked, published], output=published, definition_key="examples.news")


async def started() -> WorkflowHandle[str]:
    """It is paused when this returns."""
    handle = (await news.start_async()).unwrap()
    waiting = await handle.get_async()
    print(f"get: {waiting.err_value.error_code}")
    return handle


async def main() -> None:
    worker = Worker(app, WorkerConfig(processes=2))
    serving = asyncio.create_task(worker.run())

    liked = await started()
    print(f"resume: {(await liked.resume_async()).unwrap()}")
    print((await liked.get_async()).unwrap())

    refused = await started()
    (await refused.cancel_async()).unwrap()
    print(f"cancelled: {(await refused.get_async()).err_value.error_code}")

    worker.request_stop()
    await serving
    await app.get_broker().close_async()


if __name__ == "__main__":
    asyncio.run(main())
