import asyncio
import os

from horsies import AppConfig, Horsies, TaskError, TaskResult, Worker

app = Horsies(AppConfig.for_database_url(os.environ.get("DATABASE_URL", "embedded:.horsies/postgres")))


@app.task("greet")
def greet(name: str) -> TaskResult[str, TaskError]:
    return TaskResult(ok=f"Hello, {name}!")


if __name__ == "__main__":
    handle = greet.send("world").unwrap()  # the task is a row in PostgreSQL now
    asyncio.run(Worker(app).run_once())  # in production: horsies worker examples/quickstart.py
    print(handle.get(timeout_ms=10_000).unwrap())  # Hello, world!
