"""`horsies demo`: a busy day of the shop in a few seconds. Thousands of tasks, with failures and retries, workflows and
a schedule; a worker and a child process are killed, and tasks are cancelled. In the end a table compares what must be
in the database with what is there.
"""

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from psycopg import AsyncConnection
from psycopg.rows import class_row
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from horsies import IntervalSchedule, TaskHandle, TaskSchedule, TaskStatus, WorkflowStatus
from horsies.core.db import connect
from horsies.core.errors import HorsiesError
from horsies.core.sql import load
from horsies.demo import shop
from horsies.demo.programs import IMAGES_WORKER, SHOP, ShopPrograms

PRICES, BATCH = 5_000, 500
MAILS, REFUSED_MAILS = 60, 6
IMAGES, BROKEN_IMAGES = 40, 2
ORDERS = 10  # one of them has a sold-out item
LOST_REPORTS = 2  # with their worker
PAGES, MANY_PAGES = 10, 4_000  # each takes a quarter of a second
STOCK_CHECKS = 3
TOMORROW = 86_400
LOOK_S = 0.1
PATIENCE_S = 60.0  # what has not happened by then never does
FINISHED = {status.value for kind in (TaskStatus, WorkflowStatus) for status in kind if status.is_terminal}
EVERY_SECOND = IntervalSchedule(seconds=1)
STOCK_WATCH = TaskSchedule(name="demo-stock-watch", task_name="shop.check_stock", pattern=EVERY_SECOND)


class Row(NamedTuple):
    """One line of `demo/outcomes.sql`. `attempts` has the outcome of each, with "+" if a retry followed."""

    name: str
    status: str
    error_code: str | None
    attempts: str
    workers: int | None
    total: int


Rows: TypeAlias = Sequence[Row]


@dataclass(frozen=True, slots=True)
class Check:
    """A line of the table: how many there must be, and how many are in the database."""

    what: str
    state: str
    expected: int
    found: int
    or_more: bool = False

    @property
    def holds(self) -> bool:
        return self.found >= self.expected if self.or_more else self.found == self.expected


async def play(console: Console) -> bool:
    """The whole demo; True if everything is as it must be."""
    conn = await connect(shop.app.config.broker, name="horsies demo")
    try:
        with (
            tempfile.TemporaryDirectory(prefix="horsies-demo-") as directory,
            _progress(console) as progress,
            ShopPrograms(Path(directory), SHOP) as programs,
        ):
            story = Story(conn, programs, progress)
            rows = await programs.run_beside(story.tell())
            programs.stop()
    finally:
        await shop.app.schedules.remove_async(STOCK_WATCH.name)
        await shop.app.get_broker().close_async()
        await conn.close()
    found = checks(rows)
    console.print(table_of(found))
    return all(check.holds for check in found)


class Story:
    """What happens in the shop, one thing after the other, while its workers do what was sent."""

    def __init__(self, conn: AsyncConnection[Any], programs: ShopPrograms, progress: Progress) -> None:
        self._conn = conn
        self._programs = programs
        self._progress = progress
        self._bar = progress.add_task("finished tasks", total=None)
        self._began = time.monotonic()

    async def tell(self) -> Rows:
        """How everything ended."""
        self._say("starting two workers and a scheduler")
        reports = [await self._report(PAGES) for _ in range(LOST_REPORTS)]
        await self._send_prices()
        await self._send_the_rest()
        await self._kill_worker(reports)
        await self._kill_child(await self._report(PAGES))
        await self._cancel(await self._report(MANY_PAGES))
        await self._until(lambda rows: count(rows, "shop.check_stock") >= STOCK_CHECKS)
        (await shop.app.schedules.remove_async(STOCK_WATCH.name)).unwrap()
        rows = await self._until(lambda rows: not unfinished(rows))
        self._say("everything has finished; the workers are stopping")
        return rows

    async def _send_prices(self) -> None:
        began = time.monotonic()
        for first in range(0, PRICES, BATCH):
            calls = [(item, 100 + item % 900) for item in range(first, first + BATCH)]
            (await shop.set_price.send_many_async(calls)).unwrap()
        self._say(f"sent {PRICES:,} prices, {PRICES / (time.monotonic() - began):,.0f} per second")

    async def _send_the_rest(self) -> None:
        hosts = [shop.BUSY if number < REFUSED_MAILS else "example.com" for number in range(MAILS)]
        mails = [{"to": f"customer-{number}@{host}", "subject": "Sale"} for number, host in enumerate(hosts)]
        (await shop.send_mail.send_many_async(mails)).unwrap()
        kinds = ["txt" if number < BROKEN_IMAGES else "jpg" for number in range(IMAGES)]
        images = [{"path": f"photos/{number:03}.{kind}", "width": 640} for number, kind in enumerate(kinds)]
        (await shop.resize_image.send_many_async(images)).unwrap()
        for order in range(1, ORDERS + 1):
            (await shop.order_workflow(order, declines=0.0).start_async()).unwrap()
        (await shop.app.schedules.put_async(STOCK_WATCH)).unwrap()
        self._say(f"sent {MAILS} mails, {IMAGES} images and {ORDERS} orders; added a schedule that runs every second")

    async def _report(self, pages: int) -> TaskHandle[int]:
        return (await shop.report.send_async(pages=pages)).unwrap()

    async def _kill_worker(self, reports: Sequence[TaskHandle[int]]) -> None:
        for report in reports:
            await self._pid_that_runs(report)
        killed = self._programs.replace(IMAGES_WORKER)
        self._say(f"killed a worker (pid {killed}) in the middle of {len(reports)} reports; starting another one")

    async def _kill_child(self, report: TaskHandle[int]) -> None:
        pid = await self._pid_that_runs(report)
        os.kill(pid, signal.SIGKILL)
        self._say(f"killed a child process (pid {pid}) in the middle of a report")

    async def _cancel(self, running: TaskHandle[int]) -> None:
        await self._pid_that_runs(running)
        (await running.cancel_async(include_running=True)).unwrap()
        waiting = (await shop.archive.schedule_async(TOMORROW, order=1)).unwrap()
        (await waiting.cancel_async()).unwrap()
        self._say("cancelled a running task and a waiting one")

    async def _pid_that_runs(self, task: TaskHandle[Any]) -> int:
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            info = (await task.info_async()).unwrap()
            if info is not None and info.status is TaskStatus.RUNNING and info.worker_pid:
                return info.worker_pid
            await self._look()
        raise HorsiesError(f"the task {task.task_id} has not started within {PATIENCE_S:.0f} s")

    async def _until(self, happened: Callable[[Rows], bool]) -> Rows:
        """The rows when it has happened, or when nobody waits any longer: the table shows what is missing."""
        until = time.monotonic() + PATIENCE_S
        while not happened(rows := await self._look()) and time.monotonic() < until:
            pass
        return rows

    async def _look(self) -> Rows:
        """What the database has; it moves the bar too."""
        await asyncio.sleep(LOOK_S)
        cursor = self._conn.cursor(row_factory=class_row(Row))
        rows = await (await cursor.execute(load("demo/outcomes"), {"queues": shop.QUEUES})).fetchall()
        tasks = [row for row in rows if row.name != "workflow"]
        total = sum(row.total for row in tasks)
        self._progress.update(self._bar, total=total, completed=total - unfinished(tasks))
        return rows

    def _say(self, text: str) -> None:
        self._progress.console.print(f"{time.monotonic() - self._began:5.1f} s  {text}")


def count(rows: Rows, name: str, *ends: str | int) -> int:
    """How many tasks of this name have ended so: with this state, error code, attempts, or number of workers."""
    return sum(row.total for row in rows if row.name == name and set(ends) <= set(row[1:-1]))


def unfinished(rows: Rows) -> int:
    return sum(row.total for row in rows if row.status not in FINISHED)


def checks(rows: Rows) -> list[Check]:
    """The table at the end."""

    def check(what: str, state: str, expected: int, name: str, *ends: str | int, or_more: bool = False) -> Check:
        return Check(what, state, expected, count(rows, name, *ends), or_more)

    retried, again = "FAILED+ COMPLETED", "WORKER_FAILURE+ COMPLETED"
    return [
        check("Prices", "COMPLETED", PRICES, "shop.set_price", "COMPLETED"),
        check("Mails", "COMPLETED", MAILS, "shop.send_mail", "COMPLETED"),
        check("Mails, refused at first", "COMPLETED after a retry", REFUSED_MAILS, "shop.send_mail", retried),
        check("Images", "COMPLETED", IMAGES - BROKEN_IMAGES, "shop.resize_image", "COMPLETED"),
        check("Files that are not images", "FAILED", BROKEN_IMAGES, "shop.resize_image", "UNHANDLED_EXCEPTION"),
        check("Orders (workflows)", "COMPLETED", ORDERS - 1, "workflow", "COMPLETED"),
        check("Orders with a sold-out item", "FAILED", 1, "workflow", "FAILED"),
        check("Stock checks by a schedule", "COMPLETED", STOCK_CHECKS, "shop.check_stock", "COMPLETED", or_more=True),
        check("Reports in a killed worker", "COMPLETED by another worker", LOST_REPORTS, "shop.report", again, 2),
        check("Reports in a killed child", "COMPLETED by another child", 1, "shop.report", again, 1),
        check("Running tasks, cancelled", "CANCELLED", 1, "shop.report", "CANCELLED"),
        check("Waiting tasks, cancelled", "CANCELLED", 1, "shop.archive", "CANCELLED"),
        Check("Tasks and workflows left", "not finished", 0, unfinished(rows)),
    ]


def table_of(found: Sequence[Check]) -> Table:
    table = Table(title="What is in the database now", title_justify="left")
    for name in ("What", "State"):
        table.add_column(name)
    for name in ("Expected", "Found", ""):
        table.add_column(name, justify="right")
    for check in found:
        mark = "[green]ok[/green]" if check.holds else "[bold red]NOT[/bold red]"
        more = " or more" if check.or_more else ""
        table.add_row(check.what, check.state, f"{check.expected:,}{more}", f"{check.found:,}", mark)
    return table


def _progress(console: Console) -> Progress:
    """A bar on a terminal; otherwise nothing but what is said."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
