"""A child runs the tasks it is handed, one after the other, and says so in the right order."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest

from horsies.core.child import wire
from horsies.core.child.wire import ChildSpec, Kind
from horsies.core.worker.launcher import Launcher
from tests.services.children import Child, error_of, start_child, value_of

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_w40_a_ready_child_introduces_itself(launcher: Launcher) -> None:
    child = await start_child(launcher, name="horsies-child-7")
    info = await child.ready()
    assert (info["pid"], info["name"]) == (child.pid, "horsies-child-7")
    assert {"echo", "a_echo"} <= set(info["tasks"])
    assert "a_echo" in info["async"] and "echo" not in info["async"]
    assert 5 < info["rss_mb"] < 1000


async def test_w30_started_comes_before_done(child: Child) -> None:
    token = child.run("echo", {"x": [1, None, "ü"]})
    await child.started(token)
    kind, number, parts = await child.hear()
    assert (kind, number) == (Kind.DONE, token)
    done = wire.done_of(parts)
    assert value_of(done) == {"x": [1, None, "ü"]}
    assert (done.error_code, done.error_message, done.stopped) == (None, None, False)
    assert done.run_ns > 0
    assert done.rss_kb > 5000


async def test_w30_started_is_said_before_arguments_are_decoded(child: Child) -> None:
    child.tell(wire.pack(Kind.RUN, 5, b"echo", b"{not json", b"", b"", b""))
    await child.started(5)
    done = await child.done(5)
    assert done.error_code == "WORKER_SERIALIZATION_ERROR"
    assert error_of(done)["error_code"] == {"__builtin_task_code__": "WORKER_SERIALIZATION_ERROR"}


async def test_tasks_run_in_order_one_at_a_time(child: Child) -> None:
    orders = [child.order("echo", number) for number in range(200)]
    child.tell(*(frame for _, frame in orders))
    heard: list[tuple[Kind, int]] = []
    while not heard or heard[-1] != (Kind.DONE, orders[-1][0]):
        heard.append((await child.hear())[:2])
    assert [token for kind, token in heard if kind is Kind.DONE] == [token for token, _ in orders]
    # Of a brief task only the end is reported, if it ends before its start was sent.
    begun = [place for place, (kind, _) in enumerate(heard) if kind is Kind.STARTED]
    assert begun and all(heard[place + 1] == (Kind.DONE, heard[place][1]) for place in begun)


async def test_t70_an_unknown_task_is_an_error_result(child: Child) -> None:
    done = await child.done(child.run("nobody knows it"))
    assert done.error_code == "WORKER_RESOLUTION_ERROR"
    assert "nobody knows it" in (done.error_message or "")


async def test_keyword_arguments_arrive(child: Child) -> None:
    assert await child.answer("echo", value=3) == 3


async def test_w25a_what_has_not_started_can_be_taken_back(child: Child, tmp_path: Path) -> None:
    running = child.run("touch_and_sleep", str(tmp_path / "it"), seconds=0.5)
    await child.started(running)
    first, second, third = (child.run("echo", number) for number in range(3))
    child.tell(wire.pack_tokens(Kind.TAKE_BACK, [first, third, running, 999]))
    kind, _, parts = await child.hear()
    assert kind is Kind.GAVE_UP
    assert wire.tokens_of(parts) == [first, third]
    assert value_of(await child.done(running)) == "slept"
    assert value_of(await child.done(second)) == 1
    assert await child.answer("echo", "next") == "next"


async def test_nothing_is_said_when_nothing_can_be_taken_back(child: Child) -> None:
    await child.answer("echo")
    child.tell(wire.pack_tokens(Kind.TAKE_BACK, [1, 2, 3]))
    assert await child.answer("echo", 1) == 1  # `done` accepts no other frame in between


async def test_w70_a_running_task_beats_and_an_idle_child_does_not(launcher: Launcher, tmp_path: Path) -> None:
    child = await start_child(launcher, beat_interval_ms=50)
    await child.ready()
    token = child.run("touch_and_sleep", str(tmp_path / "it"), seconds=0.5)
    await child.started(token)
    for _ in range(3):
        kind, _, parts = await child.hear()
        assert (kind, wire.tokens_of(parts)) == (Kind.BEAT, [token])
    await child.done(token)
    child.bye()
    assert await child.hear_all() == []


async def test_a_child_beats_while_its_task_spins(launcher: Launcher, tmp_path: Path) -> None:
    child = await start_child(launcher, beat_interval_ms=50)
    await child.ready()
    token = child.run("spin", str(tmp_path / "it"))
    await child.started(token)
    for _ in range(3):
        kind, _, parts = await child.hear()
        assert (kind, wire.tokens_of(parts)) == (Kind.BEAT, [token])


async def test_w41_a_child_finishes_what_it_holds_then_leaves(child: Child) -> None:
    orders = [child.order("echo", number) for number in range(10)]
    child.tell(*(frame for _, frame in orders), wire.pack(Kind.BYE, 0))
    heard = await child.hear_all()
    assert [number for kind, number, _ in heard if kind is Kind.DONE] == [token for token, _ in orders]
    assert await child.code() == 0
    assert child.process.peak_rss_kb > 5000


async def test_a_result_larger_than_any_buffer_arrives_whole(child: Child) -> None:
    size = 50 * 1024 * 1024
    assert await child.answer("large_result", size) == "x" * size


async def test_large_frames_in_both_directions_do_not_block_each_other(child: Child) -> None:
    big = "y" * (8 << 20)
    orders = [child.order("echo", big) for _ in range(4)]
    everything = b"".join(frame for _, frame in orders)
    sending = asyncio.create_task(asyncio.get_running_loop().sock_sendall(child.process.sock, everything))
    for token, _ in orders:
        assert value_of(await child.done(token)) == big
    await sending


async def test_each_task_has_a_context_of_its_own(child: Child) -> None:
    assert await child.answer("set_context") == "nothing"
    assert await child.answer("set_context") == "nothing"


async def test_w41_a_child_is_a_process_of_its_own(launcher: Launcher, child: Child) -> None:
    me = await child.answer("whoami")
    assert me["pid"] == me["group"] == child.pid
    assert me["ppid"] == me["session"] == launcher.pid
    assert me["name"] == "horsies-child-1"
    assert me["stdin"] == "/dev/null"
    assert me["main"] == []
    assert me["sigint"] and me["sigterm"] and me["main_thread"]
    # 0, 1, 2, the memory of the outbox, the listing itself, and one socket
    assert [fd for fd in me["fds"] if fd > 2][2:] == [me["fds"][-1]] and len(me["fds"]) == 6


async def test_children_do_not_share_descriptors_or_randomness(launcher: Launcher) -> None:
    answers = []
    for number in range(3):
        child = await start_child(launcher, name=f"horsies-child-{number}")
        await child.ready()
        answers.append(await child.answer("whoami"))
    assert [len(answer["fds"]) for answer in answers] == [6, 6, 6]
    assert len({answer["random"] for answer in answers}) == 3


async def test_an_interrupt_does_not_reach_a_task(child: Child, tmp_path: Path) -> None:
    token = child.run("touch_and_sleep", str(tmp_path / "it"), seconds=0.5)
    await child.started(token)
    child.process.signal(signal.SIGINT)
    assert value_of(await child.done(token)) == "slept"


async def test_garbage_from_the_supervisor_ends_the_child(child: Child) -> None:
    child.tell(b"this is not a frame at all")
    assert await child.code() == 70


async def test_the_spec_travels_without_loss_and_hides_its_url() -> None:
    spec = ChildSpec("m:app", imports=("a", "b.py"), concurrency=3, database_url="postgresql://u:secret@h/d")
    assert ChildSpec.from_json(spec.to_json()) == spec
    assert "secret" not in repr(spec)
    assert json.loads(spec.to_json())["imports"] == ["a", "b.py"]
