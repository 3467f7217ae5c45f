"""`Program`: a process that is started, watched and ended, with all that it starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from horsies.dev.program import READY_VARIABLE, NotReady, Program
from tests.support import eventually_sync

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); time.sleep(600)"
# A program with a child that ignores the signals that would let it end.
FAMILY = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {STUBBORN!r}])
print("child", child.pid, flush=True)
time.sleep(600)
"""
SAYS_READY = """
import os, time
from horsies.dev.program import ready_signal
say_ready = ready_signal()
print("HORSIES_READY_FD" in os.environ, flush=True)
{rest}
"""


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def child_of(lines: list[str]) -> int:
    return eventually_sync(lambda: [int(line.split()[1]) for line in lines if line.startswith("child")], 20)[0]


def test_its_lines_arrive_and_its_exit_code_is_known() -> None:
    lines: list[str] = []
    with Program(python("import sys; print('out'); sys.stdout.flush(); sys.exit('err')"), output=lines.append) as program:
        assert program.wait(20) == 1
        assert program.code == 1 and not program.is_running
    assert lines == ["out", "err"]


def test_a_file_gets_what_it_prints_and_its_input_what_is_written(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    code = "import os; print(input(), os.environ['WORD'], os.getcwd())"
    with Program(python(code), output=log, has_input=True, env={"WORD": "word"}, cwd=tmp_path) as program:
        program.write("hello\n")
        assert program.wait(20) == 0
        assert program.last_lines(1) == f"hello word {tmp_path}"
    assert log.read_text() == f"before\nhello word {tmp_path}\n"


def test_a_program_that_is_not_there_is_an_error_and_leaves_nothing() -> None:
    before = {child.pid for child in psutil.Process().children()}
    with pytest.raises(FileNotFoundError):
        Program(["no-such-program"], says_ready=True)
    assert {child.pid for child in psutil.Process().children()} <= before


def test_it_is_ready_when_it_says_so() -> None:
    lines: list[str] = []
    code = SAYS_READY.format(rest="input(); say_ready(); say_ready(); time.sleep(600)")
    with Program(python(code), output=lines.append, says_ready=True, has_input=True) as program:
        with pytest.raises(NotReady, match="was not ready after 0.1 s"):
            program.wait_until_ready(0.1)
        assert program.is_running and not program.is_ready
        program.write("go\n")
        program.wait_until_ready(20)
        assert program.is_ready and program.stop(20) == -signal.SIGTERM
        assert program.is_ready
    assert lines == ["False"], "what it starts does not believe that it is meant"


def test_one_that_ends_or_closes_the_pipe_is_not_ready(tmp_path: Path) -> None:
    closes = f"import os, time; os.close(int(os.environ[{READY_VARIABLE!r}])); print('so', flush=True); time.sleep(0.2)"
    with Program(python(closes), output=tmp_path / "log", says_ready=True) as program:
        with pytest.raises(NotReady, match="ended with exit code 0; it printed:\nso"):
            program.wait_until_ready(20)
        assert not program.is_ready


def test_a_ready_signal_without_a_listener_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with Program(python(SAYS_READY.format(rest="say_ready()"))) as program:
        assert program.wait(20) == 0
        assert not program.is_ready
    strange = {**os.environ, READY_VARIABLE: "991"}
    subprocess.run(python(SAYS_READY.format(rest="say_ready()")), env=strange, check=True, stdout=subprocess.DEVNULL)


def test_stop_lets_it_end_by_itself_and_kills_what_it_leaves() -> None:
    lines: list[str] = []
    leaves = FAMILY.replace("time.sleep(600)", "import signal; signal.sigwait({signal.SIGTERM}); sys.exit(7)")
    leaves = leaves.replace("import subprocess", "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, {15})\nimport subprocess", 1)
    with Program(python(leaves), output=lines.append) as program:
        child = child_of(lines)
        assert not is_gone(child)
        assert program.stop(20) == 7
        eventually_sync(lambda: is_gone(child), 20)


def test_one_that_does_not_end_is_killed_with_its_group() -> None:
    lines: list[str] = []
    code = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{FAMILY}"
    with Program(python(code), output=lines.append) as program:
        child = child_of(lines)
        assert program.stop(0.2) == -signal.SIGKILL
        eventually_sync(lambda: is_gone(child), 20)
        assert program.kill() == -signal.SIGKILL, "it may be asked again"


def test_what_it_leaves_ends_also_when_it_ends_by_itself() -> None:
    lines: list[str] = []
    with Program(python(FAMILY.replace("time.sleep(600)", "sys.exit(3)")), output=lines.append) as program:
        child = child_of(lines)
        assert program.wait(20) == 3
        eventually_sync(lambda: is_gone(child), 20)


def test_a_signal_goes_to_it_alone_or_to_the_group() -> None:
    lines: list[str] = []
    says = "import signal, sys, time; signal.signal(2, lambda *_: (print('{}', flush=True), sys.exit()))\n"
    child = says.format("child ends") + "print('ready', flush=True); time.sleep(600)"
    code = says.format("leader ends").replace(", sys.exit()", "") + f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {child!r}])
child.wait()
time.sleep(600)
"""
    with Program(python(code), output=lines.append) as program:
        eventually_sync(lambda: "ready" in lines, 20)
        program.send_signal(signal.SIGINT)
        eventually_sync(lambda: lines == ["ready", "leader ends"], 20)
        program.send_signal(signal.SIGINT, group=True)
        eventually_sync(lambda: sorted(lines) == ["child ends", "leader ends", "leader ends", "ready"], 20)
        assert program.is_running


def test_one_that_has_left_its_group_is_killed_too() -> None:
    lines: list[str] = []
    with Program(python("import os, time; os.setsid(); print('left', flush=True); time.sleep(600)"), output=lines.append) as program:
        eventually_sync(lambda: lines, 20)
        assert program.kill() == -signal.SIGKILL


def test_it_ends_with_all_that_it_started_when_its_parent_is_killed() -> None:
    parent = f"""
import time
from horsies.dev.program import Program
program = Program([{sys.executable!r}, "-c", {FAMILY!r}], output=lambda line: print(line, program.pid, flush=True))
time.sleep(600)
"""
    killed = subprocess.Popen(python(parent), stdout=subprocess.PIPE, text=True)
    try:
        assert killed.stdout is not None
        _, child, leader = killed.stdout.readline().split()
        assert not is_gone(int(child)) and not is_gone(int(leader))
    finally:
        killed.kill()
        killed.wait()
    for pid in (int(child), int(leader)):
        eventually_sync(lambda pid=pid: is_gone(pid), 20)
    killed.stdout.close()


def test_output_that_nobody_takes_does_not_hold_it_up() -> None:
    """Neither lines that are too long, nor a reader that fails or is slow to begin."""

    def fails(line: str) -> None:
        raise RuntimeError("a full disk")

    much = python("import sys; sys.stdout.write(1_000_000 * 'x'); sys.stdout.write(100_000 * 'y\\n')")
    lengths: list[int] = []
    with Program(much, output=lambda line: lengths.append(len(line))) as program:
        assert program.wait(30) == 0
    assert sum(lengths) == 1_100_000 and max(lengths) <= 1 << 16
    with pytest.warns(pytest.PytestUnhandledThreadExceptionWarning, match="a full disk"):
        with Program(much, output=fails) as program:
            assert program.wait(30) == 0




def test_output_held_open_by_what_has_left_is_not_waited_for() -> None:
    code = """
import subprocess, sys
away = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print("child", away.pid, flush=True)
"""
    lines: list[str] = []
    started = time.monotonic()
    with Program(python(code), output=lines.append) as program:
        assert program.wait(20) == 0
    away = int(lines[0].split()[1])
    assert not is_gone(away), "it has left on purpose"
    os.kill(away, signal.SIGKILL)
    assert time.monotonic() - started < 60
