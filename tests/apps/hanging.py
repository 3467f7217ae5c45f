"""Tasks whose functions end at once, and hooks of which the task chooses one that does not end."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NoReturn

from horsies import AppConfig, AsyncTaskContext, Horsies, TaskContext, TaskError, TaskResult

app = Horsies(AppConfig.for_database_url(os.environ.get("DATABASE_URL", "postgresql://nobody@127.0.0.1:1/nothing")))
AnyContext = TaskContext | AsyncTaskContext
chosen: dict[str, tuple[str, Path]] = {}  # by the id of the task: the hook that hangs, and where all of them are noted


def note(ctx: AnyContext, text: str) -> bool:
    """Whether this hook is the one that hangs."""
    where, notes = chosen[ctx.task_id]
    with notes.open("a") as file:
        file.write(text + "\n")
    return text == where


def hang() -> NoReturn:
    while True:
        time.sleep(0.05)


def choose(ctx: AnyContext, where: str, notes: str, fails: bool) -> str:
    chosen[ctx.task_id] = (where, Path(notes))
    if fails:
        raise ValueError("the task has failed")
    return "the result"


@app.task("work", timeout_ms=1000)
def work(ctx: TaskContext, where: str, notes: str, fails: bool = False) -> str:
    return choose(ctx, where, notes, fails)


@app.task("a_work", timeout_ms=1000)
async def a_work(ctx: AsyncTaskContext, where: str, notes: str, fails: bool = False) -> str:
    await asyncio.sleep(0)
    return choose(ctx, where, notes, fails)


@app.around_task
def outer(ctx: AnyContext) -> Iterator[None]:
    """It must not take the stop of another hook for the end of the task."""
    try:
        yield
    except BaseException as error:
        note(ctx, f"outer {type(error).__name__}")
        raise
    note(ctx, "outer")


@app.around_task
def inner(ctx: AnyContext) -> Iterator[None]:
    try:
        yield
    finally:
        if note(ctx, "inner"):
            hang()


@app.around_task
async def inner_async(ctx: AsyncTaskContext) -> AsyncIterator[None]:
    try:
        yield
    finally:
        if note(ctx, "inner async"):
            await asyncio.sleep(60)


@app.after_task
def swallowing(ctx: AnyContext, result: TaskResult[Any, TaskError]) -> None:
    if note(ctx, "swallowing"):
        try:
            hang()
        except BaseException:
            note(ctx, "swallowed")


@app.after_task
async def swallowing_async(ctx: AnyContext, result: TaskResult[Any, TaskError]) -> None:
    if note(ctx, "swallowing async"):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            note(ctx, "swallowed")


@app.after_task
def after(ctx: AnyContext, result: TaskResult[Any, TaskError]) -> None:
    if note(ctx, "after"):
        hang()
    if chosen[ctx.task_id][0] == "stubborn":
        note(ctx, "stubborn")
        while True:
            try:
                hang()
            except BaseException:
                note(ctx, "goes on")


@app.after_task
async def after_async(ctx: AsyncTaskContext, result: TaskResult[Any, TaskError]) -> None:
    if note(ctx, "after async"):
        await asyncio.sleep(60)


@app.on_failure
def failed(ctx: AnyContext, error: TaskError) -> None:
    if note(ctx, "failed"):
        hang()


@app.on_failure
async def failed_async(ctx: AsyncTaskContext, error: TaskError) -> None:
    if note(ctx, "failed async"):
        await asyncio.sleep(60)
