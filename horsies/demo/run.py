"""Plays the scenes of the demo on a real `horsies worker` in a separate process, which never outlives the demo; reads
the rows, and reports. `scenes.py` says what is shown, and `report.py` judges and prints it.
"""

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from psycopg.rows import class_row
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from horsies.core.db import connect
from horsies.core.errors import HorsiesError
from horsies.core.sql import load
from horsies.demo import app as tasks
from horsies.demo import report, scenes
from horsies.demo.programs import Program

PROCESSES = 2
CONCURRENCY = 50
STOP_SECONDS = 20.0
SCENE_SECONDS = 90.0
WATCH_SECONDS = 0.1
OPTIONS = ("--processes", str(PROCESSES), "--concurrency", str(CONCURRENCY))
WORKER_SENTENCE = f"One worker with {PROCESSES} processes ran all of this, and exited with 0 when it was told to stop."


async def play(console: Console) -> bool:
    """Play the whole demo; True if everything ended as expected."""
    with (
        tempfile.TemporaryDirectory(prefix="horsies-demo-") as directory,
        Program(Path(directory, "worker.log"), "worker", "horsies.demo.app:app", *OPTIONS) as worker,
    ):
        stage = scenes.DemoStage(Path(directory), worker.start)
        try:
            failures = await _all_scenes(console, stage, worker)
        finally:
            await tasks.app.get_broker().close_async()
        end = await asyncio.to_thread(worker.stop, STOP_SECONDS)
    rows, tasks_per_second = await _look()
    verdicts = [
        report.SceneResult(scene.sentence, failure + report.problems(scene.expected, rows))
        for scene, failure in zip(scenes.SCENES, failures, strict=True)
    ]
    verdicts.append(report.SceneResult(WORKER_SENTENCE, [] if end == 0 else [f"its exit code was {end}"]))
    report.print_report(
        console, rows, report.Figures(stage.sends_per_second, tasks_per_second, stage.round_trips_ms), verdicts
    )
    return not any(verdict.problems for verdict in verdicts)


async def _all_scenes(console: Console, stage: scenes.DemoStage, worker: Program) -> list[list[str]]:
    """What went wrong in each scene."""
    with _progress(console) as begin:
        failures = []
        for scene in scenes.SCENES:
            stage.advance = begin(scene)
            failures.append(await _unless_worker_ends(_play_one(scene, stage), worker))
        begin(None)
        return failures


async def _play_one(scene: scenes.Scene, stage: scenes.DemoStage) -> list[str]:
    try:
        async with asyncio.timeout(SCENE_SECONDS):
            await scene.play(stage)
    except report.NotAsExpected as problem:
        return [str(problem)]
    except ValueError as problem:  # a scene unwrapped a result of the wrong kind
        return [str(problem)]
    except TimeoutError:
        return [f"it did not end within {SCENE_SECONDS:g} s"]
    return []


async def _unless_worker_ends(scene: Awaitable[list[str]], worker: Program) -> list[str]:
    """Stop at once when the worker ends, with its last output, because nothing more will happen without it."""
    playing = asyncio.ensure_future(scene)
    while not playing.done():
        await asyncio.wait({playing}, timeout=WATCH_SECONDS)
        if worker.has_ended:
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)
            raise HorsiesError("the worker of the demo has ended", notes=[worker.last_words()])
    return await playing


async def _look() -> tuple[list[report.Row], float]:
    """The rows of this run, and how many of the small tasks ran per second."""
    conn = await connect(tasks.app.config.broker, name="horsies demo")
    try:
        cursor = conn.cursor(row_factory=class_row(report.Row))
        rows = await (await cursor.execute(load("demo/outcomes"), {"queue": tasks.QUEUE})).fetchall()
        pace = await conn.execute(load("demo/pace"), {"queue": tasks.QUEUE, "task": tasks.add.task_name})
        count, seconds = await pace.fetchone() or (0, None)
    finally:
        await conn.close()
    return rows, count / seconds if seconds else 0.0


@contextlib.contextmanager
def _progress(console: Console) -> Iterator[Callable[[scenes.Scene | None], Callable[[], None]]]:
    """A progress bar for each scene on a terminal; otherwise a line at its end."""
    bars = Progress(
        TextColumn("{task.description:<38}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )
    began, before = time.monotonic(), None

    def begin(scene: scenes.Scene | None) -> Callable[[], None]:
        nonlocal began, before
        if before is not None and not console.is_terminal:
            console.print(f"{before.title}: {time.monotonic() - began:.1f} s")
        began, before = time.monotonic(), scene
        if scene is None:
            return lambda: None
        bar = bars.add_task(scene.title, total=scene.steps)
        return lambda: bars.advance(bar)

    with bars:
        yield begin
