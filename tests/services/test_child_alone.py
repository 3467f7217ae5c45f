"""A child whose parent says nothing ends itself when others may soon take over what it runs (R-101)."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import psutil
import pytest

from horsies.core.child import wire
from horsies.core.child.io import EXIT_ALONE
from horsies.core.child.wire import Kind, clock
from horsies.core.worker.launcher import Launcher
from tests.services.children import Child, is_alive, read_pid, start_child
from tests.support import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


def until(seconds: float) -> bytes:
    """The message that the child may go on so long."""
    return wire.pack(Kind.MAY_RUN_UNTIL, int((clock() + seconds) * 1e9))


def is_stopped(pid: int) -> bool:
    return psutil.Process(pid).status() == psutil.STATUS_STOPPED


def names_in(folder: Path) -> set[str]:
    return set(os.listdir(folder))


async def test_r101_a_child_that_hears_nothing_ends_itself_and_all_it_started(child: Child, tmp_path: Path) -> None:
    _, order = child.order("start_a_program_and_wait", str(tmp_path / "pid"))
    told = clock()
    child.tell(until(1.0), order)
    program = await eventually(lambda: read_pid(tmp_path / "pid"))
    assert await child.code() == EXIT_ALONE
    assert clock() - told >= 1.0, "not before its time"
    await eventually(lambda: not is_alive(program), what="the end of what it had started")


async def test_r101_messages_keep_a_child_going(child: Child, tmp_path: Path) -> None:
    token, order = child.order("touch_and_sleep", str(tmp_path / "it"), seconds=1.2)
    child.tell(until(0.6), order)
    await child.started(token)
    child.tell(until(60))
    assert (await child.done(token)).ok


async def test_r101_an_idle_child_waits_for_ever(child: Child) -> None:
    child.tell(until(-5))
    _, order = child.order("echo", 1)
    child.tell(until(30), order)
    assert [(await child.hear())[0], (await child.hear())[0]] == [Kind.STARTED, Kind.DONE]


async def test_r101_what_lies_in_the_socket_is_read_before_silence_counts(launcher: Launcher, tmp_path: Path) -> None:
    """C code holds the interpreter beyond the time of the last message that could be read; a newer one waits."""
    child = await start_child(launcher, beat_interval_ms=50)
    await child.ready()
    token, order = child.order("hold_the_interpreter", str(tmp_path / "held"), 2)
    child.tell(until(0.5), order)
    await eventually((tmp_path / "held").exists)
    child.tell(until(60))
    assert (await child.done(token)).ok


async def test_r101_a_child_that_was_stopped_itself_runs_nothing_when_it_continues(
    child: Child, tmp_path: Path
) -> None:
    """What it was handed meanwhile is not begun: its time was over before it was read."""
    child.process.signal(signal.SIGSTOP)
    await eventually(partial(is_stopped, child.pid))
    _, order = child.order("touch_and_sleep", str(tmp_path / "begun"))
    child.tell(until(0.2), order)
    late = clock() + 0.3
    await eventually(lambda: clock() > late)
    child.process.signal(signal.SIGCONT)
    assert await child.code() == EXIT_ALONE
    assert not (tmp_path / "begun").exists()
    assert await child.hear_all() == [], "it did not even say that it starts"


@pytest.mark.parametrize("name", ["touch_and_sleep", "a_touch_and_sleep"])
async def test_r101_a_child_that_was_stopped_begins_nothing_of_its_line_when_it_continues(
    launcher: Launcher, tmp_path: Path, name: str
) -> None:
    """Others may have run what waited in it. Its main thread must not be quicker than the one that looks at the time,
    which it mostly was: hence several children."""
    children = [await start_child(launcher) for _ in range(4)]
    for place, child in enumerate(children):
        await child.ready()
        line = [child.order(name, str(tmp_path / f"{place}-{n}"), seconds=0.02)[1] for n in range(50)]
        child.tell(until(0.6), *line)
        await eventually((tmp_path / f"{place}-0").exists)
        child.process.signal(signal.SIGSTOP)
        await eventually(partial(is_stopped, child.pid))
    begun = names_in(tmp_path)
    late = clock() + 0.7
    await eventually(lambda: clock() > late)
    for child in children:
        child.process.signal(signal.SIGCONT)
    assert [await child.code() for child in children] == [EXIT_ALONE] * 4
    assert names_in(tmp_path) == begun


async def test_r101_a_word_that_waits_lets_the_line_go_on_after_a_pause(child: Child, tmp_path: Path) -> None:
    orders = [child.order("touch_and_sleep", str(tmp_path / f"{n}"), seconds=0.02) for n in range(20)]
    child.tell(until(0.4), *(order for _, order in orders))
    await eventually((tmp_path / "0").exists)
    child.process.signal(signal.SIGSTOP)
    late = clock() + 0.5
    await eventually(lambda: clock() > late)
    child.tell(until(60))
    child.process.signal(signal.SIGCONT)
    for token, _ in orders:
        assert (await child.done(token)).ok


async def test_r101_a_parent_that_does_not_read_does_not_keep_its_child_from_ending(
    launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beats fill the socket of a parent that is stopped for long; whoever gives them must not wait for it."""
    monkeypatch.setattr("horsies.core.worker.launcher.BUFFER_BYTES", 1)  # the system makes it its smallest
    child = await start_child(launcher, beat_interval_ms=2)
    await child.ready()
    _, order = child.order("touch_and_sleep", str(tmp_path / "it"))
    child.tell(until(0.7), order)
    assert await child.code() == EXIT_ALONE
