"""A task whose function has ended keeps its result, whatever its hooks do when it is told to stop (X-05, T-30)."""

from __future__ import annotations

from pathlib import Path

import pytest
import pytest_asyncio

from horsies.core.worker.launcher import Launcher
from tests.services.children import Child, error_of, start_child, value_of
from tests.support import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

BEFORE = {"work": ["inner", "outer"], "a_work": ["inner async", "inner", "outer"]}


async def hanging(child: Child, task: str, where: str, notes: Path, *, fails: bool = False) -> int:
    """A task of which this hook hangs."""
    token = child.run(task, where, str(notes), fails)
    await eventually(lambda: notes.exists() and where in notes.read_text().splitlines(), what=f"{where} hangs")
    return token


@pytest_asyncio.fixture(loop_scope="module")
async def child(launcher: Launcher) -> Child:
    child = await start_child(launcher, "tests.apps.hanging:app", concurrency=2)
    await child.ready()
    return child


@pytest.mark.parametrize(
    ("task", "where", "seen"),
    [
        ("work", "after", ["inner", "outer", "swallowing"]),
        ("work", "inner", []),
        ("a_work", "after async", ["inner async", "inner", "outer", "swallowing", "swallowing async", "after"]),
        ("a_work", "inner async", []),
    ],
)
@pytest.mark.parametrize("fails", [False, True], ids=["ok", "failed"])
async def test_x05_t30_a_hook_that_is_stopped_loses_no_result(
    child: Child, tmp_path: Path, task: str, where: str, seen: list[str], fails: bool
) -> None:
    """Further hooks are not called; context managers are left, and see the end of the function, not the stop."""
    notes = tmp_path / "notes"
    token = await hanging(child, task, where, notes, fails=fails)
    child.stop(token)
    done = await child.done(token)
    assert not done.stopped
    if fails:
        assert error_of(done)["exception"]["message"] == "the task has failed"
    else:
        assert value_of(done) == "the result"
    left = [one for one in BEFORE[task] if one not in (*seen, where)]
    wanted = [f"{one} ValueError" if fails and one == "outer" else one for one in (*seen, where, *left)]
    assert notes.read_text().splitlines() == wanted
    assert await child.answer(task, "", str(tmp_path / "next")) == "the result"


@pytest.mark.parametrize(("task", "where"), [("work", "failed"), ("a_work", "failed async")])
async def test_x05_t30_an_error_is_kept_too(child: Child, tmp_path: Path, task: str, where: str) -> None:
    token = await hanging(child, task, where, tmp_path / "notes", fails=True)
    child.stop(token)
    done = await child.done(token)
    assert not done.stopped and done.error_code == "UNHANDLED_EXCEPTION"


@pytest.mark.parametrize(("task", "where"), [("work", "swallowing"), ("a_work", "swallowing async")])
async def test_x05_t30_a_hook_that_swallows_the_stop_loses_no_result(
    child: Child, tmp_path: Path, task: str, where: str
) -> None:
    notes = tmp_path / "notes"
    token = await hanging(child, task, where, notes)
    child.stop(token)
    done = await child.done(token)
    assert not done.stopped and value_of(done) == "the result"
    assert "swallowed" in notes.read_text().splitlines()
