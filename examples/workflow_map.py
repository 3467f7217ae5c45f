"""Map over a list: how many tasks there are is known only when the list is there.

Run it as `python examples/workflow_map.py`. The map node becomes one task for each element of the list that the node
before it returned, at most `max_parallel` at a time, and its result is the list of theirs, in the order of the input.
"""

import asyncio
import os

from horsies import AppConfig, Horsies, TaskError, TaskResult, Worker, WorkerConfig, from_node

app = Horsies(AppConfig.for_database_url(os.environ.get("DATABASE_URL", "embedded:.horsies/postgres")))

Count = TaskResult[int, TaskError]


@app.task("map.list_pages")
def list_pages(book: str) -> TaskResult[list[str], TaskError]:
    pages = ["once upon a time", "there was a horse", "", "and then it ran"]
    return TaskResult(ok=[f"{book}: {page}" if page else "" for page in pages])


@app.task("map.count_words")
def count_words(page: str, sep: str) -> Count:
    if not page:
        return TaskResult(err=TaskError(error_code="EMPTY", message="nothing on this page"))
    return TaskResult(ok=len(page.split(sep)))


@app.task("map.total")
def total(counts: TaskResult[list[Count], TaskError]) -> TaskResult[int, TaskError]:
    return TaskResult(ok=sum(count.unwrap() for count in counts.unwrap() if count.is_ok()))


pages = list_pages.node(node_id="pages")(book="Horses")
counts = count_words.map_node(node_id="counts", over=from_node(pages), max_parallel=2, min_success=3)(sep=" ")
words = total.node(node_id="words")(counts=from_node(counts))
counting = app.workflow("counting", [pages, counts, words], output=words, definition_key="examples.counting")


async def main() -> None:
    worker = Worker(app, WorkerConfig(processes=2))
    serving = asyncio.create_task(worker.run())
    handle = (await counting.start_async()).unwrap()
    print(f"words: {(await handle.get_async()).unwrap()}")
    for count in (await handle.result_for_async(counts)).unwrap():
        print(f"  {count.ok if count.is_ok() else count.err_value.error_code}")
    print(", ".join(f"{node.node_id} {node.status}" for node in (await handle.tasks_async()).unwrap()))
    worker.request_stop()
    await serving
    await app.get_broker().close_async()


if __name__ == "__main__":
    asyncio.run(main())
