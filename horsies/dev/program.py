"""One class that starts, watches and stops a process: for `horsies dev`, the demo, `horsies.testing`, the benchmarks.

A program runs in a process group of its own, so Ctrl-C in a terminal reaches only the process that started it. The
leader of the group is a guard, a shell that reads from a pipe whose other end this process holds: if this process ends,
however it ends, the guard kills the group. Until the guard has been waited for, no other group can get its number. Only
a process that has left the group (`setsid`) outlives the program.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from io import FileIO
from pathlib import Path
from typing import IO, Self

GUARD = ("/bin/sh", "-c", "trap '' HUP INT TERM; read -r _; kill -9 0")
READY_VARIABLE = "HORSIES_READY_FD"
LONGEST_LINE = 1 << 16
LOOK_S = 0.02
LAST_LINES_S = 1.0  # what has left the group may hold the output open; nobody waits longer for it


class NotReady(RuntimeError):
    """The program ended, or did not become ready in time."""


class Program:
    """A process, from its start on. As a context manager it is killed at the end of the block.

    `output` is a file that gets what the program prints, or a function that is called with each line, in a thread;
    without it the program prints where this process does. `says_ready`: it will say so (`ready_signal`). `has_input`:
    `write` sends text to its standard input; otherwise that is empty.
    """

    def __init__(
        self,
        words: Sequence[str | Path],
        *,
        output: Path | Callable[[str], None] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        says_ready: bool = False,
        has_input: bool = False,
    ) -> None:
        self.words = tuple(map(str, words))
        self._output = output
        self._copying: threading.Thread | None = None
        self._guard: subprocess.Popen[bytes] = subprocess.Popen(
            GUARD, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0
        )
        ready, saying = os.pipe()
        os.set_blocking(ready, False)
        self._ready = FileIO(ready)
        self._is_ready = False
        given = {**(os.environ if env is None else env), READY_VARIABLE: str(saying)}
        if not says_ready:
            del given[READY_VARIABLE]
        try:
            with open(saying, "wb"), output.open("ab") if isinstance(output, Path) else nullcontext() as file:
                self._process: subprocess.Popen[bytes] = subprocess.Popen(
                    self.words,
                    stdin=subprocess.PIPE if has_input else subprocess.DEVNULL,
                    stdout=subprocess.PIPE if callable(output) else file,
                    stderr=None if output is None else subprocess.STDOUT,
                    env=given,
                    cwd=cwd,
                    pass_fds=[saying] if says_ready else [],
                    process_group=self._guard.pid,
                )
        except BaseException:
            self._end_group()
            raise
        if callable(output):
            assert self._process.stdout is not None
            self._copying = threading.Thread(target=_copy, args=(self._process.stdout, output), daemon=True)
            self._copying.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def code(self) -> int | None:
        """The exit code, negative if a signal ended it; None while it runs. What it left in its group ends too."""
        code = self._process.poll()
        if code is not None:
            self._end_group()
        return code

    @property
    def is_running(self) -> bool:
        return self.code is None

    @property
    def is_ready(self) -> bool:
        """Whether it has said that it is ready."""
        if not self._is_ready and not self._ready.closed:
            self._is_ready = bool(self._ready.read(LONGEST_LINE))
        return self._is_ready

    def wait(self, timeout: float | None = None) -> int | None:
        """The exit code; None if it still runs after this time."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)
            if self._copying is not None:
                self._copying.join(LAST_LINES_S)
        return self.code

    def wait_until_ready(self, timeout: float) -> None:
        """`NotReady` if it ends before, or is not ready in this time; it is not stopped then."""
        until = time.monotonic() + timeout
        while not self.is_ready:
            code = self.code
            if code is not None or time.monotonic() > until:
                how = f"was not ready after {timeout:g} s" if code is None else f"ended with exit code {code}"
                raise NotReady(f"{' '.join(self.words)} {how}; it printed:\n{self.last_lines()}")
            time.sleep(LOOK_S)

    def write(self, text: str) -> None:
        """To its standard input. `BrokenPipeError` if it does not read any more."""
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode())
        self._process.stdin.flush()

    def send_signal(self, number: int, *, group: bool = False) -> None:
        """To the process itself, or to everything in its group."""
        if self.is_running and group:
            os.killpg(self._guard.pid, number)
        elif self.is_running:
            self._process.send_signal(number)

    def stop(self, grace: float) -> int:
        """Let it end by itself within this time, or kill it; the exit code."""
        self.send_signal(signal.SIGTERM)
        code = self.wait(grace)
        return self.kill() if code is None else code

    def kill(self) -> int:
        """End it and everything in its group; the exit code. It may have ended before."""
        self._process.kill()  # it may have left its group
        self._end_group()
        self.wait()
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        return self._process.returncode

    def last_lines(self, count: int = 30) -> str:
        """The end of what it has printed to its file."""
        text = self._output.read_text(errors="replace") if isinstance(self._output, Path) else ""
        return "\n".join(text.splitlines()[-count:])

    def _end_group(self) -> None:
        if self._guard.returncode is None:
            os.killpg(self._guard.pid, signal.SIGKILL)
            self._guard.wait()
            assert self._guard.stdin is not None
            self._guard.stdin.close()
        _ = self.is_ready  # it may have said so before it ended
        self._ready.close()


def ready_signal() -> Callable[[], None]:
    """For the program: call this first, and what it returns when it is ready. Nothing happens if nobody listens. The
    variable is taken out of the environment, so that nothing that the program starts believes that it is meant."""
    try:
        pipe = FileIO(int(os.environ.pop(READY_VARIABLE, "")), "w")
    except (OSError, ValueError):
        return lambda: None
    os.set_inheritable(pipe.fileno(), False)

    def say_ready() -> None:
        with suppress(OSError, ValueError), pipe:  # it was said before, or nobody listens any more
            pipe.write(b"ready\n")

    return say_ready


def _copy(stream: IO[bytes], line: Callable[[str], None]) -> None:
    """Every line, in parts if it is very long. The program never waits for a reader, whatever happens to `line`."""
    with stream:
        try:
            while read := stream.readline(LONGEST_LINE):
                line(read.decode("utf-8", "replace").rstrip("\r\n"))
        finally:
            while stream.read(LONGEST_LINE):
                pass
