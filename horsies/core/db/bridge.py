"""The bridge between callers of any kind and the event loop that does the I/O.

A `Bridge` owns one daemon thread with one event loop, and what lives there (connections, a listener). `run` blocks the
calling thread, also inside a running loop of the caller's; `call` awaits from any loop, and blocks inside a blocking
twin (`types/twins.py`). Whatever breaks the bridge itself is a `BridgeError` at once, never a wait without end. A
process forked later starts with a loop of its own: the parent's is put aside untouched, because closing it would end
sessions that belong to the parent (T-67).
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import logging
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future, InvalidStateError
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from horsies.core.types import is_blocking

log = logging.getLogger("horsies.sync")
R = TypeVar("R")
T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)
P = ParamSpec("P")
S = TypeVar("S", bound="Bridged")

# How often a blocked caller checks that the loop still runs.
_LOOK_UP_SECONDS = 5.0
_CLOSE_SECONDS = 3.0


class BridgeError(Exception):
    """The background loop could not be started, or ended before the call did."""


class Bridged(Protocol):
    """What `on_bridge` needs of the object whose methods it takes over."""

    @property
    def bridge(self) -> Bridge[Any]: ...


def on_bridge(
    method: Callable[Concatenate[S, P], Awaitable[T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """The same method for callers on any event loop: it runs on the bridge, and the caller awaits it."""

    @functools.wraps(method)
    async def awaiting(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.bridge.call(functools.partial(method, self, *args, **kwargs))

    return awaiting


class Reply(Protocol[T_contra]):
    """The answer that the loop owes to a caller of `ask`; `InvalidStateError` if the caller no longer wants it."""

    def set_result(self, result: T_contra, /) -> None: ...

    def set_exception(self, exception: BaseException, /) -> None: ...


class Bridge(Generic[R]):
    """A background loop and what `make()` puts there; both are made at the first call of each process."""

    def __init__(
        self, make: Callable[[], R], *, dispose: Callable[[R], Awaitable[None]], name: str = "horsies"
    ) -> None:
        self._make = make
        self._dispose = dispose
        self._name = name
        self._lock = threading.Lock()
        self._runner: _Runner[R] | None = None
        _bridges.add(self)

    def run(self, make_call: Callable[[], Awaitable[T]]) -> T:
        """Await `make_call()` on the loop and block until it is done."""
        runner = self._running()
        return runner.block_for(runner.submit(make_call))

    async def call(self, make_call: Callable[[], Awaitable[T]]) -> T:
        """Await `make_call()` on the loop, from another loop or from the same one."""
        if is_blocking():
            return self.run(make_call)
        runner = self._running()
        if asyncio.get_running_loop() is runner.loop:
            return await make_call()
        return await asyncio.wrap_future(runner.submit(make_call))

    def begin(self, make_call: Callable[[], Awaitable[T]]) -> Begun[T]:
        """Start `make_call()` on the loop, and go on meanwhile."""
        runner = self._running()
        return Begun(runner, runner.submit(make_call))

    def ask(self, begin: Callable[[R, Reply[T]], None]) -> T:
        """Call `begin(resource, answer)` on the loop, and block until the answer is set there.

        It is like `run`, but makes no asyncio task for the call; it is for work that is done for many callers together.
        """
        runner = self._running()
        runner.refuse_itself()
        answer: Future[T] = Future()
        with runner.owing(answer):
            runner.post(begin, answer)
            return runner.wait_for(answer)

    async def ask_async(self, begin: Callable[[R, Reply[T]], None]) -> T:
        """The same for a caller on any loop."""
        if is_blocking():
            return self.ask(begin)
        runner = self._running()
        answer: _Awaited[T] = _Awaited(asyncio.get_running_loop())
        with runner.owing(answer):
            runner.post(begin, answer)
            return await answer.future

    def tell(self, act: Callable[[R], None]) -> None:
        """Call `act(resource)` on the loop soon, if there is one. It waits for nothing and takes no lock, so it can be
        called from any thread and from a signal handler."""
        runner = self._runner
        if runner is not None and runner.is_usable():
            with contextlib.suppress(RuntimeError):  # the loop has ended
                runner.loop.call_soon_threadsafe(act, runner.resource)

    def peek(self) -> R | None:
        """What lives on the loop, if it has been made. It can be called from any thread, for objects that allow
        this."""
        runner = self._runner
        return runner.resource if runner is not None and runner.is_usable() else None

    def here(self) -> R:
        """What lives on the loop. For code that runs there."""
        runner = self._runner
        if runner is None or threading.get_ident() != runner.thread.ident:
            raise BridgeError("only code on the broker's own loop may touch its connections")
        return runner.resource

    def close(self) -> None:
        """Close what lives on the loop and end the thread. The next call starts anew."""
        with self._lock:
            runner, self._runner = self._runner, None
        if runner is not None and runner.pid == os.getpid():
            runner.stop(self._dispose)

    async def close_async(self) -> None:
        await asyncio.to_thread(self.close)

    def __del__(self) -> None:
        # A broker that is garbage must not keep its thread and its connections.
        runner = self.__dict__.get("_runner")
        if runner is not None and runner.is_usable():
            runner.stop(self._dispose, wait=False)

    def _running(self) -> _Runner[R]:
        runner = self._runner
        if runner is not None and runner.is_usable():
            return runner
        with self._lock:
            if self._runner is None or not self._runner.is_usable():
                self._put_aside()
                self._runner = _Runner(self._make, self._name)
            return self._runner

    def _put_aside(self) -> None:
        if self._runner is not None and self._runner.pid != os.getpid():
            _abandoned.append(self._runner)
        self._runner = None

    def _after_fork(self) -> None:
        self._lock = threading.Lock()  # another thread of the parent may have held the old lock
        self._put_aside()


class _Runner(Generic[R]):
    """The thread, its loop, and the calls in progress."""

    def __init__(self, make: Callable[[], R], name: str) -> None:
        self.pid = os.getpid()
        # psycopg needs a selector loop. `new_event_loop` would follow the application's policy.
        self.loop = asyncio.SelectorEventLoop()
        self._make = make
        self._pending: set[Reply[Any]] = set()
        self._ended = False
        self._started: Future[R] = Future()
        self.thread = threading.Thread(target=self._main, name=f"{name} loop", daemon=True)
        try:
            self.thread.start()
            self.resource = self._started.result()
        except Exception as problem:
            self._ended = True
            if not self.thread.is_alive():
                self.loop.close()
            raise BridgeError(f"the background loop could not be started: {problem}") from problem

    def is_usable(self) -> bool:
        return not self._ended and self.pid == os.getpid()

    def submit(self, make_call: Callable[[], Awaitable[T]]) -> Future[T]:
        future: Future[T] = Future()
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)
        try:
            self.loop.call_soon_threadsafe(self._begin, make_call, future)
        except RuntimeError as closed:
            raise BridgeError("the background loop has ended") from closed
        return future

    @contextlib.contextmanager
    def owing(self, answer: Reply[Any]) -> Iterator[None]:
        """While a caller waits: if the loop ends, that is the answer."""
        self._pending.add(answer)
        try:
            yield
        finally:
            self._pending.discard(answer)

    def post(self, begin: Callable[[R, Reply[T]], None], answer: Reply[T]) -> None:
        try:
            self.loop.call_soon_threadsafe(self._ask, begin, answer)
        except RuntimeError as closed:
            raise BridgeError("the background loop has ended") from closed

    def wait_for(self, future: Future[T]) -> T:
        while True:
            try:
                return future.result(timeout=_LOOK_UP_SECONDS)
            except TimeoutError:
                if future.done():
                    return future.result()
                if not self.thread.is_alive():
                    raise BridgeError("the background loop has died") from None

    def block_for(self, future: Future[T]) -> T:
        """Block until it is done; if the caller is interrupted, so is the call."""
        try:
            self.refuse_itself()
            return self.wait_for(future)
        except CancelledError:
            raise BridgeError("the call was cancelled") from None
        except BaseException:
            future.cancel()  # after Ctrl-C in the caller the answer is not needed any more
            raise

    def refuse_itself(self) -> None:
        """Raise if nobody would be left to do what the caller is about to wait for."""
        if threading.get_ident() == self.thread.ident:
            raise BridgeError("a blocking call from the broker's own loop would wait for itself")

    def stop(self, dispose: Callable[[R], Awaitable[None]], *, wait: bool = True) -> None:
        self._ended = True
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            self.loop.call_soon_threadsafe(self._begin_stop, dispose)
        if wait and threading.get_ident() != self.thread.ident:
            self.thread.join(_CLOSE_SECONDS)

    def _main(self) -> None:
        try:
            self.loop.call_soon(self._make_resource)
            self.loop.run_forever()
        except BaseException as problem:
            log.error("the background loop ended: %r", problem)
        finally:
            self._ended = True
            self._fail_pending()
            self._wind_up()
            self._fail_pending()

    def _make_resource(self) -> None:
        try:
            self._started.set_result(self._make())
        except BaseException as problem:
            self._started.set_exception(problem)
            self.loop.stop()

    def _begin(self, make_call: Callable[[], Awaitable[T]], future: Future[T]) -> None:
        async def awaited() -> T:
            return await make_call()

        if future.done():
            return
        task = self.loop.create_task(awaited())
        task.add_done_callback(functools.partial(_deliver, future))
        future.add_done_callback(functools.partial(self._follow_cancel, task))

    def _ask(self, begin: Callable[[R, Reply[T]], None], answer: Reply[T]) -> None:
        try:
            begin(self.resource, answer)
        except Exception as problem:
            with contextlib.suppress(InvalidStateError):
                answer.set_exception(problem)

    def _follow_cancel(self, task: asyncio.Task[Any], future: Future[Any]) -> None:
        if future.cancelled():
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(task.cancel)

    def _begin_stop(self, dispose: Callable[[R], Awaitable[None]]) -> None:
        async def end() -> None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_CLOSE_SECONDS / 2):
                    await dispose(self.resource)
            self.loop.stop()

        self._end = self.loop.create_task(end())

    def _wind_up(self) -> None:
        """Cancel what still runs, so that nothing is destroyed while pending, and close the loop."""
        with contextlib.suppress(Exception):
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            self.loop.run_until_complete(asyncio.wait_for(_gathered(tasks), _CLOSE_SECONDS / 2))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    def _fail_pending(self) -> None:
        for future in list(self._pending):
            with contextlib.suppress(InvalidStateError):
                future.set_exception(BridgeError("the background loop ended before the call did"))


class Begun(Generic[T]):
    """A call that goes on while its caller does something else."""

    def __init__(self, runner: _Runner[Any], future: Future[T]) -> None:
        self._runner = runner
        self._future = future

    async def result(self) -> T:
        """Wait for it, in the way of whoever called."""
        if is_blocking():
            return self._runner.block_for(self._future)
        return await asyncio.wrap_future(self._future)

    def cancel(self) -> None:
        """End it, unless it has ended."""
        self._future.cancel()


class _Awaited(Generic[T]):
    """The answer for a caller on another loop: like wrapping a `concurrent.futures.Future`, at half the cost."""

    __slots__ = ("_loop", "future")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.future: asyncio.Future[T] = loop.create_future()

    def set_result(self, result: T) -> None:
        self._tell(self.future.set_result, result)

    def set_exception(self, exception: BaseException) -> None:
        self._tell(self.future.set_exception, exception)

    def _tell(self, settle: Callable[[Any], None], value: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the caller's loop is closed
            self._loop.call_soon_threadsafe(self._settle, settle, value)

    def _settle(self, settle: Callable[[Any], None], value: Any) -> None:
        if not self.future.done():  # otherwise the caller has given up, or knows that the loop ended
            settle(value)


async def _gathered(tasks: set[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


def _deliver(future: Future[T], task: asyncio.Task[T]) -> None:
    problem = BridgeError("the call was cancelled") if task.cancelled() else task.exception()
    with contextlib.suppress(InvalidStateError):  # the caller has given up
        if problem is None:
            future.set_result(task.result())
        else:
            future.set_exception(problem)


_bridges: weakref.WeakSet[Bridge[Any]] = weakref.WeakSet()
_abandoned: list[
    _Runner[Any]
] = []  # the parent's runners; they are kept, so that nothing of them is collected and closed


def _after_fork_in_child() -> None:
    for bridge in list(_bridges):
        bridge._after_fork()


def _at_exit() -> None:
    for bridge in list(_bridges):
        bridge.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)

# Exit hooks run in reverse order. This one is registered at import, so that later hooks of the application may send.
atexit.register(_at_exit)
