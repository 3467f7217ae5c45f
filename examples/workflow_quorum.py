"""A quorum: a file is stored in three places, and two copies are enough to go on.

Run it as `python examples/workflow_quorum.py`. `join="quorum"` starts a node as soon as so many of those it waits for
have succeeded; the others may fail, or finish later. The success policy says that their failure is not the workflow's.
"""

import asyncio
import os

from horsies import (
    AppConfig,
    Horsies,
    SuccessCase,
    SuccessPolicy,
    TaskError,
    TaskResult,
    Worker,
    WorkerConfig,
    from_node,
)

app = Horsies(AppConfig.for_database_url(os.environ.get("DATABASE_URL", "embedded:.horsies/postgres")))

Copy = TaskResult[str, TaskError]
PLACES = ("attic", "cellar", "garage")


@app.task("quorum.store")
def store(place: str) -> Copy:
    if place == "cellar":
        return TaskResult(err=TaskError(error_code="UNDER_WATER", message="the cellar is flooded"))
    return TaskResult(ok=place)


@app.task("quorum.confirm")
def confirm(a: Copy | None = None, b: Copy | None = None, c: Copy | None = None) -> TaskResult[list[str], TaskError]:
    """A copy that has not ended when this starts is not given: its parameter keeps its default."""
    return TaskResult(ok=[copy.unwrap() for copy in (a, b, c) if copy is not None and copy.is_ok()])


copies = [store.node(node_id=place)(place=place) for place in PLACES]
confirmed = confirm.node(node_id="confirmed", join="quorum", min_success=2)(
    a=from_node(copies[0]), b=from_node(copies[1]), c=from_node(copies[2])
)
backup = app.workflow(
    "backup",
    [*copies, confirmed],
    output=confirmed,
    success_policy=SuccessPolicy(cases=[SuccessCase(required=[confirmed])], optional=copies),
    definition_key="examples.backup",
)


async def main() -> None:
    worker = Worker(app, WorkerConfig(processes=2))
    serving = asyncio.create_task(worker.run())
    handle = (await backup.start_async()).unwrap()
    print(f"stored in: {', '.join((await handle.get_async()).unwrap())}")
    print(f"workflow: {(await handle.status_async()).unwrap()}")
    lost = await handle.result_for_async(copies[1])
    print(f"cellar: {lost.err_value.error_code}")
    worker.request_stop()
    await serving
    await app.get_broker().close_async()


if __name__ == "__main__":
    asyncio.run(main())
