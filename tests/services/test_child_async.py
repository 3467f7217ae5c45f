"""Async tasks share the event loop of a child; sync tasks have the child to themselves (W-30a)."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from horsies.core.child import wire
from horsies.core.child.wire import Kind
from horsies.core.worker.launcher import Launcher
from tests.services.children import Child, start_child, value_of
from tests.support import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_w30a_async_tasks_run_side_by_side_up_to_the_concurrency(launcher: Launcher, tmp_path: Path) -> None:
    child = await start_child(launcher, concurrency=2)
    await child.ready()
    tokens = [child.run("a_wait_for_file", str(tmp_path / str(number))) for number in range(3)]
    await child.started(tokens[0])
    await child.started(tokens[1])
    (tmp_path / "2").touch()  # the third could end at once, but there is no room for it
    (tmp_path / "1").touch()
    assert value_of(await child.done(tokens[1])) == "seen"
    assert value_of(await child.done(tokens[2])) == "seen"
    (tmp_path / "0").touch()
    assert value_of(await child.done(tokens[0])) == "seen"


async def test_w30a_a_sync_task_waits_for_the_async_ones_and_those_behind_wait_for_it(
    child: Child, tmp_path: Path
) -> None:
    slow = child.run("a_wait_for_file", str(tmp_path / "go"))
    await child.started(slow)
    sync, behind = child.run("echo", "sync"), child.run("a_echo", "behind")
    (tmp_path / "go").touch()
    heard = [(await child.hear())[:2] for _ in range(5)]
    assert heard == [
        (Kind.DONE, slow), (Kind.STARTED, sync), (Kind.DONE, sync), (Kind.STARTED, behind), (Kind.DONE, behind)
    ]  # fmt: skip


async def test_sync_tasks_may_run_a_loop_of_their_own_between_async_ones(child: Child) -> None:
    for _ in range(3):
        assert await child.answer("a_echo", 1) == 1
        assert await child.answer("run_a_loop") == "looped"


async def test_sync_and_async_tasks_in_any_mixture_all_end(child: Child) -> None:
    """The loop is entered and left hundreds of times, while more comes in at every moment of that."""
    dice = random.Random(1)
    orders = [child.order(dice.choice(["echo", "a_echo"]), number) for number in range(2000)]
    ended: list[int] = []

    async def listen() -> None:
        while len(ended) < len(orders):
            kind, number, _ = await child.hear()
            if kind is Kind.DONE:
                ended.append(number)

    listening = asyncio.create_task(listen())
    for at in range(0, len(orders), 2):
        child.tell(*(frame for _, frame in orders[at : at + 2]))
        while len(ended) < at - 4:
            await asyncio.sleep(0)
    await asyncio.wait_for(listening, 30)
    assert sorted(ended) == [token for token, _ in orders]


async def test_waiting_async_tasks_can_be_taken_back(launcher: Launcher, tmp_path: Path) -> None:
    child = await start_child(launcher, concurrency=1)
    await child.ready()
    running = child.run("a_wait_for_file", str(tmp_path / "go"))
    await child.started(running)
    waiting = [child.run("a_echo", number) for number in range(3)]
    child.tell(wire.pack_tokens(Kind.TAKE_BACK, waiting[:2]))
    kind, _, parts = await child.hear()
    assert (kind, wire.tokens_of(parts)) == (Kind.GAVE_UP, waiting[:2])
    (tmp_path / "go").touch()
    assert value_of(await child.done(running)) == "seen"
    assert value_of(await child.done(waiting[2])) == 2


async def test_running_async_tasks_beat_together(launcher: Launcher, tmp_path: Path) -> None:
    child = await start_child(launcher, concurrency=3, beat_interval_ms=50)
    await child.ready()
    tokens = [child.run("a_wait_for_file", str(tmp_path / "go")) for _ in range(3)]
    for token in tokens:
        await child.started(token)
    kind, _, parts = await child.hear()
    assert (kind, sorted(wire.tokens_of(parts))) == (Kind.BEAT, tokens)


async def test_an_unknown_task_does_not_wait_for_async_ones(child: Child, tmp_path: Path) -> None:
    running = child.run("a_wait_for_file", str(tmp_path / "go"))
    await child.started(running)
    assert (await child.done(child.run("nobody knows it"))).error_code == "WORKER_RESOLUTION_ERROR"
    (tmp_path / "go").touch()
    assert value_of(await child.done(running)) == "seen"


@pytest.mark.parametrize("what", ["exit", "interrupt", "generator"])
async def test_t88_nothing_an_async_task_raises_ends_the_child(child: Child, tmp_path: Path, what: str) -> None:
    neighbour = child.run("a_wait_for_file", str(tmp_path / "go"))
    await child.started(neighbour)
    assert (await child.done(child.run("a_raise_it", what))).error_code == "UNHANDLED_EXCEPTION"
    (tmp_path / "go").touch()
    assert value_of(await child.done(neighbour)) == "seen"


async def test_t88_sys_exit_in_a_background_task_does_not_end_the_child(child: Child) -> None:
    assert await child.answer("a_exit_in_background") is True
    assert await child.answer("a_echo", 1) == 1


async def test_a_task_that_stops_the_loop_goes_on(child: Child) -> None:
    assert await child.answer("a_stop_the_loop") == "still here"


async def test_goodbye_lets_async_tasks_finish(child: Child, tmp_path: Path) -> None:
    token = child.run("a_touch_and_sleep", str(tmp_path / "it"), seconds=0.3)
    await eventually((tmp_path / "it").exists)
    child.bye()
    assert value_of(await child.done(token)) == "slept"
    assert await child.code() == 0


async def test_w31_a_copy_of_a_running_loop_runs_nothing_of_it(child: Child, tmp_path: Path) -> None:
    counting = child.run("a_count_steps", str(tmp_path / "steps"), str(tmp_path / "enough"))
    await child.started(counting)
    for _ in range(10):
        assert await child.answer("a_fork", str(tmp_path / "copied")) == {"copy": 0}
    (tmp_path / "enough").touch()
    steps = value_of(await child.done(counting))
    assert (tmp_path / "steps").read_text().split() == [str(step) for step in range(steps)]
    assert not (tmp_path / "copied").exists()
