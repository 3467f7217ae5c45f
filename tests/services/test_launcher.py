"""The fork server: quick, precise about every end, and never survived by anything (W-41, W-54)."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from horsies.core.child.wire import ChildSpec
from horsies.core.worker.launcher import Launcher, LauncherDied
from tests.services.children import APP, ROOT, Child, descendants, end_children, is_alive, read_pid, start_child
from tests.support import eventually, eventually_sync


@pytest.fixture
async def launcher() -> AsyncIterator[Launcher]:
    """A fork server for one test, which may do to it what it likes."""
    launcher = Launcher()
    await launcher.start()
    yield launcher
    family = [process.pid for process in descendants(launcher.pid)] if launcher.pid else []
    await launcher.stop()
    await eventually(lambda: not any(is_alive(pid) for pid in family), what="the end of all processes")
    await end_children(launcher)


@pytest.fixture
async def child(launcher: Launcher) -> Child:
    child = await start_child(launcher)
    await child.ready()
    return child


async def test_many_children_at_once(launcher: Launcher) -> None:
    children = await asyncio.gather(*(start_child(launcher, name=f"horsies-child-{n}") for n in range(8)))
    assert len({child.pid for child in children}) == 8
    for number, child in enumerate(children):
        assert (await child.ready())["name"] == f"horsies-child-{number}"
    for child in children:
        child.bye()
    assert [await child.code() for child in children] == [0] * 8


async def test_w36_the_death_of_one_child_disturbs_no_other(launcher: Launcher) -> None:
    doomed, other = [await start_child(launcher) for _ in range(2)]
    await doomed.ready()
    await other.ready()
    doomed.process.signal(signal.SIGKILL)
    assert await doomed.code() == -9
    assert await other.answer("echo", 1) == 1
    assert not other.process.exited.done()


async def test_a_signal_after_the_end_goes_nowhere(child: Child) -> None:
    child.process.signal(signal.SIGKILL)
    assert await child.code() == -9
    child.process.signal(signal.SIGKILL)
    child.process.kill_group()


async def test_signals_from_a_terminal_or_an_init_system_do_not_end_the_fork_server(
    launcher: Launcher, child: Child
) -> None:
    assert launcher.pid is not None
    for sig in (signal.SIGINT, signal.SIGTERM):
        os.kill(launcher.pid, sig)
    assert os.getsid(launcher.pid) == launcher.pid
    assert await child.answer("echo", 1) == 1
    await (await start_child(launcher)).ready()


async def test_the_fork_server_has_one_thread_and_few_descriptors(launcher: Launcher) -> None:
    for number in range(3):
        child = await start_child(launcher, name=f"horsies-child-{number}")
        await child.ready()
        child.bye()
        await child.code()
    assert launcher.pid is not None
    server = psutil.Process(launcher.pid)
    assert server.num_threads() == 1
    assert server.num_fds() <= 3 + 4  # control socket, two ends of a pipe, the supervisor's pidfd
    assert server.children() == []


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere orphans belong to process 1")
async def test_orphans_of_tasks_are_reaped(launcher: Launcher, child: Child) -> None:
    orphan = await child.answer("leave_an_orphan")
    await eventually(lambda: not psutil.pid_exists(orphan))  # not even as a zombie
    assert await child.answer("echo", 1) == 1


async def test_w54_children_die_with_the_fork_server_which_can_be_started_again(
    launcher: Launcher, tmp_path: Path
) -> None:
    child = await start_child(launcher)
    await child.ready()
    child.run("start_a_program_and_wait", str(tmp_path / "pid"))
    program = await eventually(lambda: read_pid(tmp_path / "pid"))
    assert launcher.pid is not None
    os.kill(launcher.pid, signal.SIGKILL)
    assert await child.code() == -9
    await eventually(lambda: not is_alive(child.pid) and not is_alive(program))
    assert not launcher.is_running
    with pytest.raises(LauncherDied):
        await launcher.spawn(ChildSpec(APP), "horsies-child-2")
    await launcher.start()
    successor = await start_child(launcher)
    await successor.ready()
    assert await successor.answer("echo", 1) == 1


async def test_a_child_can_be_had_where_the_system_gives_no_memory_files(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> int:
        raise OSError(errno.ENOSYS, "refused")

    monkeypatch.setattr(os, "memfd_create", refuse, raising=False)
    child = await start_child(launcher)
    await child.ready()
    assert await child.answer("echo", 1) == 1
    await child.done(child.run("brief_or_not"))


async def test_a_child_for_which_there_is_no_memory_leaves_nothing_open(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, size: int) -> None:
        raise OSError(errno.ENOMEM, "no memory")

    before = len(os.listdir("/dev/fd"))
    with monkeypatch.context() as patched:
        for call in ("mmap.mmap", "os.ftruncate"):  # the second time the memory file cannot even be made as large
            patched.setattr(call, refuse)
            for _ in range(5):
                with pytest.raises(OSError, match="no memory"):
                    await start_child(launcher)
    assert len(os.listdir("/dev/fd")) == before


async def test_a_spawn_under_way_fails_when_the_fork_server_dies(launcher: Launcher) -> None:
    assert launcher.pid is not None
    os.kill(launcher.pid, signal.SIGSTOP)
    spawning = asyncio.create_task(start_child(launcher))
    await asyncio.sleep(0)
    os.kill(launcher.pid, signal.SIGKILL)
    with pytest.raises(LauncherDied):
        await spawning


async def test_a_child_whose_spawn_was_given_up_ends_itself(launcher: Launcher) -> None:
    assert launcher.pid is not None
    os.kill(launcher.pid, signal.SIGSTOP)
    spawning = asyncio.create_task(start_child(launcher))
    await asyncio.sleep(0)
    spawning.cancel()
    await asyncio.gather(spawning, return_exceptions=True)
    os.kill(launcher.pid, signal.SIGCONT)
    await (await start_child(launcher)).ready()  # by now the other one was forked
    await eventually(lambda: len(list(descendants(launcher.pid or 0))) == 1)


async def test_w54_a_child_ends_when_its_supervisor_closes_the_socket(child: Child, tmp_path: Path) -> None:
    child.run("touch_and_sleep", str(tmp_path / "it"), seconds=600)
    await eventually((tmp_path / "it").exists)
    child.process.sock.close()
    assert await child.code() == 70


async def test_stopping_twice_and_starting_twice_is_harmless(launcher: Launcher) -> None:
    await launcher.start()
    pid = launcher.pid
    await launcher.stop()
    await launcher.stop()
    await launcher.start()
    assert launcher.pid not in (None, pid)


SUPERVISOR = f"""
import asyncio, sys
from tests.services.children import start_child
from horsies.core.worker.launcher import Launcher

async def main():
    launcher = Launcher()
    await launcher.start()
    child = await start_child(launcher, concurrency=2)
    await child.ready()
    name, path, *rest = sys.argv[1:]
    child.run(name, path, *(int(number) for number in rest))
    print(launcher.pid, child.pid, flush=True)
    await asyncio.sleep(600)

sys.path.insert(0, {ROOT!r})
asyncio.run(main())
"""


@pytest.mark.parametrize(
    "task",
    [
        ["touch_and_sleep"],
        ["spin"],
        ["hold_the_interpreter", "600"],
        ["reset_signals"],
        ["a_touch_and_sleep"],
        ["start_a_program_and_wait"],
    ],
    ids=lambda task: task[0],
)
def test_w54_nothing_survives_a_supervisor_that_was_killed(tmp_path: Path, task: list[str]) -> None:
    path = tmp_path / "it"
    command = [sys.executable, "-c", SUPERVISOR, task[0], str(path), *task[1:]]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        line = supervisor.stdout.readline()
        eventually_sync(path.exists)
        family = [*map(int, line.split()), *(process.pid for process in descendants(supervisor.pid))]
        assert len(family) >= 4
        supervisor.kill()
        eventually_sync(lambda: not [pid for pid in family if is_alive(pid)])


@pytest.mark.skipif(sys.platform != "linux", reason="needs the parent-death signal")
def test_w54_a_child_dies_even_if_fork_server_and_supervisor_are_killed_together(tmp_path: Path) -> None:
    """Nobody is left to kill it, and its code keeps it from noticing anything itself."""
    path = tmp_path / "it"
    command = [sys.executable, "-c", SUPERVISOR, "hold_the_interpreter", str(path), "600"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        server, child = map(int, supervisor.stdout.readline().split())
        eventually_sync(path.exists)
        supervisor.send_signal(signal.SIGSTOP)
        os.kill(server, signal.SIGKILL)
        supervisor.kill()
        eventually_sync(lambda: not is_alive(child))


EARLY = """
import sys, threading
from horsies.core.child.forkserver import fork_server
if sys.argv[1:] == ["with a thread"]:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
server = fork_server()
print(None if server is None else server.pid, flush=True)
sys.stdin.read()
"""


def test_w54_a_forked_server_ends_with_a_supervisor_that_never_used_it() -> None:
    command = [sys.executable, "-c", EARLY]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        pid = int(supervisor.stdout.readline())
        eventually_sync(
            lambda: os.getsid(pid) == pid, what="a session of its own: Ctrl-C in a terminal does not reach it"
        )
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)  # these are for the supervisor
        eventually_sync(lambda: psutil.Process(pid).name() == "horsies-forks")
        assert is_alive(pid)
        supervisor.kill()
        eventually_sync(lambda: not is_alive(pid))


def test_w41_a_process_with_threads_is_not_forked() -> None:
    command = [sys.executable, "-c", EARLY, "with a thread"]
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    assert done.stdout == "None\n"


REAPED = """
import os, signal
from horsies.core.child.forkserver import fork_server
server = fork_server()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # an app may do this
os.kill(server.pid, signal.SIGKILL)
print(server.wait())
"""


def test_w41_a_fork_server_that_the_app_has_reaped_has_ended_too() -> None:
    done = subprocess.run([sys.executable, "-c", REAPED], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "0\n", done.stderr


# What the app has started may have inherited the socket, so that its end is not seen.
UNUSED = """
import asyncio, os, signal, time
from horsies.core.child.forkserver import fork_server
from horsies.core.worker.launcher import Launcher
server = fork_server()
if (app := os.fork()) == 0:
    time.sleep(60)
    os._exit(0)
asyncio.run(Launcher(server).stop())
os.kill(app, signal.SIGKILL)
print(server.returncode)
"""


def test_w41_a_forked_server_ends_with_a_worker_that_never_started() -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNUSED], cwd=ROOT, capture_output=True, text=True, check=True, timeout=50
    )
    assert done.stdout == "-9\n", done.stderr


CLOSED = """
import asyncio, os
from horsies.core.child.forkserver import fork_server
from horsies.core.worker.launcher import Launcher
server = fork_server()
os.closerange(3, 256)  # as programs do that leave their terminal
other = os.open(os.devnull, os.O_RDWR)
async def main():
    launcher = Launcher(server)
    await launcher.start()
    print(launcher.pid != server.pid, server.returncode is not None)
    await launcher.stop()
asyncio.run(main())
os.fstat(other)
"""


def test_w41_a_fork_server_that_the_app_has_cut_off_is_replaced() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CLOSED], cwd=ROOT, capture_output=True, text=True, check=True, timeout=50
    )
    assert done.stdout == "True True\n", done.stderr
