"""What the system says about processes: real ones, alive, ended, waiting to be reaped, of somebody else (R-100)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from horsies.core.recovery.dead_workers import UNKNOWN, look_at, process_start
from horsies.core.recovery.decide import is_gone
from tests.each import each
from tests.support import eventually_sync

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


def test_r100_a_process_that_runs_is_there() -> None:
    found = look_at(os.getpid())
    assert found.is_there and not found.has_ended
    assert found.start == process_start(os.getpid()) is not None
    assert not is_gone(found, found.start)


def test_r100_a_number_given_to_another_process_is_noticed() -> None:
    found = look_at(os.getpid())
    assert found.start is not None
    assert is_gone(found, found.start - 1)


def test_r100_a_process_that_was_reaped_is_gone() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert look_at(process.pid).is_there is False


def test_r100_a_zombie_is_gone() -> None:
    process = subprocess.Popen(["sleep", "60"])
    start = process_start(process.pid)
    assert not is_gone(look_at(process.pid), start)
    process.send_signal(signal.SIGKILL)
    found = eventually_sync(lambda: found if (found := look_at(process.pid)).has_ended else None)
    assert found is not None and found.is_there and is_gone(found, start)
    process.wait()


def test_r100_a_stopped_process_is_not_gone() -> None:
    process = subprocess.Popen(["sleep", "60"])
    process.send_signal(signal.SIGSTOP)
    eventually_sync(lambda: "T (stopped)" in Path(f"/proc/{process.pid}/status").read_text())
    assert not is_gone(look_at(process.pid), process_start(process.pid))
    process.kill()
    process.wait()


def test_r100_a_process_whose_first_thread_has_ended_is_not_gone() -> None:
    program = (
        "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(60,)).start();"
        " ctypes.PyDLL(None).pthread_exit(None)"
    )
    process = subprocess.Popen([sys.executable, "-c", program])
    try:
        eventually_sync(lambda: "Z (zombie)" in Path(f"/proc/{process.pid}/status").read_text())
        assert not look_at(process.pid).has_ended
    finally:
        process.kill()
        process.wait()


def test_r100_a_process_that_may_not_be_examined_is_not_gone() -> None:
    """Process 1 is somebody else's, for a user without rights."""
    pid = os.fork()
    if pid == 0:
        if os.geteuid() == 0:
            os.setuid(65534)
        try:
            os.kill(1, 0)
        except PermissionError:
            os._exit(0 if not is_gone(look_at(1)) else 1)
        os._exit(2)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@each("pid", [None, 0, -1])
def test_r100_no_number_proves_nothing(pid: int | None) -> None:
    assert look_at(pid) == UNKNOWN and not is_gone(UNKNOWN)


def test_d40_the_start_is_counted_from_boot_and_so_no_corrected_clock_shifts_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def uptime() -> float:
        return float(Path("/proc/uptime").read_text().split()[0])

    tick = 1 / os.sysconf("SC_CLK_TCK")
    before = uptime()
    process = subprocess.Popen(["sleep", "60"])
    after = uptime()
    start = process_start(process.pid)
    assert start is not None and before - 2 * tick <= start * tick <= after + 2 * tick
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3600)
    assert not is_gone(look_at(process.pid), start)
    process.kill()
    process.wait()
