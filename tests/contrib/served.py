"""An application of FastAPI for a real uvicorn: its requests wait for a task that nobody runs yet, in every way there
is."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator

from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from horsies import AppConfig, Horsies, TaskHandle
from horsies.contrib.asgi import lifespan, mount_dashboard
from horsies.web import ViewOnly

app = Horsies(AppConfig.for_database_url(os.environ.get("DATABASE_URL", "postgresql://nobody@localhost:1/none")))


@app.task("served.double")
def double(number: int) -> int:
    return 2 * number


api = FastAPI(lifespan=lifespan(app))
mount_dashboard(api, app, "/jobs", auth_policy=ViewOnly())


@api.post("/tasks/{number}")
async def send(number: int) -> str:
    return (await double.send_or_raise_async(number)).task_id


def tell() -> None:
    print("a request waits", file=sys.stderr, flush=True)


@api.get("/waited/{task_id}")
async def wait(task_id: str) -> str:
    tell()
    return str(await app.get_broker().get_result_async(task_id, timeout_ms=300_000))


@api.get("/blocked/{task_id}")
def block(task_id: str) -> str:
    tell()
    return str(app.get_broker().get_result(task_id, timeout_ms=300_000))


@api.get("/watched/{task_id}")
async def watch(task_id: str) -> StreamingResponse:
    async def events() -> AsyncIterator[str]:
        async for info in TaskHandle[int](task_id, app.get_broker()).watch_async():
            yield f"data: {info.status}\n\n"
            tell()

    return StreamingResponse(events(), media_type="text/event-stream")


@api.get("/process")
async def process() -> int:
    return os.getpid()
