"""The processes of one system: `python -m benchmarks.peers.program SYSTEM work|send`, its worker or its sender.

A sender takes orders as lines of JSON and answers each with a line: what it measured, in seconds. It measures itself,
so that neither its start nor our conversation with it counts.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import monotonic_ns, perf_counter
from typing import Any

import uvloop

from benchmarks.peers import marks
from benchmarks.peers.gate import Gate

PAUSE_S = 0.02
LOOK_S = 0.001
PATIENCE_S = 60.0
WARM_UPS = 5


def main(name: str, role: str) -> None:
    system = importlib.import_module(f"benchmarks.peers.systems.{name}")
    url = os.environ["PEERS_URL"]
    if role == "work":
        uvloop.run(system.work(url, json.loads(os.environ["PEERS_SETTINGS"]), Gate.given()))
    else:
        uvloop.run(converse(system, url))


async def converse(system: Any, url: str) -> None:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        order = json.loads(line)
        answer: dict[str, Any] = {}
        if order["do"] == "install":
            await system.install(url)
        else:
            async with system.sender(url, order["settings"]) as sender:
                answer = await ORDERS[order["do"]](sender, order)
        print(json.dumps(answer), flush=True)


async def one_by_one(sender: Any, order: dict[str, Any]) -> dict[str, Any]:
    """How many one producer sends in the time given."""
    await sender.send(0)
    count, begin = 0, perf_counter()
    while (spent := perf_counter() - begin) < order["seconds"]:
        await sender.send(count)
        count += 1
    return {"count": count, "seconds": spent}


async def many(sender: Any, order: dict[str, Any]) -> dict[str, Any]:
    """All of them, by the call that the system has for it."""
    begin = perf_counter()
    await sender.send_many(order["count"])
    return {"count": order["count"], "seconds": perf_counter() - begin}


async def ping(sender: Any, order: dict[str, Any]) -> dict[str, Any]:
    """One task at a time: send to start of user code, and send to what the sender sees of its end."""
    times = marks.Marks(Path(os.environ[marks.VARIABLE]))
    starts: list[float] = []
    ends: list[float] = []
    for number in range(WARM_UPS + order["count"]):
        await asyncio.sleep(PAUSE_S)
        begin = monotonic_ns()
        handle = await sender.send(number)
        if order["answers"]:
            await asyncio.wait_for(sender.result(handle), PATIENCE_S)
            ends.append((monotonic_ns() - begin) / 1e9)
        await _started(times, number)
        starts.append((times.at(number) - begin) / 1e9)
    return {"starts": starts[WARM_UPS:], "ends": ends[WARM_UPS:]}


async def _started(times: marks.Marks, number: int) -> None:
    deadline = perf_counter() + PATIENCE_S
    while not times.at(number):
        if perf_counter() > deadline:
            raise TimeoutError(f"task {number} does not start")
        await asyncio.sleep(LOOK_S)


ORDERS: dict[str, Callable[[Any, dict[str, Any]], Awaitable[dict[str, Any]]]] = {
    "one_by_one": one_by_one,
    "many": many,
    "ping": ping,
}

if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
