"""Whatever a task does, its child either goes on whole or is seen to end; it never goes on unseen."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from horsies.core.child.wire import Kind
from horsies.core.worker.launcher import Launcher
from tests.services.children import Child, error_of, is_alive, read_pid, start_child
from tests.support import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize(
    ("what", "name"),
    [
        ("exit", "SystemExit"),
        ("interrupt", "KeyboardInterrupt"),
        ("generator", "GeneratorExit"),
        ("strange", "Strange"),
        ("value", "ValueError"),
        ("recursion", "RecursionError"),
        ("memory", "MemoryError"),
    ],
)
async def test_t88_w31_whatever_is_raised_is_a_result(child: Child, what: str, name: str) -> None:
    done = await child.done(child.run("raise_it", what))
    assert done.error_code == "UNHANDLED_EXCEPTION"
    assert error_of(done)["exception"]["type"] == name
    assert await child.answer("echo", 1) == 1


@pytest.mark.parametrize("code", [0, 1, 70, 255])
async def test_w35_a_task_that_exits_hard_is_seen_with_its_code(child: Child, code: int) -> None:
    token, deadly = child.order("exit_hard", code)
    _, behind = child.order("echo")
    child.tell(deadly, behind)
    assert [frame[:2] for frame in await child.hear_all()] == [(Kind.STARTED, token)], "the one behind never started"
    assert await child.code() == code


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
async def test_w35_a_task_that_dies_by_a_signal_is_seen_with_it(child: Child, sig: signal.Signals) -> None:
    child.run("kill_myself", int(sig))
    assert await child.code() == -sig


async def test_results_are_not_lost_when_the_child_dies_right_after(child: Child) -> None:
    orders = [child.order("echo", number) for number in range(50)]
    _, deadly = child.order("kill_myself", int(signal.SIGKILL))
    child.tell(*(frame for _, frame in orders), deadly)
    assert await child.code() == -9
    heard = await child.hear_all()
    assert [number for kind, number, _ in heard if kind is Kind.DONE] == [token for token, _ in orders]


async def test_a_stopped_process_can_be_killed(child: Child) -> None:
    child.process.signal(signal.SIGSTOP)
    await eventually(lambda: psutil.Process(child.pid).status() == psutil.STATUS_STOPPED)
    child.process.signal(signal.SIGKILL)
    assert await child.code() == -9


async def test_a_task_that_closes_all_descriptors_ends_its_child(child: Child) -> None:
    child.run("close_descriptors")
    assert await child.code() == 70


async def test_a_child_notices_closed_descriptors_while_the_task_still_runs(launcher: Launcher) -> None:
    child = await start_child(launcher, beat_interval_ms=50)
    await child.ready()
    child.run("close_descriptors", then_sleep=600)
    assert await child.code() == 70


@pytest.mark.parametrize("then_sleep", [0, 600])
async def test_a_child_does_not_take_a_socket_of_the_task_for_its_own(launcher: Launcher, then_sleep: float) -> None:
    child = await start_child(launcher, beat_interval_ms=50)
    await child.ready()
    child.run("close_descriptors_and_open_others", then_sleep)
    assert await child.code() == 70


async def test_threads_that_never_end_do_not_keep_a_child(child: Child) -> None:
    assert await child.answer("start_threads") >= 3
    assert await child.answer("echo", 1) == 1
    child.bye()
    assert await child.code() == 0


async def test_w31_a_copy_neither_reports_nor_takes_tasks(child: Child, tmp_path: Path) -> None:
    tokens = [child.run("fork_and_return", str(tmp_path / "copy")), *(child.run("echo", n) for n in range(20))]
    assert (await child.done(tokens[0])).result == '{"ok":{"copy":0}}'
    for token in tokens[1:]:
        await child.done(token)
    assert read_pid(tmp_path / "copy") not in (0, child.pid)


async def test_w31_an_exception_in_a_copy_is_not_reported(child: Child) -> None:
    assert await child.answer("fork_and_raise") == {"copy": 0}
    assert await child.answer("echo", 1) == 1


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
async def test_w31_a_copy_does_not_keep_the_socket(child: Child, tmp_path: Path) -> None:
    copy = await child.answer("leave_a_copy_behind", str(tmp_path / "copy"))
    await eventually(lambda: read_pid(tmp_path / "copy") == copy)
    links = [os.readlink(f"/proc/{copy}/fd/{fd}") for fd in os.listdir(f"/proc/{copy}/fd")]
    assert not [link for link in links if link.startswith("socket:")]


@pytest.mark.parametrize("end", ["bye", "kill"])
@pytest.mark.parametrize("name", ["leave_a_copy_behind", "leave_a_program_behind"])
async def test_w41_what_a_task_has_left_running_ends_with_the_child(
    child: Child, tmp_path: Path, name: str, end: str
) -> None:
    left = await child.answer(name, *([str(tmp_path / "copy")] if "copy" in name else []))
    assert is_alive(left)
    if end == "bye":
        child.bye()
    else:
        child.process.signal(signal.SIGKILL)
    await child.code()
    await eventually(lambda: not is_alive(left))


async def test_subprocesses_work_and_inherit_nothing(child: Child) -> None:
    assert await child.answer("use_subprocess") == "[0, 1, 2, 3]\n"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
async def test_multiprocessing_works_inside_a_task(child: Child, method: str) -> None:
    assert await child.answer("use_multiprocessing", method) == [1, 2, 3]
    assert await child.answer("echo", 1) == 1
