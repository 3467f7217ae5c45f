"""A scrape cannot be made to hammer the database, and never tells old numbers as new ones."""

from __future__ import annotations

import asyncio

import pytest

from horsies.core.models.monitoring.cluster import Snapshot
from horsies.core.monitoring import snapshot
from horsies.core.monitoring.snapshot import NoReading, Reader
from tests.unit.test_metrics_exposition import a_snapshot


class Database:
    """Counts how often it is asked; answers when it may."""

    def __init__(self) -> None:
        self.asked = 0
        self.may_answer = asyncio.Event()
        self.problem: Exception | None = None

    async def read(self) -> Snapshot:
        self.asked += 1
        await self.may_answer.wait()
        if self.problem is not None:
            raise self.problem
        return a_snapshot()


async def test_scrapes_that_come_together_share_one_reading_and_those_after_it_its_answer() -> None:
    database = Database()
    reader = Reader(database.read)
    scrapes = [asyncio.create_task(reader.reading()) for _ in range(50)]
    await asyncio.sleep(0)
    database.may_answer.set()
    found = await asyncio.gather(*scrapes)
    again = [await reader.reading() for _ in range(50)]
    assert database.asked == 1
    assert all(one.snapshot is not None for one in (*found, *again))


async def test_an_old_answer_is_asked_for_again() -> None:
    database = Database()
    database.may_answer.set()
    reader = Reader(database.read, max_age_s=0.0)
    await reader.reading()
    await reader.reading()
    assert database.asked == 2


async def test_a_database_that_keeps_silent_is_not_waited_for_and_not_asked_twice() -> None:
    database = Database()
    reader = Reader(database.read, patience_s=0.01)
    first, second = await reader.reading(), await reader.reading()
    assert database.asked == 1 and first.snapshot is None and second.snapshot is None
    database.may_answer.set()
    assert (await reader.reading()).snapshot is not None
    await reader.close()


async def test_a_failure_takes_the_numbers_away_is_counted_and_not_repeated_at_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    database = Database()
    database.may_answer.set()
    reader = Reader(database.read, max_age_s=0.0)
    assert (await reader.reading()).snapshot is not None
    database.problem = NoReading("gone")
    failed = await reader.reading()
    assert (failed.snapshot, failed.errors, reader.problem) == (None, 1, "gone")
    await reader.reading()
    assert database.asked == 2, "whoever scrapes again at once does not make it ask again"
    monkeypatch.setattr(snapshot, "RETRY_S", 0.0)
    database.problem = None
    assert (await reader.reading()).snapshot is not None and reader.problem is None
    assert caplog.text.count("cannot be read") == 1
