"""The bridge between callers and the background loop (T-67), without a database."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec

import pytest

from horsies.core.db.bridge import Bridge, BridgeError, on_bridge
from horsies.core.types.twins import run_sync
from tests.support import eventually, eventually_sync

P = ParamSpec("P")


class Resource:
    """Something that lives on the loop: remembers who made it, and whether it was closed."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.thread = threading.get_ident()
        self.closed = False

    async def close(self) -> None:
        self.closed = True


def or_minus_one(method: Callable[P, Awaitable[int]]) -> Callable[P, Coroutine[Any, Any, int]]:
    @functools.wraps(method)
    async def safe(*args: P.args, **kwargs: P.kwargs) -> int:
        try:
            return await method(*args, **kwargs)
        except BridgeError:
            return -1

    return safe


class Client:
    def __init__(self) -> None:
        self.bridge: Bridge[Resource] = Bridge(Resource, dispose=Resource.close)

    @or_minus_one
    @on_bridge
    async def double_async(self, number: int) -> int:
        """Twice the number."""
        await asyncio.sleep(0)
        assert threading.get_ident() == self.bridge.here().thread
        return 2 * number

    @or_minus_one
    @on_bridge
    async def sleep_for_ever_async(self) -> int:
        await asyncio.Event().wait()
        return 0

    @or_minus_one
    async def double_meanwhile_async(self, number: int) -> int:
        """Twice the number, while the caller does something else."""
        begun = self.bridge.begin(functools.partial(self.double_async, number))
        return await begun.result()

    double_meanwhile = run_sync(double_meanwhile_async)
    double = run_sync(double_async)
    sleep_for_ever = run_sync(sleep_for_ever_async)


@pytest.fixture
def client() -> Iterator[Client]:
    client = Client()
    yield client
    client.bridge.close()


def calls_under_way(client: Client) -> int:
    return 0 if client.bridge._runner is None else len(client.bridge._runner._pending)


def test_t67_an_exception_of_the_call_reaches_the_caller(client: Client) -> None:
    async def broken() -> None:
        raise TimeoutError("of the call itself")

    with pytest.raises(TimeoutError, match="of the call itself"):
        client.bridge.run(broken)


def test_t67_a_loop_that_dies_fails_its_callers_and_is_replaced(client: Client) -> None:
    async def kill_the_loop() -> None:
        raise SystemExit

    waiting = ThreadPoolExecutor(1).submit(client.sleep_for_ever)
    eventually_sync(lambda: calls_under_way(client) == 1)
    with pytest.raises((BridgeError, SystemExit)):
        client.bridge.run(kill_the_loop)
    assert waiting.result(timeout=10) == -1
    assert client.double(1) == 2


def test_t67_a_blocking_call_from_the_loop_itself_is_refused_instead_of_hanging(client: Client) -> None:
    async def call_back() -> int:
        return client.double(1)

    assert client.bridge.run(call_back) == -1


async def test_t67_a_call_that_was_begun_is_awaited_later_in_the_way_of_the_caller(client: Client) -> None:
    assert client.double_meanwhile(4) == await client.double_meanwhile_async(4) == 8

    async def nested() -> int:
        return client.double_meanwhile(1)

    assert await client.bridge.call(nested) == -1  # from the loop itself


def test_t67_a_call_that_was_begun_can_be_ended(client: Client) -> None:
    ended = threading.Event()

    async def until_it_is_ended() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    begun = client.bridge.begin(until_it_is_ended)
    assert client.double(2) == 4  # it is under way
    begun.cancel()
    assert ended.wait(timeout=30)


async def test_t67_closing_tells_those_who_wait(client: Client) -> None:
    waiting = asyncio.create_task(client.sleep_for_ever_async())
    await eventually(lambda: calls_under_way(client) == 1)
    await client.bridge.close_async()
    assert await waiting == -1
    assert client.double(3) == 6


async def test_t67_cancelling_the_caller_cancels_the_call(client: Client) -> None:
    begun, cancelled = threading.Event(), threading.Event()

    async def note_cancel() -> None:
        begun.set()  # a call that is cancelled before its first step notes nothing
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    call = asyncio.create_task(client.bridge.call(note_cancel))
    await eventually(begun.is_set)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await eventually(cancelled.is_set)


def test_t67_what_lives_on_the_loop_is_closed_with_it(client: Client) -> None:
    client.double(1)
    resource = client.bridge._runner.resource  # type: ignore[union-attr]
    client.bridge.close()
    assert resource.closed


def test_t67_a_dropped_bridge_gives_up_its_thread() -> None:
    client = Client()
    client.double(1)
    thread = client.bridge._runner.thread  # type: ignore[union-attr]
    del client
    eventually_sync(lambda: not thread.is_alive())


def test_t67_a_fork_at_a_moment_when_the_lock_is_held_does_not_hang(client: Client) -> None:
    with client.bridge._lock:
        assert in_a_fork(lambda: client.double(21) == 42)


def in_a_fork(check: object) -> bool:
    """Whether `check()` is true in a forked process that ends like any other."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if check() else 1)  # type: ignore[operator]
        finally:
            os._exit(2)
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return False


def test_t67_ctrl_c_interrupts_a_blocking_call() -> None:
    script = """
        import signal, threading
        from tests.support import eventually_sync
        from tests.unit.test_bridge import Client, calls_under_way

        def tell():
            eventually_sync(lambda: calls_under_way(client) == 1)
            print("waiting", flush=True)

        signal.signal(signal.SIGINT, signal.default_int_handler)
        client = Client()
        threading.Thread(target=tell).start()
        try:
            client.sleep_for_ever()
        except KeyboardInterrupt:
            print("interrupted", calls_under_way(client))
    """
    script = textwrap.dedent(script)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30)[0] == "interrupted 0\n"
