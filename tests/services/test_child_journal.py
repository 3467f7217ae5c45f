"""A child notes in the start journal what it is about to call (R-103), and nothing else."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from horsies.core.recovery import start_journal
from horsies.core.recovery.start_journal import Journal
from horsies.core.store.tasks import Claimed
from horsies.core.tasks.moves import Claim
from horsies.core.worker.in_hand import HeldTask
from horsies.core.worker.launcher import Launcher
from tests.services.children import Child, start_child
from tests.support import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journal:
    monkeypatch.setenv(start_journal.VARIABLE, str(tmp_path / "runtime"))
    return Journal("w1", 7, 8)


def hand_over(child: Child, book: Journal, number: int, name: str, *args: Any) -> None:
    """As a dispatcher does it; task `t<number>`."""
    task_id = f"t{number}"
    row = Claimed(0, 1, datetime.now(UTC), task_id, 1, name, "default", json.dumps(args), None, None, 0, 0, False, None)
    held = HeldTask(row, False, number, Claim(task_id, 1))
    child.tell(held.run_frame(book.entry(held), is_traced=False))


def noted() -> set[str]:
    notes = start_journal.read("w1", 7)
    assert notes is not None
    return {task_id for task_id in ("t1", "t2", "t3") if start_journal.was_noted(notes, Claim(task_id, 1))}


async def test_r103_a_sync_task_is_noted_when_it_begins(launcher: Launcher, book: Journal, tmp_path: Path) -> None:
    child = await start_child(launcher, journal=str(book.path))
    assert (await child.ready())["journal"] is True
    hand_over(child, book, 1, "touch_and_sleep", str(tmp_path / "begun"))
    hand_over(child, book, 2, "echo", 1)
    await eventually((tmp_path / "begun").exists)
    assert noted() == {"t1"}
    child.stop(1)
    await child.done(1)
    await child.done(2)
    assert noted() == {"t1", "t2"}  # their ends are not written yet
    book.remove()


async def test_r103_async_tasks_are_noted_side_by_side(launcher: Launcher, book: Journal, tmp_path: Path) -> None:
    child = await start_child(launcher, journal=str(book.path), concurrency=2)
    await child.ready()
    for number in (1, 2, 3):
        hand_over(child, book, number, "a_wait_for_file", str(tmp_path / str(number)))
    await child.started(1)
    await child.started(2)
    await eventually(lambda: noted() == {"t1", "t2"})
    (tmp_path / "1").touch()
    await child.done(1)
    await child.started(3)
    await eventually(lambda: noted() == {"t1", "t2", "t3"})
    book.remove()


async def test_r103_a_child_that_cannot_write_says_so(launcher: Launcher, tmp_path: Path) -> None:
    child = await start_child(launcher, journal=str(tmp_path / "nothing"))
    assert (await child.ready())["journal"] is False
    assert await child.answer("echo", 1) == 1
