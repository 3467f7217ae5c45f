"""How far tasks have come (P-50), with real workers: from `ctx.progress` to handles, queries and the table."""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest

from horsies import TaskHandle, TaskInfo, TaskStatus
from horsies.core.models.notes import TaskProgress
from horsies.monitoring import get_task_detail, list_tasks
from tests.e2e.conftest import NOTING
from tests.e2e.page_support import defines, ours, run, served
from tests.support import eventually, eventually_sync
from tests.worker_support import WorkerProcess


def progress_of(handle: TaskHandle[Any]) -> TaskProgress | None:
    info = handle.info().unwrap()
    assert info is not None
    return info.progress


def seen(handle: TaskHandle[Any]) -> tuple[float, float | None, str | None] | None:
    found = progress_of(handle)
    return None if found is None else (found.done, found.total, found.message)


def test_p50_the_newest_progress_is_seen_while_the_task_runs_and_after_it(
    noting: Any, database_url: str, signals: Path
) -> None:
    with WorkerProcess(database_url, locator=NOTING):
        handle = noting.count.send_or_raise(1000, "go")
        eventually_sync(lambda: seen(handle) == (999, 1000, "at 999"), what="the newest is written")
        detail = asyncio.run(get_task_detail(noting.app.get_broker(), handle.task_id)).unwrap()
        assert detail is not None and detail.progress is not None and detail.progress.fraction == 0.999
        page = asyncio.run(list_tasks(noting.app.get_broker())).unwrap()
        assert [one.progress and one.progress.message for one in page.items] == ["at 999"]
        (signals / "go").touch()
        assert handle.result(30_000) == 1000
        eventually_sync(lambda: seen(handle) == (1000, 1000, "all done"), what="the last one is written")
    found = progress_of(handle)
    assert found is not None and found.attempt == 1 and found.fraction == 1.0


def test_p50_an_async_task_may_await_it(noting: Any, database_url: str, signals: Path) -> None:
    with WorkerProcess(database_url, locator=NOTING):
        handle = noting.count_async.send_or_raise(7, "go")
        eventually_sync(lambda: seen(handle) == (2, 7, None), what="the newest is written")
        (signals / "go").touch()
        assert handle.result(30_000) == 7


def test_p50_a_retry_starts_anew(noting: Any, database_url: str, signals: Path) -> None:
    with WorkerProcess(database_url, locator=NOTING), psycopg.connect(database_url, autocommit=True) as db:
        handle = noting.again.send_or_raise()
        eventually_sync(
            lambda: db.execute("SELECT status FROM horsies_tasks WHERE retry_count = 1").fetchone() == ("RUNNING",),
            what="the second attempt runs",
        )
        assert progress_of(handle) is None
        (signals / "look").touch()
        eventually_sync(lambda: seen(handle) == (1, 10, "second"), what="the second attempt says something")
        (signals / "go").touch()
        assert handle.result(30_000) == 1
        found = progress_of(handle)
        assert found is not None and found.attempt == 2


def test_p50_a_worker_that_leaves_writes_the_last_one(noting: Any, database_url: str, signals: Path) -> None:
    with WorkerProcess(database_url, locator=NOTING) as worker:
        handles = [noting.count.send_or_raise(3, "go") for _ in range(3)]
        eventually_sync(lambda: seen(handles[0]) is not None, what="a task runs")
        (signals / "go").touch()
        for handle in handles:
            handle.result(30_000)
        worker.stop()
    assert [seen(handle) for handle in handles] == [(3, 3, "all done")] * 3


def test_p50_watching_tells_every_change_until_the_end(noting: Any, database_url: str, signals: Path) -> None:
    handle = noting.count.send_or_raise(100, "go")
    watched: list[TaskInfo] = []

    def watch() -> None:
        for info in handle.watch():
            watched.append(info)
            if info.progress is not None and info.progress.message == "at 99":
                (signals / "go").touch()

    watcher = threading.Thread(target=watch)
    watcher.start()
    eventually_sync(lambda: bool(watched), what="the waiting task is seen")
    with WorkerProcess(database_url, locator=NOTING):
        watcher.join(60)
    assert not watcher.is_alive()
    assert watched[0].status is TaskStatus.PENDING and watched[-1].status is TaskStatus.COMPLETED
    last = watched[-1].progress
    assert last is not None and last.fraction == 1.0
    told = [(info.status, info.progress) for info in watched]
    assert all(one != other for one, other in pairwise(told))


def test_p50_watching_from_a_loop_and_a_task_that_does_not_exist(noting: Any, database_url: str, signals: Path) -> None:
    (signals / "go").touch()

    async def watch(handle: TaskHandle[Any]) -> list[TaskInfo]:
        return [info async for info in handle.watch_async()]

    with WorkerProcess(database_url, locator=NOTING):
        found = asyncio.run(watch(noting.silent.send_or_raise("go")))
    assert found[-1].status is TaskStatus.COMPLETED and found[-1].progress is None
    nobody: TaskHandle[Any] = TaskHandle("01a1e8b0-5814-7112-a4f7-98360558ac1f", noting.app.get_broker())
    assert list(nobody.watch()) == [] == asyncio.run(watch(nobody))


def test_p50_a_task_that_never_says_anything_costs_no_row(noting: Any, database_url: str, signals: Path) -> None:
    (signals / "go").touch()
    with WorkerProcess(database_url, locator=NOTING):
        for handle in [noting.silent.send_or_raise("go") for _ in range(20)]:
            handle.result(30_000)
    with psycopg.connect(database_url) as db:
        assert db.execute("SELECT count(*) FROM horsies_task_progress").fetchone() == (0,)


@pytest.mark.parametrize("delete", ["DELETE FROM horsies_tasks", "TRUNCATE horsies_tasks CASCADE"])
def test_p50_p51a_d22_d23_progress_and_logs_go_with_their_tasks(
    noting: Any, database_url: str, signals: Path, delete: str
) -> None:
    (signals / "go").touch()
    with WorkerProcess(database_url, locator=NOTING, env={"TASK_LOGS": "{}"}) as worker:
        noting.count.send_or_raise(3, "go").result(30_000)
        noting.talk.send_or_raise(3).result(30_000)
        worker.stop()
    counts = "SELECT EXISTS (SELECT FROM horsies_task_progress), EXISTS (SELECT FROM horsies_task_logs)"
    with psycopg.connect(database_url, autocommit=True) as db:
        assert db.execute(counts).fetchone() == (True, True)
        db.execute(delete.encode())
        assert db.execute(counts).fetchone() == (False, False)


async def test_p50_p51a_the_page_does_what_it_says(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url)
    codes = ours("progress-and-logs")
    source, used = [code for code in codes if defines(code)], [code for code in codes if not defines(code)]
    with served("progress_page", "\n\n".join(source), database_url, tmp_path) as module:
        names = vars(module)
        await run("progress-and-logs", names, used[:1])
        await eventually(lambda: logged(names["handle"]), what="the lines are written")
        await run("progress-and-logs", names, used[1:])


async def logged(handle: TaskHandle[Any]) -> bool:
    return bool((await handle.logs_async()).unwrap())
