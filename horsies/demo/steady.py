"""`horsies demo --web`: the same shop with its dashboard, under a load that never ends, until Ctrl-C (M-96)."""

import asyncio
import itertools
import random
import re
import tempfile
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeAlias

from horsies.demo import shop
from horsies.demo.programs import APP, SHOP, ShopPrograms
from horsies.dev.ports import free_port

WEB = "dashboard"
ADDRESS = re.compile(r"^dashboard: (\S+)$", re.MULTILINE)
LOOK_S = 0.1
SALE = 100  # mails, and as many prices
ARCHIVED_FOR = timedelta(minutes=2)
LATER = 3_600
PEOPLE = [f"{name}@example.com" for name in ("ada", "grace", "alan", "edsger", "barbara", "donald")]
PEOPLE.append(f"konrad@{shop.BUSY}")
Sending: TypeAlias = Callable[[int], Awaitable[object]]


async def run(announce: Callable[[str], None]) -> None:
    """Until it is cancelled. `announce` gets the address of the dashboard. `HorsiesError` if a process has ended."""
    with (
        tempfile.TemporaryDirectory(prefix="horsies-demo-") as directory,
        ShopPrograms(Path(directory), {**SHOP, WEB: _dashboard}) as programs,
    ):
        try:
            await programs.run_beside(_be_busy(programs, announce))
        finally:
            await shop.app.schedules.remove_async(shop.AT_RUN_TIME.name)
            await shop.app.get_broker().close_async()


def _dashboard() -> tuple[str, ...]:
    return ("web", APP, "--port", str(free_port()), "--enable-actions")


async def _be_busy(programs: ShopPrograms, announce: Callable[[str], None]) -> None:
    await _open_the_shop()
    async with asyncio.TaskGroup() as sending:
        for every, send in LOAD:
            sending.create_task(_repeat(every, send))
        while not (found := ADDRESS.search(programs.log(WEB))):
            await asyncio.sleep(LOOK_S)
        announce(found[1])


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
        later = await shop.send_mail.schedule_async(LATER, to=person, subject="How did you like it?")
    if later.is_ok():
        await later.ok_value.cancel_async()


async def _mail(number: int) -> None:
    await shop.send_mail.send_async(to=random.choice(PEOPLE), subject=f"Your order {number}")


async def _sale(number: int) -> None:
    """More mails than the limit of their queue lets through, and new prices."""
    mails = [shop.send_mail.prepare(to=f"customer-{n}@example.com", subject=f"Sale {number}") for n in range(SALE)]
    await shop.send_mail.send_many_async(mails)
    await shop.set_price.send_many_async([(item, 100 * number) for item in range(SALE)])


async def _image(number: int) -> None:
    kind = "txt" if number % 25 == 0 else "jpg"
    await shop.resize_image.send_async(path=f"photos/{number:04}.{kind}", width=random.choice((320, 640, 1280)))


async def _order(number: int) -> None:
    await shop.order_workflow(number + 2).start_async()


async def _report(number: int) -> None:
    await shop.report.send_async(pages=random.randint(20, 60))


async def _archive(number: int) -> None:
    """No worker serves its queue, so it waits until it is too late."""
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
