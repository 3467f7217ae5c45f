"""Stopping hits exactly one task: an exception in its code, cancellation on the event loop, or a signal (T-30)."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from horsies.core.child import wire
from horsies.core.child.run import STOP_SIGNAL
from horsies.core.child.wire import Done, Kind
from horsies.core.worker.launcher import Launcher
from tests.services.children import ROOT, Child, error_of, is_alive, read_pid, start_child, value_of
from tests.support import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

STOPPED = Done(ok=False, result="", error_code=None, error_message=None, stopped=True, run_ns=0, rss_kb=0)


async def begun(child: Child, name: str, path: Path) -> int:
    """Run a task and wait until its code has shown itself."""
    token = child.run(name, str(path))
    await eventually(path.exists)
    return token


def without_measurements(done: Done) -> Done:
    return done._replace(run_ns=0, rss_kb=0)


@pytest.mark.parametrize("name", ["touch_and_sleep", "spin"])
async def test_t30_a_stop_interrupts_the_code_and_the_child_stays_usable(
    child: Child, tmp_path: Path, name: str
) -> None:
    token = await begun(child, name, tmp_path / "it")
    child.stop(token)
    assert without_measurements(await child.done(token)) == STOPPED
    assert await child.answer("echo", 1) == 1


async def test_t30_stopped_code_can_clean_up(child: Child, tmp_path: Path) -> None:
    token = await begun(child, "clean_up_slowly", tmp_path / "it")
    child.stop(token)
    await eventually(lambda: (tmp_path / "it").read_text() == "cleaning")
    child.stop(token)  # asking again does not disturb it
    assert (await child.done(token)).stopped
    assert (tmp_path / "it").read_text() == "clean"


async def test_a_stop_that_was_caught_is_told_with_the_result(child: Child, tmp_path: Path) -> None:
    token = await begun(child, "refuse_to_stop", tmp_path / "it")
    child.stop(token)
    done = await child.done(token)
    assert done.stopped
    assert value_of(done) == "StopTask"


async def test_the_signal_alone_stops_nothing(child: Child, tmp_path: Path) -> None:
    child.process.signal(STOP_SIGNAL)  # nothing runs
    assert await child.answer("echo", 1) == 1
    token = child.run("touch_and_sleep", str(tmp_path / "it"), seconds=0.5)
    await eventually((tmp_path / "it").exists)
    child.process.signal(STOP_SIGNAL)  # something runs that nobody wants stopped
    assert value_of(await child.done(token)) == "slept"
    assert await child.answer("a_echo", 1) == 1


LOOKED_UP = """
import time
from pathlib import Path
from horsies.core.app import Horsies
from tests.services.child_app import app as other

class Slowly(dict):
    def get(self, name, default=None):
        Path("asked").touch()
        while not Path("go").exists():
            time.sleep(0.01)
        return super().get(name, default)

class Slow(Horsies):
    tasks = property(lambda self: Slowly(other.tasks))

app = Slow(other.config)
"""


@pytest.mark.parametrize("name", ["touch_and_sleep", "a_touch_and_sleep"])
async def test_a_stop_between_taking_a_task_and_calling_it_is_not_lost(
    launcher: Launcher, tmp_path: Path, name: str
) -> None:
    (tmp_path / "slow_app.py").write_text(LOOKED_UP)
    child = await start_child(launcher, "slow_app:app", cwd=str(tmp_path), sys_path=(str(tmp_path), ROOT, *sys.path))
    await child.ready()
    token = child.run(name, str(tmp_path / "it"))
    await eventually((tmp_path / "asked").exists)  # from here on it is not in the inbox, and nothing of it runs
    child.stop(token)
    other = child.run("echo")
    child.tell(wire.pack_tokens(Kind.TAKE_BACK, [other]))
    kind, _, parts = await child.hear()  # the child has heard all of it
    assert (kind, wire.tokens_of(parts)) == (Kind.GAVE_UP, [other])
    (tmp_path / "go").touch()
    assert without_measurements(await child.done(token)) == STOPPED
    assert not (tmp_path / "it").exists()


async def test_a_stop_names_one_task(child: Child, tmp_path: Path) -> None:
    token = child.run("touch_and_sleep", str(tmp_path / "it"), seconds=0.5)
    await eventually((tmp_path / "it").exists)
    child.stop(token + 1)
    child.stop(token - 1)
    assert value_of(await child.done(token)) == "slept"


async def test_a_stop_for_a_task_that_has_ended_hits_no_other(child: Child) -> None:
    orders = [child.order("echo", number) for number in range(300)]
    stops = [wire.pack(Kind.STOP, token, b"late") for token, _ in orders]
    # Each stop is about the task before it, which may be waiting, running or over.
    frames = [orders[0][1]]
    for (_, frame), stop in zip(orders[1:], stops, strict=False):
        frames += [frame, stop]
    child.tell(*frames)
    ended: dict[int, Done | None] = {}
    while len(ended) < len(orders):
        kind, number, parts = await child.hear()
        if kind is Kind.DONE:
            ended[number] = wire.done_of(parts)
        elif kind is Kind.GAVE_UP:
            ended.update(dict.fromkeys(wire.tokens_of(parts)))
    assert set(ended) == {token for token, _ in orders}
    for at, (token, _) in enumerate(orders):
        done = ended[token]
        assert done is None or done.stopped or value_of(done) == at
    assert await child.answer("echo", "usable") == "usable"


async def test_a_stop_for_a_waiting_task_gives_it_up(child: Child, tmp_path: Path) -> None:
    running = await begun(child, "touch_and_sleep", tmp_path / "it")
    waiting = child.run("echo", 1)
    child.stop(waiting)
    await child.started(running)
    kind, _, parts = await child.hear()
    assert (kind, wire.tokens_of(parts)) == (Kind.GAVE_UP, [waiting])
    child.stop(running)
    assert (await child.done(running)).stopped


@pytest.mark.parametrize(("sig", "code"), [(signal.SIGTERM, -15), (signal.SIGKILL, -9)])
async def test_t30_code_that_ignores_the_stop_ends_by_signal(
    child: Child, tmp_path: Path, sig: signal.Signals, code: int
) -> None:
    token = await begun(child, "reset_signals", tmp_path / "it")
    child.stop(token)
    ending = asyncio.create_task(child.code())
    while not ending.done():  # SIGTERM does nothing before the stop has arrived (W-50a); a worker waits for a second
        child.process.signal(sig)
        await asyncio.wait((ending,), timeout=0.1)
    assert ending.result() == code


async def test_w50a_a_process_that_a_task_has_forked_ends_by_sigterm(child: Child) -> None:
    assert await child.answer("terminate_a_fork") == -signal.SIGTERM


async def test_code_that_holds_the_interpreter_is_killed(child: Child, tmp_path: Path) -> None:
    token = child.run("hold_the_interpreter", str(tmp_path / "it"), 60)
    await eventually((tmp_path / "it").exists)
    child.stop(token)
    child.process.kill_group()
    assert await child.code() == -9


async def test_w41_a_kill_takes_along_what_the_task_has_started(child: Child, tmp_path: Path) -> None:
    child.run("start_a_program_and_wait", str(tmp_path / "pid"))
    program = await eventually(lambda: read_pid(tmp_path / "pid"))
    assert is_alive(program)
    child.process.kill_group(signal.SIGKILL)
    assert await child.code() == -9
    await eventually(lambda: not is_alive(program))


async def test_w30a_an_async_task_is_cancelled_and_its_neighbours_go_on(child: Child, tmp_path: Path) -> None:
    doomed = child.run("a_touch_and_sleep", str(tmp_path / "doomed"))
    neighbour = child.run("a_wait_for_file", str(tmp_path / "go"))
    await eventually((tmp_path / "doomed").exists)
    child.stop(doomed)
    await child.started(doomed)
    await child.started(neighbour)
    assert without_measurements(await child.done(doomed)) == STOPPED
    (tmp_path / "go").touch()
    assert value_of(await child.done(neighbour)) == "seen"


async def test_w30a_an_async_task_that_swallows_its_cancellation_says_what_it_returned(
    child: Child, tmp_path: Path
) -> None:
    token = await begun(child, "a_refuse_to_stop", tmp_path / "it")
    child.stop(token)
    done = await child.done(token)
    assert done.stopped
    assert value_of(done) == "swallowed"


async def test_an_async_task_stopped_before_its_first_step_is_reported(launcher: Launcher) -> None:
    child = await start_child(launcher, concurrency=50)
    await child.ready()
    orders = [child.order("a_echo", number) for number in range(50)]
    frames = [part for token, frame in orders for part in (frame, wire.pack(Kind.STOP, token, b"at once"))]
    child.tell(*frames)
    ended: list[int] = []
    while len(ended) < len(orders):
        kind, number, parts = await child.hear()
        if kind is Kind.DONE:
            ended.append(number)
        elif kind is Kind.GAVE_UP:
            ended += wire.tokens_of(parts)
    assert sorted(ended) == [token for token, _ in orders]


async def test_code_that_cancels_itself_has_failed_and_was_not_stopped(child: Child) -> None:
    done = await child.done(child.run("a_cancel_myself"))
    assert not done.stopped
    assert done.error_code == "UNHANDLED_EXCEPTION"
    assert error_of(done)["exception"]["type"] == "CancelledError"


async def test_stops_at_every_moment_leave_the_child_whole(child: Child) -> None:
    """A stop may come at any instruction of the child's own code around a task. Every task has one end, and the end of
    one is never taken for another's."""
    for round_ in range(150):
        token = child.run("echo", round_)
        if round_ % 3:
            await asyncio.sleep(0)
        child.stop(token)
        kind, number, parts = await child.hear()
        if kind is Kind.STARTED:
            kind, number, parts = await child.hear()
        if kind is Kind.GAVE_UP:
            assert wire.tokens_of(parts) == [token]
        else:
            assert (kind, number) == (Kind.DONE, token)
            done = wire.done_of(parts)
            assert done.stopped or value_of(done) == round_
