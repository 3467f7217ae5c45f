"""`horsies demo --web`: the shop of `shop.py` with workers, a scheduler and its dashboard, under a load that never
ends, until Ctrl-C. Everything that is started here is also stopped here, whatever happens: if one of the processes
dies, the others are stopped too, and the demo says which it was. A worker that was drained from the dashboard is
started again, as a supervisor would do it.
"""

import asyncio
import contextlib
import itertools
import random
import re
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeAlias

from horsies.core.errors import HorsiesError
from horsies.demo import shop
from horsies.demo.programs import Program
from horsies.dev.ports import free_port

APP = "horsies.demo.shop:app"
GRACE = "2s"
STOP_SECONDS = 15.0
WATCH_SECONDS = 0.2
ADDRESS = re.compile(r"^dashboard: (\S+)$", re.MULTILINE)
DRAINED = "asked this worker to drain"  # in its log; if a task outlasts the grace, it ends with 1
SALE = 100  # mails at once
ARCHIVED_FOR = timedelta(minutes=2)
LATER = 3_600
PEOPLE = ("ada", "grace", "alan", "edsger", "barbara", "donald")
Sending: TypeAlias = Callable[[int], Awaitable[object]]


async def run(announce: Callable[[str], None]) -> None:
    """Until SIGINT or SIGTERM. `announce` gets the address of the dashboard. `HorsiesError` if a process has ended."""
    with (
        tempfile.TemporaryDirectory(prefix="horsies-demo-") as directory,
        _told_to_stop() as stop,
    ):
        async with _running(_programs(Path(directory))) as programs, _busy():
            is_announced = False
            async for _ in _looks(programs, stop):
                if not is_announced and (found := ADDRESS.search(programs[-1].said())):
                    announce(found[1])
                    is_announced = True


def _programs(directory: Path) -> list[Program]:
    """Two workers, which leave one queue to nobody, the scheduler and, at the end, the dashboard."""

    def program(name: str, *words: str) -> Program:
        return Program(directory / f"{name}.log", *words)

    quick = ("--queues", f"{shop.ORDERS},{shop.MAIL}", "--processes", "2", "--shutdown-grace", GRACE)
    slow = ("--queues", shop.IMAGES, "--processes", "2", "--shutdown-grace", GRACE)
    return [
        program("orders", "worker", APP, *quick),
        program("images", "worker", APP, *slow),
        program("scheduler", "scheduler", APP),
        program("web", "web", APP, "--port", str(free_port()), "--enable-actions"),
    ]


@contextlib.asynccontextmanager
async def _running(programs: Sequence[Program]) -> AsyncIterator[Sequence[Program]]:
    """They start side by side, and end with the block: asked first, killed if they do not hear."""
    with contextlib.ExitStack() as stack:
        for program in programs:
            stack.enter_context(program)
            program.start()
        try:
            yield programs
        finally:
            for program in programs:
                program.tell_to_stop()
            await asyncio.gather(*(asyncio.to_thread(program.stop, STOP_SECONDS) for program in programs))


@contextlib.contextmanager
def _told_to_stop() -> Iterator[asyncio.Event]:
    """An event that a signal sets; without it, Ctrl-C would break off what is being stopped."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    signals = (signal.SIGINT, signal.SIGTERM)
    for number in signals:
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


async def _looks(programs: Sequence[Program], stop: asyncio.Event) -> AsyncIterator[None]:
    """A look now and then, until we are told to stop. All programs must live."""
    while not stop.is_set():
        for program in programs:
            if not program.has_ended:
                continue
            if DRAINED in program.said():
                program.start()
            else:
                raise HorsiesError(f"the {program.name} of the demo has ended", notes=[program.last_words()])
        yield
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), WATCH_SECONDS)


@contextlib.asynccontextmanager
async def _busy() -> AsyncIterator[None]:
    """The load, for as long as the block lasts."""
    await _open_the_shop()
    sending = [asyncio.create_task(_repeat(every, send)) for every, send in LOAD]
    try:
        yield
    finally:
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)
        await shop.app.schedules.remove_async(shop.AT_RUN_TIME.name)
        await shop.app.get_broker().close_async()


async def _repeat(every: float, send: Sending) -> None:
    """A send that fails is not repeated: the next one comes soon."""
    for number in itertools.count(1):
        await send(number)
        await asyncio.sleep(every * random.uniform(0.5, 1.5))


async def _open_the_shop() -> None:
    """What is to be seen from the start: something paused, failed, cancelled, for later, and a run-time schedule."""
    await shop.app.schedules.put_async(shop.AT_RUN_TIME)
    await shop.order_workflow(1, declines=1.0, pauses=True).start_async()
    await shop.order_workflow(2, declines=1.0).start_async()
    for person in PEOPLE:
        later = await shop.send_mail.schedule_async(LATER, to=f"{person}@example.com", subject="How did you like it?")
    if later.is_ok():
        await later.ok_value.cancel_async()


async def _mail(number: int) -> None:
    await shop.send_mail.send_async(to=f"{random.choice(PEOPLE)}@example.com", subject=f"Your order {number}")


async def _sale(number: int) -> None:
    """More mails at once than the limit of their queue lets through."""
    mails = [shop.send_mail.prepare(to=f"customer-{n}@example.com", subject=f"Sale {number}") for n in range(SALE)]
    await shop.send_mail.send_many_async(mails)


async def _image(number: int) -> None:
    await shop.resize_image.send_async(path=f"photos/{number:04}.jpg", width=random.choice((320, 640, 1280)))


async def _order(number: int) -> None:
    await shop.order_workflow(number + 2).start_async()


async def _report(number: int) -> None:
    await shop.report.send_async(pages=random.randint(20, 60))


async def _archive(number: int) -> None:
    """Nobody serves its queue, so it waits until it is too late."""
    await shop.archive.with_options(good_until=datetime.now(UTC) + ARCHIVED_FOR).send_async(order=number)


# What is sent, and the seconds between two sends, on average.
LOAD: tuple[tuple[float, Sending], ...] = (
    (1.0, _mail),
    (1.0, _image),
    (4.0, _order),
    (15.0, _report),
    (15.0, _archive),
    (60.0, _sale),
)
