"""Tasks are ended also if they lose a cancellation."""

from __future__ import annotations

import asyncio
import logging

import pytest

from horsies.core.db.listener import cancel_all


async def test_a_task_that_loses_a_cancellation_is_cancelled_again() -> None:
    lost = 0

    async def goes_on() -> None:
        nonlocal lost
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                lost += 1
                if lost > 2:
                    raise

    task = asyncio.create_task(goes_on())
    await asyncio.sleep(0)
    await cancel_all([task])
    assert task.cancelled() and lost == 3


async def test_what_a_task_ends_with_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def fails() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("the connection broke")

    tasks = [asyncio.create_task(fails()) for _ in range(3)]
    await asyncio.sleep(0)
    with caplog.at_level(logging.ERROR):
        await cancel_all(tasks)
        assert all(task.done() for task in tasks)
        del tasks
    assert not caplog.records
