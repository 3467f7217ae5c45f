"""What tasks log is kept with them, if the app wants that (P-51); with real workers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg

from horsies import TaskHandle
from horsies.core.models.notes import TaskLogLine
from tests.e2e.conftest import NOTING
from tests.support import eventually_sync
from tests.worker_support import WorkerProcess

QUIET = ("--loglevel", "warning")  # nobody reads the output while a worker runs, and a full pipe blocks


def worker(url: str, *options: str, **logs: Any) -> WorkerProcess:
    return WorkerProcess(url, *options, locator=NOTING, env={"TASK_LOGS": json.dumps(logs)})


def lines_of(handle: TaskHandle[Any]) -> list[TaskLogLine]:
    return handle.logs().unwrap()


def texts(handle: TaskHandle[Any]) -> list[str]:
    return [line.text for line in lines_of(handle)]


def test_p51a_lines_are_seen_while_the_task_runs_and_after_it(noting: Any, database_url: str, signals: Path) -> None:
    with worker(database_url) as running:
        handle = noting.talk.send_or_raise(3, "go")
        eventually_sync(lambda: texts(handle) == ["line 1", "line 2", "line 3"], what="the lines are written")
        (signals / "go").touch()
        handle.result(30_000)
        _, said = running.stop()
    lines = lines_of(handle)
    assert [(line.attempt, line.number, line.level, line.logger, line.text, line.dropped) for line in lines] == [
        (1, 1, "INFO", "shop.orders", "line 1", 0),
        (1, 2, "INFO", "shop.orders", "line 2", 0),
        (1, 3, "INFO", "shop.orders", "line 3", 0),
        (1, 4, "WARNING", "shop.orders", "after the wait", 0),
    ]
    assert [line.time for line in lines] == sorted(line.time for line in lines)
    assert "line 1" in said and f"task_id={handle.task_id}" in said  # the output of the worker has them too


def test_p51a_without_the_setting_nothing_is_kept(noting: Any, database_url: str) -> None:
    with WorkerProcess(database_url, locator=NOTING) as running:
        handle = noting.talk.send_or_raise(3)
        handle.result(30_000)
        running.stop()
    assert lines_of(handle) == []
    with psycopg.connect(database_url) as db:
        assert db.execute("SELECT count(*) FROM horsies_task_logs").fetchone() == (0,)


def test_p51a_the_level_is_that_of_the_setting_and_the_output_keeps_its_own(noting: Any, database_url: str) -> None:
    with worker(database_url, "--loglevel", "warning", level="debug") as running:
        handle = noting.talk.send_or_raise(1)
        handle.result(30_000)
        _, said = running.stop()
    assert texts(handle) == ["too low", "line 1"]
    assert "too low" not in said and "line 1" not in said


def test_p51a_the_middle_of_a_long_log_is_dropped_and_that_is_said(
    noting: Any, database_url: str, signals: Path
) -> None:
    with worker(database_url, *QUIET, max_lines=20) as running:
        handle = noting.talk.send_or_raise(5000, "go")
        eventually_sync(lambda: texts(handle)[-1:] == ["line 5000"], what="the last line is written")
        (signals / "go").touch()
        handle.result(30_000)
        running.stop()
    lines = lines_of(handle)
    assert [line.text for line in lines[:10]] == [f"line {number}" for number in range(1, 11)]
    tail = [line.text for line in lines[10:]]
    assert tail[-3:] == ["line 4999", "line 5000", "after the wait"] and 10 <= len(tail) <= 20
    assert sum(line.dropped for line in lines) + len(lines) == 5001
    assert [line.number for line in lines if line.dropped] == [lines[10].number]


def test_p51a_hostile_lines_tracebacks_and_what_is_printed(noting: Any, database_url: str) -> None:
    with worker(database_url, capture_stdout=True) as running:
        handle = noting.shout.send_or_raise("two\nlines")
        assert handle.get(30_000).is_ok()
        _, said = running.stop()
    found = lines_of(handle)
    assert [(line.logger, line.text) for line in found[:3]] == [
        ("stdout", "printed two"),
        ("stdout", "lines"),
        ("horsies.task.shout", "odd: \0\ud800\x1b[31m"),
    ]
    assert found[3].level == "ERROR" and "ZeroDivisionError" in found[3].text and "noting.py" in found[3].text
    assert found[-1].text == "no end of line"
    assert "printed two" in said


def test_p51a_each_attempt_has_its_own_lines(noting: Any, database_url: str, signals: Path) -> None:
    for name in ("look", "go"):
        (signals / name).touch()
    with worker(database_url) as running:
        handle = noting.again.send_or_raise()
        handle.result(30_000)
        running.stop()
    assert [(line.attempt, line.number, line.text) for line in lines_of(handle) if line.logger == "shop.orders"] == [
        (1, 1, "the first attempt")
    ]


def test_p51a_the_last_words_of_a_child_that_dies_are_kept(noting: Any, database_url: str, signals: Path) -> None:
    with worker(database_url) as running:
        handle = noting.die.send_or_raise()
        eventually_sync(lambda: texts(handle) == ["the last words"], what="the line is written")
        (signals / "die").touch()
        assert handle.get(30_000).is_err()
        running.stop()
    assert texts(handle) == ["the last words"]


def test_p51a_a_task_does_not_wait_for_a_table_that_is_locked(noting: Any, database_url: str, signals: Path) -> None:
    with worker(database_url, *QUIET) as running, psycopg.connect(database_url) as other:
        noting.talk.send_or_raise(1).result(30_000)  # the worker has started
        other.execute("LOCK TABLE horsies_task_logs, horsies_task_progress IN ACCESS EXCLUSIVE MODE")
        handles = [noting.talk.send_or_raise(50) for _ in range(20)]
        for handle in handles:
            assert handle.result(30_000) == 50
        other.rollback()
        for handle in handles:
            eventually_sync(lambda handle=handle: len(texts(handle)) == 50, what="the lines are written later")  # type: ignore[misc]
        running.stop()


def test_p51a_what_cannot_be_written_harms_no_task(noting: Any, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as db:
        db.execute("ALTER TABLE horsies_task_logs ADD CONSTRAINT odd CHECK (lines NOT LIKE '%line%')")
    with worker(database_url) as running:
        handle = noting.talk.send_or_raise(5)
        assert handle.result(30_000) == 5
        code, said = running.stop()
    assert code == 0 and lines_of(handle) == []
    assert "what tasks say while they run cannot be written and is dropped" in said
