"""`horsies demo --web`: the shop is busy, its dashboard answers, and in the end nothing is left running (M-96)."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from horsies.dev import ports
from tests.e2e.test_demo import a_demo
from tests.support import eventually
from tests.web_support import INTENT

pytestmark = pytest.mark.e2e
PROGRAMS = ["scheduler", "web", "worker", "worker"]


class Shop:
    """A running demo: its dashboard, and the processes below it."""

    def __init__(self, demo: Any, client: httpx.AsyncClient) -> None:
        self.demo = demo
        self.client = client
        self.below = psutil.Process(demo.pid).children(recursive=True)

    def programs(self) -> list[psutil.Process]:
        return [one for one in psutil.Process(self.demo.pid).children() if "horsies" in one.cmdline()]

    async def counts(self) -> dict[str, int]:
        found = (await self.client.get("/api/tasks/stats")).json()
        return {one["status"]: one["count"] for one in found}

    async def end(self, sig: signal.Signals) -> tuple[int, str, str]:
        """The exit code and what was said, when it is told to end."""
        self.demo.send_signal(sig)
        return await self.ended()

    async def ended(self) -> tuple[int, str, str]:
        said, errors = await asyncio.to_thread(self.demo.communicate, timeout=60)
        return self.demo.returncode, said, errors

    def is_gone(self) -> bool:
        """Nothing runs that ran below it."""
        return all(not one.is_running() or one.status() == psutil.STATUS_ZOMBIE for one in self.below)


@asynccontextmanager
async def a_shop(database_url: str, cwd: Path) -> AsyncIterator[Shop]:
    with a_demo(database_url, cwd, "--web") as demo:
        address = await asyncio.to_thread(address_of, demo)
        async with httpx.AsyncClient(base_url=address, timeout=60) as client:
            try:
                yield Shop(demo, client)
            except httpx.TransportError as error:
                raise AssertionError(demo.communicate()) from error  # the demo says which of its processes has ended


def address_of(demo: Any) -> str:
    """The line that says where it is comes when it answers; an empty one if the demo has ended."""
    for line in iter(demo.stdout.readline, ""):
        if found := re.match(r"dashboard: (\S+)", line):
            return found[1]
    raise AssertionError(demo.communicate())


@pytest.mark.slow("starts a whole demo with its own server")
@pytest.mark.timeout(180)
async def test_m96_the_shop_is_busy_and_ends_with_everything_it_started(database_url: str, tmp_path: Path) -> None:
    async with a_shop(database_url, tmp_path) as shop:
        page = await shop.client.get("/")
        assert page.status_code == 200 and "demo-orders" in page.text
        assert (await shop.client.get("/api/meta")).json()["can_act"]
        assert sorted(one.cmdline()[3] for one in shop.programs()) == PROGRAMS

        async def shows_several_states() -> bool:
            counts = await shop.counts()
            return all(counts[state] for state in ("PENDING", "COMPLETED", "FAILED", "CANCELLED"))

        await eventually(shows_several_states, 90, what="tasks in several states")

        async def has_paused() -> bool:
            return bool((await shop.client.get("/api/workflows", params={"status": "PAUSED"})).json())

        await eventually(has_paused, 60, what="a workflow that an error has paused")
        schedules = {one["name"]: one["source"] for one in (await shop.client.get("/api/schedules")).json()}
        assert schedules["demo-reminder"] == "database" and schedules["demo-newsletter"] == "code"

        async def is_unserved() -> bool:
            queues = {one["name"]: one for one in (await shop.client.get("/api/queues")).json()["queues"]}
            return bool(queues["demo-archive"]["waiting"]) and not queues["demo-archive"]["live_workers"]

        await eventually(is_unserved, 60, what="a queue that nobody serves")
        shop.below = psutil.Process(shop.demo.pid).children(recursive=True)
        code, said, errors = await shop.end(signal.SIGINT)
        assert code == 0, errors
        assert "Everything has stopped" in said and "python -m horsies web" in said
        await eventually(shop.is_gone, what="no process is left")


@pytest.mark.slow("starts a whole demo with its own server")
@pytest.mark.timeout(180)
async def test_m96_a_worker_that_is_drained_is_started_again(database_url: str, tmp_path: Path) -> None:
    """Also if one of its tasks takes longer than the worker waits, so that it ends with 1."""
    async with a_shop(database_url, tmp_path) as shop:

        async def live() -> set[str]:
            found = (await shop.client.get("/api/workers")).json()
            return {one["worker_id"] for one in found if one["is_live"] and not one["is_draining"]}

        async def runs_a_report() -> str | None:
            params = {"task_names": "shop.report", "statuses": "RUNNING"}
            found = (await shop.client.get("/api/tasks", params=params)).json()["items"]
            return found[0]["worker_id"] if found else None

        drained = await eventually(runs_a_report, 60, what="a worker with a long task")
        before = await live()
        done = await shop.client.post(f"/api/workers/{drained}/drain", headers=INTENT)
        assert done.status_code == 200, done.text

        async def another_is_there() -> bool:
            return len(await live() - before) == 1

        await eventually(another_is_there, 90, what="another worker in its place")
        assert shop.demo.poll() is None
        assert (await shop.end(signal.SIGTERM))[0] == 0


@pytest.mark.slow("starts a whole demo with its own server")
@pytest.mark.timeout(120)
async def test_m96_if_one_of_them_ends_the_others_are_stopped(database_url: str, tmp_path: Path) -> None:
    async with a_shop(database_url, tmp_path) as shop:
        next(one for one in shop.programs() if "scheduler" in one.cmdline()).kill()
        code, _, errors = await shop.ended()
        assert code == 1 and "the scheduler of the demo has ended" in errors
        await eventually(shop.is_gone, what="no process is left")


@pytest.mark.slow("starts a whole demo with its own server")
@pytest.mark.timeout(120)
async def test_m96_a_demo_that_is_killed_takes_everything_along(database_url: str, tmp_path: Path) -> None:
    async with a_shop(database_url, tmp_path) as shop:
        await shop.end(signal.SIGKILL)
        await eventually(shop.is_gone, what="no process is left")


def test_m96_x31_a_port_that_is_taken_is_left_alone() -> None:
    assert ports.FIRST == 8600
    port = ports.free_port(ports.FIRST + 1_000)
    with socket.socket() as taken:
        taken.bind((ports.LOOPBACK, port))
        taken.listen()
        assert ports.free_port(port) > port
    assert ports.free_port(port) == port
