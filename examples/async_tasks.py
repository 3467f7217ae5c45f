"""`async def` tasks: many of them wait side by side on the event loops of a worker's processes.

Run it as `python examples/async_tasks.py`. It sends from an event loop and runs the worker on the same one; usually the
worker is a process of its own: `horsies worker examples/async_tasks.py --processes 2 --concurrency 50`.
"""

import asyncio
import os
import time

from horsies import AppConfig, Horsies, TaskError, TaskResult, Worker, WorkerConfig

TASKS = 100
SECONDS_EACH = 0.2

app = Horsies(AppConfig.for_database_url(os.environ.get("DATABASE_URL", "embedded:.horsies/postgres")))


@app.task("async_tasks.fetch")
async def fetch(number: int) -> TaskResult[int, TaskError]:
    await asyncio.sleep(SECONDS_EACH)  # as if it waited for the answer of a server
    return TaskResult(ok=number * number)


async def main() -> None:
    worker = Worker(app, WorkerConfig(processes=2, concurrency=50))
    serving = asyncio.create_task(worker.run())
    try:
        await (await fetch.send_async(0)).unwrap().get_async()  # now the worker is warm
        began = time.perf_counter()
        sends = await asyncio.gather(*(fetch.send_async(number) for number in range(TASKS)))
        results = await asyncio.gather(*(sent.unwrap().get_async() for sent in sends))
        took = time.perf_counter() - began
        print(f"sum of squares: {sum(result.unwrap() for result in results)}")
        print(f"{TASKS} tasks of {SECONDS_EACH} s took {took:.1f} s instead of {TASKS * SECONDS_EACH:.0f} s")
    finally:
        worker.request_stop()
        await serving
        await app.get_broker().close_async()


if __name__ == "__main__":
    asyncio.run(main())
