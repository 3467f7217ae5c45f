"""Fan-out and fan-in: three shops are asked at the same time, and when all have answered the cheapest offer is taken.

Run it as `python examples/workflow_fan_out.py`. A shop that fails would fail the whole workflow: to go on without it,
see `workflow_quorum.py`.
"""

import asyncio
import os

from horsies import AppConfig, Horsies, TaskError, TaskResult, Worker, WorkerConfig, from_node

app = Horsies(AppConfig.for_database_url(os.environ.get("DATABASE_URL", "embedded:.horsies/postgres")))

Offer = tuple[str, int]
Answer = TaskResult[Offer, TaskError]


@app.task("fan_out.ask")
def ask(shop: str, item: str) -> Answer:
    return TaskResult(ok=(shop, len(shop) * len(item)))  # as if it had asked


@app.task("fan_out.choose")
def choose(one: Answer, two: Answer, three: Answer) -> TaskResult[Offer, TaskError]:
    return TaskResult(ok=min((one.unwrap(), two.unwrap(), three.unwrap()), key=lambda offer: offer[1]))


@app.task("fan_out.buy")
def buy(offer: Answer) -> TaskResult[str, TaskError]:
    shop, price = offer.unwrap()
    return TaskResult(ok=f"bought at {shop} for {price}")


asks = [ask.node(node_id=shop)(shop=shop, item="a chair") for shop in ("corner", "mall", "warehouse")]
best = choose.node(node_id="best")(one=from_node(asks[0]), two=from_node(asks[1]), three=from_node(asks[2]))
bought = buy.node(node_id="bought")(offer=from_node(best))
shopping = app.workflow("shopping", [*asks, best, bought], output=bought, definition_key="examples.shopping")


async def main() -> None:
    worker = Worker(app, WorkerConfig(processes=2))
    serving = asyncio.create_task(worker.run())
    handle = (await shopping.start_async()).unwrap()  # five rows, three of them with a task that workers can take
    print((await handle.get_async()).unwrap())
    for node in asks:
        shop, price = (await handle.result_for_async(node)).unwrap()
        print(f"  {shop}: {price}")
    worker.request_stop()
    await serving
    await app.get_broker().close_async()


if __name__ == "__main__":
    asyncio.run(main())
