"""A saga: steps in several places that no transaction spans, each with a step that undoes it if a later one fails.

Run it as `python examples/workflow_saga.py`. An undoing node waits for its step and for the last one. With
`allow_failed_deps` it runs however they ended, and looks at their results. They are errors as values: the step's own
error, or UPSTREAM_SKIPPED if it never ran.
"""

import asyncio
import os

from horsies import AppConfig, Horsies, TaskError, TaskResult, Worker, WorkerConfig, WorkflowDefinition, from_node

app = Horsies(AppConfig.for_database_url(os.environ.get("DATABASE_URL", "embedded:.horsies/postgres")))

Step = TaskResult[str, TaskError]


@app.task("saga.book")
def book(what: str) -> Step:
    return TaskResult(ok=f"booking of a {what}")


@app.task("saga.pay")
def pay(budget: int, price: int) -> Step:
    if price > budget:
        return TaskResult(err=TaskError(error_code="NOT_ENOUGH_MONEY", message=f"{price - budget} too much"))
    return TaskResult(ok=f"payment of {price}")


@app.task("saga.undo")
def undo(step: Step, payment: Step) -> Step:
    """Whatever is undone may be undone twice if a worker dies: ask the other side to take no notice of that."""
    if payment.is_ok() or step.is_err():
        return TaskResult(ok="nothing to undo")
    return TaskResult(ok=f"cancelled the {step.unwrap()}")


class Trip(WorkflowDefinition[str]):
    name = "trip"
    definition_key = "examples.trip"

    hotel = book.node()(what="room")
    flight = book.node(waits_for=[hotel])(what="seat")
    payment = pay.node(waits_for=[flight])(budget=300, price=450)
    no_flight = undo.node(allow_failed_deps=True)(step=from_node(flight), payment=from_node(payment))
    no_hotel = undo.node(allow_failed_deps=True, waits_for=[no_flight])(
        step=from_node(hotel), payment=from_node(payment)
    )

    class Meta:
        output = "payment"


async def main() -> None:
    worker = Worker(app, WorkerConfig(processes=2))
    serving = asyncio.create_task(worker.run())
    handle = (await Trip.build(app).start_async()).unwrap()
    result = await handle.get_async()  # when all is settled, also what had to be undone
    print(f"the trip: {result.err_value.error_code}, {result.err_value.message}")
    for node in (await handle.tasks_async()).unwrap():
        outcome = node.result.ok if node.result and node.result.is_ok() else "–"
        print(f"  {node.node_id} {node.status}: {outcome}")
    worker.request_stop()
    await serving
    await app.get_broker().close_async()


if __name__ == "__main__":
    asyncio.run(main())
