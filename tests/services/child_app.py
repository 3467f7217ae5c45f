"""Tasks for the tests of child processes: well-behaved ones, and ones that do everything a task should not."""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import logging
import multiprocessing
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

from horsies.core.app import Horsies
from horsies.core.models.app import AppConfig
from horsies.core.models.tasks import TaskError, TaskResult

# Never connected to: a child needs no database to run tasks.
app = Horsies(AppConfig.for_database_url("postgresql://nobody@127.0.0.1:1/nothing"))

Answer = TaskResult[Any, TaskError]
seen: contextvars.ContextVar[str] = contextvars.ContextVar("seen", default="nothing")


def ok(value: Any = None) -> Answer:
    return TaskResult(ok=value)


def touch(path: str) -> None:
    Path(path).touch()


def exists(path: str) -> bool:
    return Path(path).exists()


def append(path: str, text: str) -> None:
    with open(path, "a") as file:
        file.write(text)


def forever() -> NoReturn:
    while True:
        time.sleep(0.05)


@app.task("echo")
def echo(value: Any = None) -> TaskResult[Any, TaskError]:
    return ok(value)


@app.task("whoami")
def whoami() -> TaskResult[Any, TaskError]:
    return ok(
        {
            "pid": os.getpid(),
            "ppid": os.getppid(),
            "group": os.getpgrp(),
            "session": os.getsid(0),
            "name": multiprocessing.current_process().name,
            "random": random.random(),
            "stdin": os.readlink("/proc/self/fd/0") if os.path.exists("/proc/self/fd/0") else "/dev/null",
            "fds": sorted(int(name) for name in os.listdir("/dev/fd")),
            "sigint": signal.getsignal(signal.SIGINT) not in (signal.SIG_DFL, signal.default_int_handler),
            "sigterm": signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, signal.SIG_IGN),
            "main": [name for name in vars(sys.modules["__main__"]) if not name.startswith("__")],
            "main_thread": threading.current_thread() is threading.main_thread(),
        }
    )


@app.task("touch_and_sleep")
def touch_and_sleep(path: str, seconds: float = 60) -> TaskResult[Any, TaskError]:
    Path(path).write_text(str(os.getpid()))
    time.sleep(seconds)
    return ok("slept")


@app.task("brief_or_not")
def brief_or_not(
    seconds: float = 0, is_last: bool = False, holds_interpreter: bool = False
) -> TaskResult[int, TaskError]:
    """So short, mostly, that its child does not report it at once."""
    if holds_interpreter:
        ctypes.PyDLL(None).usleep(int(seconds * 1e6))
    elif seconds:
        time.sleep(seconds)
    if is_last:
        os.kill(os.getpid(), signal.SIGKILL)
    return TaskResult(ok=1)


@app.task("spin")
def spin(path: str) -> TaskResult[Any, TaskError]:
    Path(path).touch()
    while True:
        sum(range(1000))


@app.task("hold_the_interpreter")
def hold_the_interpreter(path: str, seconds: int, waiting: int = 0) -> TaskResult[Any, TaskError]:
    """`waiting`: so many threads want the interpreter meanwhile."""
    for _ in range(waiting):
        threading.Thread(target=forever, daemon=True).start()
    Path(path).touch()
    ctypes.PyDLL(None).sleep(seconds)  # a PyDLL keeps the GIL while it calls
    return ok()


@app.task("match_for_ever")
def match_for_ever(path: str) -> TaskResult[Any, TaskError]:
    """A pattern that tries everything: C code that holds the interpreter and works."""
    Path(path).touch()
    return ok(re.match("(a+)+$", "a" * 60 + "b") is None)


@app.task("clean_up_slowly")
def clean_up_slowly(path: str) -> TaskResult[Any, TaskError]:
    Path(path).touch()
    try:
        forever()
    finally:
        Path(path).write_text("cleaning")
        time.sleep(0.3)
        Path(path).write_text("clean")


@app.task("refuse_to_stop")
def refuse_to_stop(path: str) -> TaskResult[Any, TaskError]:
    Path(path).touch()
    try:
        forever()
    except BaseException as error:
        return ok(type(error).__name__)


@app.task("reset_signals")
def reset_signals(path: str) -> TaskResult[Any, TaskError]:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    Path(path).touch()
    forever()


@app.task("exit_hard")
def exit_hard(code: int) -> TaskResult[Any, TaskError]:
    os._exit(code)


@app.task("kill_myself")
def kill_myself(number: int) -> TaskResult[Any, TaskError]:
    os.kill(os.getpid(), number)
    time.sleep(60)
    return ok()


class Strange(BaseException):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")


@app.task("raise_it")
def raise_it(what: str) -> TaskResult[Any, TaskError]:
    if what == "recursion":
        return raise_it.fn(what)
    if what == "memory":
        return ok(len(bytearray(1 << 60)))
    if what == "exit":
        sys.exit(3)
    raise {"interrupt": KeyboardInterrupt, "generator": GeneratorExit, "strange": Strange, "value": ValueError}[what]()


@app.task("close_descriptors")
def close_descriptors(then_sleep: float = 0) -> TaskResult[Any, TaskError]:
    os.closerange(3, 4096)
    time.sleep(then_sleep)
    return ok("nobody will ever read this")


mine: list[socket.socket] = []


@app.task("close_descriptors_and_open_others")
def close_descriptors_and_open_others(then_sleep: float) -> TaskResult[Any, TaskError]:
    os.closerange(3, 4096)
    for _ in range(50):
        mine.extend(socket.socketpair())
    time.sleep(then_sleep)
    return ok("nobody will ever read this")


@app.task("print_megabytes")
def print_megabytes(count: int) -> TaskResult[Any, TaskError]:
    for _ in range(count):
        print("x" * (1 << 20))
        print("y" * 1024, file=sys.stderr)
    return ok(count)


@app.task("print_and_log")
def print_and_log() -> TaskResult[Any, TaskError]:
    print("printed by a task")
    logging.getLogger("of.the.task").info("logged by a task")
    logging.getLogger("of.the.task").debug("not to be seen")
    return ok()


@app.task("fork_and_return")
def fork_and_return(path: str) -> TaskResult[Any, TaskError]:
    pid = os.fork()
    if pid == 0:
        Path(path).write_text(str(os.getpid()))
        return ok("from the copy")
    _, status = os.waitpid(pid, 0)
    return ok({"copy": os.waitstatus_to_exitcode(status)})


@app.task("fork_and_raise")
def fork_and_raise() -> TaskResult[Any, TaskError]:
    pid = os.fork()
    if pid == 0:
        raise RuntimeError("in the copy")
    _, status = os.waitpid(pid, 0)
    return ok({"copy": os.waitstatus_to_exitcode(status)})


@app.task("leave_a_copy_behind")
def leave_a_copy_behind(path: str) -> TaskResult[Any, TaskError]:
    pid = os.fork()
    if pid == 0:
        Path(path).write_text(str(os.getpid()))
        forever()
    return ok(pid)


@app.task("leave_a_program_behind")
def leave_a_program_behind() -> TaskResult[Any, TaskError]:
    return ok(subprocess.Popen(["sleep", "600"]).pid)


@app.task("leave_an_orphan")
def leave_an_orphan() -> TaskResult[Any, TaskError]:
    """A process that ends after its parent has: someone else has to reap it."""
    command = ["sh", "-c", "sleep 0.3 >&2 & echo $!"]
    return ok(int(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout))


@app.task("start_a_program_and_wait")
def start_a_program_and_wait(path: str) -> TaskResult[Any, TaskError]:
    with subprocess.Popen(["sleep", "600"]) as process:
        Path(path).write_text(str(process.pid))
    return ok()


@app.task("use_subprocess")
def use_subprocess() -> TaskResult[Any, TaskError]:
    command = [sys.executable, "-c", "import os; print(sorted(int(n) for n in os.listdir('/dev/fd')))"]
    return ok(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@app.task("use_multiprocessing")
def use_multiprocessing(method: str) -> TaskResult[Any, TaskError]:
    with multiprocessing.get_context(method).Pool(2) as pool:
        return ok(pool.map(abs, [-1, -2, -3]))


@app.task("terminate_a_fork")
def terminate_a_fork() -> TaskResult[Any, TaskError]:
    process = multiprocessing.get_context("fork").Process(target=forever)
    process.start()
    process.terminate()
    process.join(10)
    code = process.exitcode
    process.kill()
    return ok(code)


@app.task("start_threads")
def start_threads() -> TaskResult[Any, TaskError]:
    threading.Thread(target=forever).start()
    return ok(threading.active_count())


@app.task("large_result")
def large_result(size: int) -> TaskResult[Any, TaskError]:
    return ok("x" * size)


@app.task("set_context")
def set_context() -> TaskResult[Any, TaskError]:
    before = seen.get()
    seen.set("something")
    return ok(before)


@app.task("run_a_loop")
def run_a_loop() -> TaskResult[Any, TaskError]:
    async def inner() -> str:
        await asyncio.sleep(0)
        return "looped"

    return ok(asyncio.run(inner()))


@app.task("a_echo")
async def a_echo(value: Any = None) -> TaskResult[Any, TaskError]:
    await asyncio.sleep(0)
    return ok(value)


@app.task("a_touch_and_sleep")
async def a_touch_and_sleep(path: str, seconds: float = 60) -> TaskResult[Any, TaskError]:
    touch(path)
    await asyncio.sleep(seconds)
    return ok("slept")


@app.task("a_wait_for_file")
async def a_wait_for_file(path: str) -> TaskResult[Any, TaskError]:
    while not exists(path):
        await asyncio.sleep(0.01)
    return ok("seen")


@app.task("a_refuse_to_stop")
async def a_refuse_to_stop(path: str) -> TaskResult[Any, TaskError]:
    touch(path)
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        return ok("swallowed")
    return ok()


@app.task("a_cancel_myself")
async def a_cancel_myself() -> TaskResult[Any, TaskError]:
    raise asyncio.CancelledError


@app.task("a_raise_it")
async def a_raise_it(what: str) -> TaskResult[Any, TaskError]:
    await asyncio.sleep(0)
    raise {"exit": SystemExit, "interrupt": KeyboardInterrupt, "generator": GeneratorExit}[what]()


@app.task("a_exit_in_background")
async def a_exit_in_background() -> TaskResult[Any, TaskError]:
    async def inner() -> None:
        sys.exit(5)

    background = asyncio.create_task(inner())
    await asyncio.sleep(0.05)
    return ok(background.done())


@app.task("a_stop_the_loop")
async def a_stop_the_loop() -> TaskResult[Any, TaskError]:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0.01)
    return ok("still here")


@app.task("a_fork")
async def a_fork(path: str) -> TaskResult[Any, TaskError]:
    """The copy waits a moment, in which a neighbour would go on if the copy ran the loop."""
    pid = os.fork()
    if pid == 0:
        await asyncio.sleep(0.2)
        touch(path)
        return ok("from the copy")
    _, status = await asyncio.to_thread(os.waitpid, pid, 0)
    return ok({"copy": os.waitstatus_to_exitcode(status)})


@app.task("a_count_steps")
async def a_count_steps(path: str, until: str) -> TaskResult[Any, TaskError]:
    """One line for each step, and a step in every round of the loop: a copy of this task would write some as well."""
    steps = 0
    while not exists(until):
        append(path, f"{steps}\n")
        steps += 1
        await asyncio.sleep(0)
    return ok(steps)
