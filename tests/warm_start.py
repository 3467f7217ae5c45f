"""The `horsies` command without the time that its import takes: a process that has imported it forks for each command.

What runs is a real process, with its own arguments, environment, directory, streams and session; only the start of the
interpreter and the import of the library are shared. Hundreds of commands would otherwise spend more time on importing
than on what they are tested for. A command whose environment concerns the interpreter is started from nothing, and so
is every command if HORSIES_TEST_COLD is set.
"""

from __future__ import annotations

import array
import contextlib
import functools
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
COLD_VARIABLE = "HORSIES_TEST_COLD"
LARGEST_REQUEST = 1 << 17


def start(args: tuple[str, ...], *, cwd: Path, env: Mapping[str, str], **streams: Any) -> subprocess.Popen[str]:
    """`python -m horsies args…` in a session of its own."""
    if os.environ.get(COLD_VARIABLE) or _for_the_interpreter(env) != _for_the_interpreter(os.environ):
        command = [sys.executable, "-m", "horsies", *args]
        return subprocess.Popen(command, cwd=cwd, env=env, text=True, start_new_session=True, **streams)
    return _WarmProcess(args, cwd=cwd, env=env, text=True, **streams)


def run(
    args: tuple[str, ...], *, cwd: Path, env: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """The same, to its end."""
    with start(args, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
        return subprocess.CompletedProcess(args, process.returncode, out, err)


def _for_the_interpreter(env: Mapping[str, str]) -> dict[str, str]:
    """What matters while Python starts or a library is imported, and cannot be changed afterwards."""
    prefixes = ("PYTHON", "LC_", "LANG", "TERM", "TYPER_", "_TYPER", "LD_")
    return {name: value for name, value in env.items() if name.startswith(prefixes)}


class _WarmProcess(subprocess.Popen[str]):
    """A process of the server that this one can wait for: the server passes on its end."""

    def _execute_child(self, args: tuple[str, ...], *given: Any) -> None:
        (_, _, _, _, cwd, env, _, _, _), pipes = given[:9], given[9:15]
        stdin, _, _, stdout, _, stderr = pipes
        self._status, theirs = os.pipe()
        with contextlib.ExitStack() as opened:
            opened.callback(os.close, theirs)
            empty = os.open(os.devnull, os.O_RDWR)
            opened.callback(os.close, empty)
            files = [empty if number == -1 else number for number in (stdin, stdout, stderr)]
            request = {"args": list(args), "cwd": str(cwd), "env": dict(env)}
            self.pid = _server().fork(request, [*files, theirs])
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        return self._ended(0)

    def _wait(self, timeout: float | None) -> int:
        if (code := self._ended(timeout)) is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code

    def _ended(self, timeout: float | None) -> int | None:
        with self._waitpid_lock:  # type: ignore[attr-defined]
            if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
                self.returncode = int(os.read(self._status, 20) or b"-9")
                os.close(self._status)
            return self.returncode


class _Server:
    """The process that forks, as seen from the tests."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._turn = threading.Lock()
        env = {name: value for name, value in os.environ.items() if name != "HORSIES_TEST_DATABASE"}
        with theirs:
            command = [sys.executable, "-m", "tests.warm_start", str(theirs.fileno()), "horsies"]
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def fork(self, request: dict[str, Any], files: list[int]) -> int:
        with self._turn:
            socket.send_fds(self._socket, [json.dumps(request).encode()], files)
            return int(self._socket.recv(20))


@functools.cache
def _server() -> _Server:
    return _Server()


def server_pid() -> int | None:
    """The process that is no test's, and that no test leaves behind."""
    return _server().process.pid if _server.cache_info().currsize else None


def serve(requests: socket.socket) -> Callable[[], None]:
    """Fork for each request. It returns in the new process only, with what that process is to do."""
    ended, wake = socket.socketpair()
    for end in (ended, wake):
        end.setblocking(False)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([requests, ended], [], [])
        if ended in ready:
            ended.recv(4096)
        if requests in ready:
            message, files, _, _ = socket.recv_fds(requests, LARGEST_REQUEST, 4)
            if not message:
                os._exit(0)  # the tests have ended
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                for number in (requests, ended, wake):
                    number.close()
                return functools.partial(_become, json.loads(message), files, tuple(running.values()))
            for number in files[:3]:
                os.close(number)
            running[pid] = files[3]
            requests.send(str(pid).encode())
        _pass_on_ends(running)


def _pass_on_ends(running: dict[int, int]) -> None:
    for pid, status in list(running.items()):
        found, how = os.waitpid(pid, os.WNOHANG)
        if found:
            with contextlib.suppress(BrokenPipeError):  # nobody wants to know any more
                os.write(status, str(os.waitstatus_to_exitcode(how)).encode())
            os.close(status)
            del running[pid]


def _become(request: dict[str, Any], files: array.array[int] | list[int], others: tuple[int, ...]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
    for file in (*files, *others):
        os.close(file)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = ["horsies", *request["args"]]
    sys.path[0] = os.getcwd()


if __name__ == "__main__":
    from horsies.cli.main import main

    gc.freeze()
    become = serve(socket.socket(fileno=int(sys.argv[1])))
    become()
    main()
