"""Processes without the time that the import of the library takes: a process that has imported it forks each of them.

What runs is a real process, with its own arguments, environment, directory, streams and session; only the start of the
interpreter and the import of the library are shared. Hundreds of commands, and the fork servers of hundreds of workers,
would otherwise spend more time on importing than on what they are tested for. A process whose environment concerns the
interpreter is started cold, and so is every process if HORSIES_TEST_COLD is set.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from horsies.core.child import forkserver

ROOT = Path(__file__).resolve().parent.parent
COLD_VARIABLE = "HORSIES_TEST_COLD"
HORSIES, DOOMED = "horsies.cli.main", "horsies.testing.doomed"
# What processes import, and what some commands import later: the warm process does before it forks the first of them.
PROGRAMS = (HORSIES, DOOMED, "horsies.cli.worker", "horsies.core.worker.service")
OF_COMMANDS = {"mcp": ("horsies.mcp.program",), "web": ("horsies.cli.web_server", "uvicorn.protocols.http.h11_impl")}
LARGEST_REQUEST = 1 << 17


def start(
    args: tuple[str, ...],
    *,
    cwd: Path | None,
    env: Mapping[str, str],
    program: str = HORSIES,
    text: bool = True,
    **given: Any,
) -> subprocess.Popen[Any]:
    """`python -m horsies args…` in a session of its own; or another program, which is the function `main` of a module,
    or a file."""
    if _must_be_cold(env):
        command = [sys.executable, *_cold(program), *args]
        session = {} if "process_group" in given else {"start_new_session": True}
        return subprocess.Popen(command, cwd=cwd, env=env, text=text, **session, **given)
    return _WarmProcess((program, *args), cwd=cwd or Path.cwd(), env=env, text=text, **given)


def run(
    args: tuple[str, ...], *, cwd: Path, env: Mapping[str, str], timeout: float, program: str = HORSIES
) -> subprocess.CompletedProcess[str]:
    """The same, to its end."""
    with start(args, cwd=cwd, env=env, program=program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
        return subprocess.CompletedProcess(args, process.returncode, out, err)


def _cold(program: str) -> list[str]:
    if program.endswith(".py"):
        return [program]
    return ["-m", "horsies"] if program == HORSIES else ["-c", f"from {program} import main; main()"]


def fork_server() -> forkserver.ForkedServer | None:
    """A fork server for a worker in this process, as if this process had forked it; None if it must start cold. It ends
    with this process: the warm process, which is its supervisor, does."""
    if _must_be_cold(os.environ):
        return None
    ours, theirs = socket.socketpair()
    status, status_end = os.pipe()
    with theirs, contextlib.ExitStack() as opened:
        opened.callback(os.close, status_end)
        empty = os.open(os.devnull, os.O_RDONLY)
        opened.callback(os.close, empty)
        request = {"program": None, "cwd": os.getcwd(), "env": dict(os.environ)}
        pid = _server().fork(request, [empty, 1, 2, status_end, theirs.fileno()])
    return _WarmForkServer(pid, ours, status)


def _must_be_cold(env: Mapping[str, str]) -> bool:
    return bool(os.environ.get(COLD_VARIABLE)) or _for_the_interpreter(env) != _server().interpreter


def _for_the_interpreter(env: Mapping[str, str]) -> dict[str, str]:
    """What matters while Python starts or a library is imported, and cannot be changed afterwards."""
    prefixes = ("PYTHON", "LC_", "LANG", "TERM", "TYPER_", "_TYPER", "LD_", "MALLOC_")
    return {name: value for name, value in env.items() if name.startswith(prefixes)}


class _WarmProcess(subprocess.Popen[Any]):
    """A process of the server that this one can wait for: the server passes on its end."""

    def _execute_child(self, args: tuple[str, ...], *given: Any) -> None:
        (_, _, _, keeps, cwd, env, _, _, _), pipes = given[:9], given[9:15]
        stdin, _, _, stdout, _, stderr = pipes
        self._status, theirs = os.pipe()
        with contextlib.ExitStack() as opened:
            opened.callback(os.close, theirs)
            empty = os.open(os.devnull, os.O_RDWR)
            opened.callback(os.close, empty)
            files = [empty if number == -1 else number for number in (stdin, stdout, stderr)]
            request = {"program": args[0], "args": list(args[1:]), "cwd": str(cwd), "env": dict(env), "keeps": keeps}
            self.pid = _server().fork(request, [*files, theirs, *keeps])
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


class _WarmForkServer(forkserver.ForkedServer):
    """Another process has forked it, which passes on its end."""

    def __init__(self, pid: int, control: socket.socket, status: int) -> None:
        super().__init__(pid, control)
        self._status = status

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("the fork server", timeout or 0.0)
            self.returncode = int(os.read(self._status, 20) or b"-9")
            os.close(self._status)
        return self.returncode

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def close(self) -> None:
        """End it, if no worker has."""
        self.control.close()
        self.wait()


class _Server:
    """The process that forks, as seen from the tests."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._turn = threading.Lock()
        self.interpreter = _for_the_interpreter(os.environ)
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


def _server() -> _Server:
    with _starting:
        return _only_server()


@functools.cache
def _only_server() -> _Server:
    return _Server()


_starting = threading.Lock()  # a worker that tests share is started in a thread


def server_pid() -> int | None:
    """The process that is no test's, and that no test leaves behind."""
    return _server().process.pid if _only_server.cache_info().currsize else None


def serve(requests: socket.socket) -> Callable[[], None]:
    """Fork for each request. It returns in the new process only, with what that process is to do."""
    here = os.getpid()
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
            message, files, _, _ = socket.recv_fds(requests, LARGEST_REQUEST, 16)
            if not message:
                os._exit(0)  # the tests have ended
            request = json.loads(message)
            _import_early(request)
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                for number in (requests, ended, wake):
                    number.close()
                return functools.partial(_become, here, request, files, tuple(running.values()))
            running[pid] = files.pop(3)
            for number in files:
                os.close(number)
            requests.send(str(pid).encode())
        _pass_on_ends(running)


def _import_early(request: dict[str, Any]) -> None:
    if request["program"] == HORSIES:
        for module in OF_COMMANDS.get(next(iter(request["args"]), ""), ()):
            importlib.import_module(module)


def _pass_on_ends(running: dict[int, int]) -> None:
    for pid, status in list(running.items()):
        found, how = os.waitpid(pid, os.WNOHANG)
        if found:
            with contextlib.suppress(BrokenPipeError):  # nobody wants to know any more
                os.write(status, str(os.waitstatus_to_exitcode(how)).encode())
            os.close(status)
            del running[pid]


def _become(warm: int, request: dict[str, Any], files: list[int], others: tuple[int, ...]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
    kept = [fcntl.fcntl(file, fcntl.F_DUPFD, 1_000) for file in files[4:] if request["program"] is not None]
    for file in (*files[: 4 if request["program"] is None else None], *others):
        os.close(file)
    for number, file in zip(request.get("keeps", ()), kept, strict=True):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    if request["program"] is None:
        forkserver._become_server(files[4], warm)
    os.setsid()
    program = request["program"]
    sys.argv = [program if program.endswith(".py") else "horsies", *request["args"]]
    if program.endswith(".py"):
        sys.path[0] = str(Path(program).parent)
        runpy.run_path(program, run_name="__main__")
    else:
        sys.path[0] = os.getcwd()
        importlib.import_module(program).main()


if __name__ == "__main__":
    for module in PROGRAMS:
        importlib.import_module(module)
    forkserver.prepare()
    serve(socket.socket(fileno=int(sys.argv[1])))()
